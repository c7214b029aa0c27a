#include "core/transformer/paging/layer_memory.h"

#include <cstdlib>
#include <new>

#include "core/transformer/map_layer.h"
#include "core/transformer/paging/layer_store.h"

namespace specdec {

int64_t stored_layer_bytes(const LayerOf<MatrixSize>& layer) {
  int64_t bytes = 0;
  visit_matrices(layer, [&bytes](const MatrixSize& matrix) {
    bytes += stored_bytes(matrix.parts, matrix.columns, matrix.form);
  });
  return (bytes + kLayerAlignment - 1) / kLayerAlignment * kLayerAlignment;
}

std::shared_ptr<std::byte> layer_memory(int64_t bytes) {
  auto* memory =
      static_cast<std::byte*>(std::aligned_alloc(kLayerAlignment, static_cast<size_t>(bytes)));
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return {memory, [](std::byte* pointer) { std::free(pointer); }};
}

LayerWeights layer_in(const std::shared_ptr<std::byte>& memory, const LayerOf<MatrixSize>& layer,
                      at::Device device) {
  std::shared_ptr<std::byte> next = memory;
  return map_matrices<Linear>(layer, [&](const MatrixSize& size, const Tensor& bias) {
    Linear matrix(size.parts, size.columns, size.form, device, next);
    next = {next, next.get() + stored_bytes(size.parts, size.columns, size.form)};
    if (bias.defined()) {
      matrix.set_bias(bias);
    }
    return matrix;
  });
}

}  // namespace specdec
