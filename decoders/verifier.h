#pragma once
#include <vector>

#include "core/draft.h"
#include "core/randomness.h"
#include "core/sampling.h"

namespace specdec {

/// What a verifier decided about a draft.
struct Verdict {
  std::vector<int64_t> path;  ///< accepted nodes, root (node 0) first; never empty
  Token next = 0;             ///< correction token, or bonus token when a whole path is accepted
};

/// Decides which drafted tokens stay.
class Verifier {
 public:
  virtual ~Verifier() = default;
  /// Refuses sampling under which the output would not follow the target's law: throws ConfigError
  /// with the reason.
  virtual void check(const SamplingParams& sampling) const { (void)sampling; }
  /// target_probs: [n, vocab] float64; row i is the target's processed law of the token after node
  /// i.
  virtual Verdict judge(const Draft& draft, const Tensor& target_probs,
                        Randomness& random) const = 0;
};

}  // namespace specdec
