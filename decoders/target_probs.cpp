#include "decoders/target_probs.h"

#include <ATen/ATen.h>

#include <utility>

#include "core/error.h"

namespace specdec {

TargetProbs::TargetProbs(Tensor probs) : probs_(std::move(probs)) {
  SPECDEC_CHECK(probs_.dim() == 2 && probs_.scalar_type() == at::kDouble && probs_.is_cpu() &&
                    probs_.is_contiguous(),
                "target probabilities are float64 [nodes, vocab] on the CPU, contiguous");
}

int64_t TargetProbs::nodes() const { return probs_.size(0); }

int64_t TargetProbs::vocab_size() const { return probs_.size(1); }

Probs TargetProbs::after(int64_t node) {
  SPECDEC_CHECK(node >= 0 && node < nodes(), "no target probabilities after node {} of {}", node,
                nodes());
  return {probs_.const_data_ptr<double>() + node * vocab_size(), static_cast<size_t>(vocab_size())};
}

}  // namespace specdec
