#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace specdec {

/// Makes rope_scaling of a config of Gemma 3 or 3n, where there is one, the whole rotation of its
/// full layers: what rope_parameters says of them, over which the keys of rope_scaling are put, as
/// in transformers. Throws WeightsError naming `where` if their types contradict each other.
void merge_rope_scaling(nlohmann::json& config, const std::string& where);

}  // namespace specdec
