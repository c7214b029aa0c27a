#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "core/families/description.h"
#include "core/formats/json_keys.h"

namespace specdec {

/// The model_types of Gemma 1 to 3: "gemma", "gemma2", "vaultgemma" (Gemma 2 without norms after
/// attention and MLP), "gemma3_text" and the multimodal wrapper "gemma3", of which the text model
/// is read.
const std::vector<std::string>& gemma_model_types();

/// A norm scale w in these checkpoints means kGemmaNormOffset + w.
inline constexpr double kGemmaNormOffset = 1.0;

/// The name of the norm before the MLP of a model_type whose layers have none after it
/// (post_norms).
const char* gemma_mlp_norm(const std::string& family);

/// Reads the text of such a config.json, in the old (transformers 4) or new (5) style. Throws
/// WeightsError naming `where` and the key, as `names` calls it: not JSON, a missing or mistyped
/// key, a value that makes no sense, an architecture that is not supported.
ModelDescription parse_gemma_config(const std::string& text, const std::string& where,
                                    const KeyNames& names = {});
/// Reads a folder's config.json as parse_gemma_config does; the end tokens of
/// generation_config.json replace the config's.
ModelDescription load_gemma_config(const std::filesystem::path& folder);
/// The text of a config.json, in the new style, that is read back as the same model; `dtype` as
/// stored: "float32", "bfloat16", "float16", or "" where it is not known.
std::string gemma_config_json(const ModelDescription& model, const std::string& dtype);

}  // namespace specdec
