#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace specdec {

/// Puts the keys of rope_scaling over what rope_parameters says of full layers, in a config of
/// Gemma 3 or 3n that has both, as transformers does; rope_scaling goes. Throws WeightsError naming
/// `where` if their types contradict each other.
void merge_rope_scaling(nlohmann::json& config, const std::string& where);

}  // namespace specdec
