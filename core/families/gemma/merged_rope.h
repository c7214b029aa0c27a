#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace specdec {

/// Makes rope_scaling of a config of Gemma 3 or 3n the whole rotation of its full layers, where
/// rope_parameters has one, too: its keys count, and of those that it has not, what stood there, as
/// in transformers. Throws WeightsError naming `where` if their types contradict each other.
void merge_rope_scaling(nlohmann::json& config, const std::string& where);

}  // namespace specdec
