#pragma once
#include <cstdint>
#include <optional>
#include <vector>

namespace specdec {

class JsonKeys;

/// num_hidden_layers of a config: 1 to 1024. Throws WeightsError naming the key.
int64_t read_layer_count(const JsonKeys& keys, std::optional<int64_t> fallback = std::nullopt);

/// layer_types of a config, which must have the key: true for each of the `layers` that is
/// "sliding_attention", false for "full_attention". Throws WeightsError naming the key.
std::vector<bool> read_layer_types(const JsonKeys& keys, int64_t layers);

}  // namespace specdec
