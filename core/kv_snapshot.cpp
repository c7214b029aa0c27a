#include "core/kv_snapshot.h"

#include <utility>

#include "core/error.h"

namespace specdec {

KvCopies::KvCopies(std::vector<LayerKeyValues> layers, int64_t length, int64_t shortest_length)
    : layers_(std::move(layers)), length_(length), shortest_length_(shortest_length) {
  for (const LayerKeyValues& layer : layers_) {
    SPECDEC_CHECK(layer.keys.dim() == 3 && layer.keys.size(1) == length &&
                      layer.values.sizes() == layer.keys.sizes() &&
                      layer.values.dtype() == layer.keys.dtype(),
                  "snapshot: keys and values should be [kv_heads, {}, head_dim] of one dtype",
                  length);
  }
}

MemoryParts KvCopies::parts() const {
  MemoryParts parts;
  for (const LayerKeyValues& layer : layers_) {
    for (const Tensor* numbers : {&layer.keys, &layer.values}) {
      parts.push_back(
          {.owner = numbers->const_data_ptr(), .bytes = static_cast<int64_t>(numbers->nbytes())});
    }
  }
  return parts;
}

}  // namespace specdec
