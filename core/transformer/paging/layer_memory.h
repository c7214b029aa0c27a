#pragma once
#include <cstddef>
#include <memory>

#include "core/transformer/layer_tensors.h"

namespace specdec {

/// Bytes of a layer's matrices where they lie one after another, in the order of visit_matrices.
int64_t stored_layer_bytes(const LayerOf<MatrixSize>& layer);
/// Memory for so many bytes, aligned to kLayerAlignment. Throws std::bad_alloc.
std::shared_ptr<std::byte> layer_memory(int64_t bytes);
/// The layer whose matrices lie, or are going to lie, in `memory` of a device, which they share.
LayerWeights layer_in(const std::shared_ptr<std::byte>& memory, const LayerOf<MatrixSize>& layer,
                      at::Device device);

}  // namespace specdec
