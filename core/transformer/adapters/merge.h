#pragma once
#include <memory>

#include "core/transformer/adapters/adapter_stack.h"

namespace specdec {

/// The base's weights with the adapters of a stack added to the matrices that they change, each
/// rounded once to its format; all other matrices are the base's own memory. The base stays as it
/// is, so a model made on it again has its bits: that is how to unmerge. Forwards are as fast as
/// the base's, but where weights have less than float32 the sums are rounded, which applied
/// adapters are not. Throws Error for matrices in blocks, which cannot hold the sums.
std::shared_ptr<const TransformerWeights> merge_adapters(const AdapterStack& stack);

}  // namespace specdec
