#include "decoders/verifiers/probs.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "core/error.h"
#include "core/kernels/probs.h"

namespace specdec {

void check_probs(const Draft& draft, const TargetProbs& target) {
  SPECDEC_CHECK(target.nodes() == draft.size(), "{} target distributions for a draft of {} nodes",
                target.nodes(), draft.size());
  const int64_t distributions = draft.probs.defined() ? draft.probs.size(0) : 0;
  SPECDEC_CHECK(draft.child_probs.size() == draft.tokens.size(),
                "a draft of {} nodes and {} distributions", draft.tokens.size(),
                draft.child_probs.size());
  for (const int64_t distribution : draft.child_probs) {
    SPECDEC_CHECK(distribution >= -1 && distribution < distributions,
                  "a node's children come from distribution {} of {}", distribution, distributions);
  }
  SPECDEC_CHECK(distributions == 0 ||
                    (draft.probs.scalar_type() == at::kDouble && draft.probs.is_contiguous() &&
                     draft.probs.size(1) == target.vocab_size()),
                "the draft's distributions are float64 rows over the target's vocabulary");
}

Probs row_of(const Tensor& distributions, int64_t row) {
  const auto vocab = static_cast<size_t>(distributions.size(1));
  return {distributions.const_data_ptr<double>() + row * distributions.size(1), vocab};
}

double weight_of(Probs distribution, Token token) {
  SPECDEC_CHECK(token >= 0 && static_cast<size_t>(token) < distribution.size(),
                "token {} is outside the vocabulary", token);
  return distribution[static_cast<size_t>(token)];
}

VerifyResult follow(const Draft& draft,
                    const std::function<Token(int64_t node, int64_t depth)>& choose) {
  VerifyResult result{.path = {0}};
  while (true) {
    const int64_t node = result.path.back();
    result.next = choose(node, static_cast<int64_t>(result.path.size()) - 1);
    const std::vector<int64_t> children = draft.children(node);
    const auto match = std::find_if(children.begin(), children.end(), [&](int64_t child) {
      return draft.tokens[static_cast<size_t>(child)] == result.next;
    });
    if (match == children.end()) {
      return result;
    }
    result.path.push_back(*match);
  }
}

bool normalise(std::vector<double>& weights) {
  const double sum = sum_of(weights).sum;
  if (!(sum > 0.0)) {
    return false;
  }
  divide(weights, sum);
  return true;
}

std::vector<double> residual(Probs p, Probs q, double scale) {
  std::vector<double> rest(p.size());
  std::transform(p.begin(), p.end(), q.begin(), rest.begin(),
                 [scale](double a, double b) { return std::max(scale * a - b, 0.0); });
  return rest;
}

std::vector<double> residual(Probs p, Token chosen, double scale) {
  std::vector<double> rest(p.begin(), p.end());
  for (double& weight : rest) {
    weight *= scale;
  }
  double& hit = rest[static_cast<size_t>(chosen)];
  hit = std::max(hit - 1.0, 0.0);
  return rest;
}

}  // namespace specdec
