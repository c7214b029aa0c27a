#pragma once
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "decoders/drafters/drafter_group.h"

namespace specdec {

struct CascadeMember {
  std::unique_ptr<Drafter> drafter;
  /// A draft of fewer tokens passes the turn on, unless the step allows no more. Above 1 only for
  /// drafters that choose deterministically: to drop tokens that were drawn would change the
  /// distribution. One that draws nevertheless, as its shape allows it, keeps its turn.
  int64_t min_tokens = 1;
  /// Most tokens of its drafts, which are no more than the step allows either: what is worth
  /// verifying of a long match may not be worth it of a guess.
  int64_t max_tokens = std::numeric_limits<int64_t>::max();
};

/// Asks its drafters one after the other; the first that has enough to say proposes. As SAM
/// decoding (Hu et al., 2024, arXiv:2411.10666) and hybrid suffix decoding have it: a suffix match
/// where there is one, and its length grows with the match, else a model.
///
/// Those that are not asked in a step are told to skip it, as DrafterGroup has it.
class CascadeDrafter final : public DrafterGroup {
 public:
  /// Throws ConfigError when there is no member, or for a min_tokens or max_tokens that is not
  /// allowed.
  explicit CascadeDrafter(std::vector<CascadeMember> members);
  Draft propose(const DraftContext& context) override;

 private:
  std::vector<CascadeMember> members_;  // without their drafters
};

}  // namespace specdec
