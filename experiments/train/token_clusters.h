#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace specdec {

/// Clusters of equal size of the rows of a matrix [vocab, width] by direction: k-means whose
/// clusters have room for vocab / clusters rows each. It begins with the heaviest tokens' rows.
/// Returns [clusters, vocab / clusters] int64; the number of clusters should divide the vocabulary.
at::Tensor equal_clusters(const at::Tensor& rows, const at::Tensor& token_weights,
                          int64_t clusters);

}  // namespace specdec
