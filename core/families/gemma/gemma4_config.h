#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "core/families/description.h"
#include "core/formats/json_keys.h"

namespace specdec {

/// The model_types of Gemma 3n and 4: their text models ("gemma3n_text", "gemma4_text",
/// "gemma4_unified_text") and the wrappers for other inputs ("gemma3n", "gemma4",
/// "gemma4_unified"), of which the text model is read.
const std::vector<std::string>& gemma4_model_types();

/// Reads the text of such a config.json, hub style (global_head_dim, num_global_key_value_heads) or
/// as transformers 5.23 saves it (per_layer_config). Two keys of our own say what only GGUF files
/// know: `raw_value_layers` (layers whose values are their raw keys) and `activation_sparsity_z`
/// (per layer: standard deviations above the mean, null = no cut). Throws WeightsError naming
/// `where` and the key, as `names` calls it.
ModelDescription parse_gemma4_config(const std::string& text, const std::string& where,
                                     const KeyNames& names = {});
/// The text model of a Gemma 4 assistant ("gemma4_assistant"), from the text_config in its
/// config.json: all of its layers read keys and values of a target, so kv_source is 0 in each, to
/// be replaced. Throws WeightsError where a layer has its own.
ModelDescription read_assistant_layers(const JsonKeys& text_config);
/// Reads a folder's config.json as parse_gemma4_config does; the end tokens of
/// generation_config.json replace the config's.
ModelDescription load_gemma4_config(const std::filesystem::path& folder);

}  // namespace specdec
