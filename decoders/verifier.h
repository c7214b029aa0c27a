#pragma once
#include <vector>

#include "core/draft.h"
#include "core/randomness.h"

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
  /// target_probs: [n, vocab] float64; row i is the target's processed law of the token after node i.
  virtual Verdict judge(const Draft& draft, const Tensor& target_probs,
                        Randomness& random) const = 0;
};

}  // namespace specdec
