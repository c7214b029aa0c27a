#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace specdec {

using at::Tensor;

/// How the hidden states of a text's tokens become one vector.
enum class Pooling {
  kMean,            ///< their mean
  kLast,            ///< that of the last token
  kMax,             ///< the largest value of each dimension
  kCls,             ///< that of the first token
  kMeanSqrtLength,  ///< their sum over the square root of their number
  kWeightedMean     ///< their mean, the n-th token weighted by n
};

/// "mean", "last", "max", "cls", "mean_sqrt_len_tokens", "weightedmean"; sentence-transformers'
/// "lasttoken" is "last". Throws ConfigError for others, naming these.
Pooling parse_pooling(const std::string& name);
/// Name of a pooling, which parse_pooling reads.
std::string pooling_name(Pooling pooling);

/// The vector [hidden] of a text's states [n, hidden]: as sentence-transformers' Pooling makes it.
/// The first `skipped` tokens, fewer than n, do not count (a prompt that is not to be pooled).
Tensor pool_states(const Tensor& states, Pooling pooling, int64_t skipped = 0);

}  // namespace specdec
