#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/formats/safetensors.h"

namespace specdec {

/// Rows of the tensor when all dimensions but the last are taken as one: E * M of [E, M, N], 1 of
/// [N].
int64_t flat_rows(const TensorEntry& entry);

/// A tensor of its own name and shape over the rows of `whole`, taken as flat_rows, from `first`
/// on: one expert's matrix of a stack, or k of a fused q, k, v. Its bytes lie in those of `whole`
/// (rows are whole blocks), so it lives as long. The last dimension of `shape` is that of `whole`;
/// the rows must be there, and groups of interleaved ones stay whole.
TensorEntry slice_rows(const TensorEntry& whole, int64_t first, std::vector<int64_t> shape,
                       std::string name);

}  // namespace specdec
