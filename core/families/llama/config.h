#pragma once
#include <filesystem>
#include <string>

#include "core/families/description.h"
#include "core/formats/json_keys.h"

namespace specdec {

/// The model_types of Llama's shape: "llama" (Llama 2 and 3, SmolLM2), "mistral", "qwen2" (Qwen 2.5
/// too), "qwen3".
const std::vector<std::string>& llama_model_types();

/// Reads the text of a config.json of one of them, old (transformers 4) or new (5) style, with
/// each class's own defaults for missing keys. Throws WeightsError naming `where` and the key, as
/// `names` calls it.
ModelDescription parse_llama_config(const std::string& text, const std::string& where,
                                    const KeyNames& names = {});
/// Reads a folder's config.json as parse_llama_config does; the end tokens of
/// generation_config.json count as well.
ModelDescription load_llama_config(const std::filesystem::path& folder);

/// The text of a config.json that describes such a model, with weights of `dtype` ("float32").
/// Throws WeightsError, naming `where`, for rotary frequencies that no config.json can describe;
/// whether it describes the layers is not checked.
std::string llama_config_json(const ModelDescription& model, const std::string& dtype,
                              const std::string& where);

}  // namespace specdec
