#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "core/families/description.h"
#include "core/formats/json_keys.h"

namespace specdec {

/// "recurrent_gemma": Griffin (De et al., 2024, arXiv:2402.19427) as Google published it, layers of
/// a gated linear recurrence between those of local attention.
const std::vector<std::string>& recurrent_gemma_model_types();

/// Parses a config.json of RecurrentGemma; `where` and errors as for parse_gemma_config. Heads of q
/// and k are expected in the order that RecurrentGemmaTensors gives them.
ModelDescription parse_recurrent_gemma_config(const std::string& text, const std::string& where,
                                              const KeyNames& names = {});
/// Reads a folder's config.json of RecurrentGemma, as load_gemma_config does for Gemma.
ModelDescription load_recurrent_gemma_config(const std::filesystem::path& folder);

}  // namespace specdec
