#pragma once
// Components with one planted mistake each: what the promise suite and certify must find.
#include "decoders/drafter.h"
#include "decoders/verifier.h"
#include "tests/support/fake_model.h"
#include "tests/support/test_drafters.h"

namespace specdec {

enum class Bug {
  kNone,
  kUniformQ,               ///< deterministic tokens are verified with a distribution, not one-hot
  kResidualFromTarget,     ///< the correction is drawn from p, not from the rest of it
  kResidualNotNormalised,  ///< after a rejection the next sibling is verified with a p below one
  kSiblingsIndependent,    ///< q still contains the sibling that was rejected before
  kAlwaysAccepts,
  kFirstUnchecked,      ///< the first drafted token is accepted whatever the target says
  kSharedRandomNumber,  ///< the correction is drawn with the number that drew the draft
  kTypicalAcceptance,   ///< Medusa's rule, which is fine when it is declared lossy
};

/// Rejection for trees, written plainly, with one mistake.
class BuggyVerifier final : public Verifier {
 public:
  explicit BuggyVerifier(Bug bug) : bug_(bug) {}
  VerifyResult verify(const Draft& draft, TargetProbs& target, int64_t position,
                      Randomness& random) const override;

 private:
  int64_t first_accepted(const Draft& draft, int64_t node, Tensor& p, Randomness& random) const;
  /// The correction token, drawn from p: what is left of `target`.
  Token correction(const Tensor& target, const Tensor& p, int64_t position,
                   Randomness& random) const;

  Bug bug_;
};

/// Takes the table's best token, but declares it drawn from the distribution.
class WrongDistributionDrafter final : public Drafter {
 public:
  explicit WrongDistributionDrafter(LogitTable table) : table_(std::move(table)) {}
  Draft propose(const DraftContext& context) override;

 private:
  LogitTable table_;
};

/// Draws honestly, then drops what it is not confident of.
class DroppingDrafter final : public Drafter {
 public:
  explicit DroppingDrafter(LogitTable table) : tree_(std::move(table), {.branches = 1}) {}
  Draft propose(const DraftContext& context) override;

 private:
  TreeDrafter tree_;
};

/// Draws honestly from a distribution that knows no grammar, then strips what a grammar forbids
/// (here: one token): the correction should have been drawn from the rest of p, not from p.
class StrippingDrafter final : public Drafter {
 public:
  static constexpr Token kForbidden = 2;
  explicit StrippingDrafter(LogitTable table) : tree_(std::move(table), {.branches = 1}) {}
  Draft propose(const DraftContext& context) override;

 private:
  TreeDrafter tree_;
};

/// Draws two siblings and keeps the more likely one.
class RerankingDrafter final : public Drafter {
 public:
  explicit RerankingDrafter(LogitTable table) : table_(std::move(table)) {}
  Draft propose(const DraftContext& context) override;

 private:
  LogitTable table_;
};

}  // namespace specdec
