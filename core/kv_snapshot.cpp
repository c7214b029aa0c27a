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

int64_t KvCopies::bytes() const {
  int64_t bytes = 0;
  for (const LayerKeyValues& layer : layers_) {
    bytes += static_cast<int64_t>(layer.keys.nbytes() + layer.values.nbytes());
  }
  return bytes;
}

}  // namespace specdec
