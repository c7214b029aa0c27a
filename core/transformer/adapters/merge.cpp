#include "core/transformer/adapters/merge.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/error.h"

namespace specdec {
namespace {

/// What a stack adds to a matrix, [out, in] in float64; undefined = nothing.
Tensor added(const AdapterStack& stack, const Linear& matrix) {
  Tensor sum;
  for (const auto& [adapter, scale] : stack.adapters()) {
    for (const LoraPair& pair : adapter->pairs) {
      if (pair.matrix != &matrix) {
        continue;
      }
      if (!sum.defined()) {
        sum = at::zeros({matrix.out(), matrix.in()}, at::kDouble);
      }
      sum.narrow(0, pair.first, pair.b.size(0)) +=
          scale * at::matmul(pair.b.to(at::kDouble), pair.a.to(at::kDouble));
    }
  }
  return sum;
}

void refuse_blocks(const AdapterStack& stack, const Linear& matrix) {
  const auto& parts = matrix.parts();
  if (std::any_of(parts.begin(), parts.end(),
                  [](const Linear::Part& part) { return is_in_blocks(part.format); })) {
    throw Error(fmt::format(
        "{} cannot be merged: the base holds matrices in blocks ({}), which cannot hold the sums "
        "without rounding all weights of a block again. Apply it instead, or load the base with "
        "dtype bfloat16 or float32.",
        stack.adapters().front().adapter->name, format_name(matrix.format())));
  }
}

/// A matrix of the same formats with the sum in it.
Linear merged_matrix(const Linear& matrix, const Tensor& sum, const Placement& place) {
  std::vector<LinearPart> parts;
  for (const Linear::Part& part : matrix.parts()) {
    parts.push_back({part.out, part.format});
  }
  Linear merged(parts, matrix.in(), place);
  const Tensor weight = matrix.unpack().to(at::kCPU, at::kDouble) + sum;
  for (const Linear::Part& part : matrix.parts()) {
    merged.set_rows(part.first, weight.narrow(0, part.first, part.out));
  }
  if (matrix.bias().defined()) {
    merged.set_bias(matrix.bias());
  }
  return merged;
}

}  // namespace

std::shared_ptr<const TransformerWeights> merge_adapters(const AdapterStack& stack) {
  const c10::InferenceMode usable_everywhere(false);
  const TransformerWeights& base = stack.base();
  if (base.source != nullptr) {
    throw Error(
        "adapters cannot be merged into a model whose layers are read from disk: apply them "
        "instead, or leave out the memory limit");
  }
  auto merged = std::make_shared<TransformerWeights>(base);
  std::vector<Linear*> copies;
  visit_forward_matrices(*merged, [&copies](Linear& matrix) { copies.push_back(&matrix); });
  size_t index = 0;
  visit_forward_matrices(base, [&](const Linear& matrix) {
    Linear& copy = *copies[index++];
    if (const Tensor sum = added(stack, matrix); sum.defined()) {
      refuse_blocks(stack, matrix);
      copy = merged_matrix(matrix, sum, base.place);
      if (&matrix == &base.head) {
        merged->config.tie_word_embeddings = false;
      }
    }
  });
  if (!stack.adapters().empty()) {
    merged->fingerprint = merged->weights_fingerprint = stack.fingerprint();
  }
  return merged;
}

}  // namespace specdec
