#include "decoders/target_probs.h"

#include <ATen/ATen.h>

#include <utility>

#include "core/error.h"

namespace specdec {

TargetProbs::TargetProbs(int64_t nodes, int64_t vocab_size, Make make)
    : vocab_size_(vocab_size), make_(std::move(make)), made_(static_cast<size_t>(nodes)) {}

TargetProbs::TargetProbs(const Tensor& probs) {
  SPECDEC_CHECK(probs.dim() == 2 && probs.scalar_type() == at::kDouble && probs.is_cpu() &&
                    probs.is_contiguous(),
                "target probabilities are float64 [nodes, vocab] on the CPU, contiguous");
  vocab_size_ = probs.size(1);
  const auto* row = probs.const_data_ptr<double>();
  for (int64_t node = 0; node < probs.size(0); ++node, row += vocab_size_) {
    made_.emplace_back(std::vector<double>(row, row + vocab_size_));
  }
}

const TokenProbs& TargetProbs::after(int64_t node) {
  SPECDEC_CHECK(node >= 0 && node < nodes(), "no target probabilities after node {} of {}", node,
                nodes());
  TokenProbs& probs = made_[static_cast<size_t>(node)];
  if (probs.empty()) {
    probs = make_(node);
  }
  return probs;
}

}  // namespace specdec
