#include "core/transformer/layer_types.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/formats/json_keys.h"

namespace specdec {

int64_t read_layer_count(const JsonKeys& keys, std::optional<int64_t> fallback) {
  constexpr int64_t kMaxLayers = 1024;
  const int64_t layers = keys.positive("num_hidden_layers", fallback);
  if (layers > kMaxLayers) {
    keys.fail("num_hidden_layers", fmt::format("is {}, more than {}", layers, kMaxLayers));
  }
  return layers;
}

std::vector<bool> read_layer_types(const JsonKeys& keys, int64_t layers) {
  const nlohmann::json& types = keys.at("layer_types");
  if (!types.is_array() || static_cast<int64_t>(types.size()) != layers) {
    keys.fail("layer_types", fmt::format("should be a list of {} layer types", layers));
  }
  std::vector<bool> sliding;
  for (const nlohmann::json& type : types) {
    if (type != "sliding_attention" && type != "full_attention") {
      keys.fail("layer_types", fmt::format("holds {}; known: \"sliding_attention\", "
                                           "\"full_attention\"",
                                           describe_json(type)));
    }
    sliding.push_back(type == "sliding_attention");
  }
  return sliding;
}

}  // namespace specdec
