#pragma once
#include <cstdint>
#include <vector>

#include "decoders/decoding_strategy.h"
#include "decoders/drafter.h"

namespace specdec {

/// What a grammar forces is drafted before anything else: a chain, at whose end the draft of
/// another drafter begins. That one sees the forced tokens as committed, unless it lives on the
/// target's features, which nobody has of tokens that were not evaluated: then it skips the step.
class ForcedTokensDrafter final : public Drafter {
 public:
  /// Serves one request. Borrows the drafter, the request, and the grammar's place after what is
  /// committed, which moves on with the text; nullptr = nothing is ever forced.
  ForcedTokensDrafter(Drafter& drafter, const Request& request, const GrammarMatcher* place);
  Needs needs() const override { return drafter_.needs(); }
  void skip(const DraftContext& context) override { drafter_.skip(context); }
  /// The context's limits are what fits.
  Draft propose(const DraftContext& context) override;
  /// Tells the shape what came of the part of the newest draft that it planned, if that was
  /// reached.
  void observe(DraftShape& shape, const Draft& draft, const VerifyResult& result) const;

 private:
  std::vector<Token> forced(const DraftContext& context) const;
  /// The other drafter's part, after the chain.
  Draft propose_after(const Draft& chain, const DraftContext& context);

  Drafter& drafter_;
  const Request& request_;
  const GrammarMatcher* place_;
  bool reads_features_;
  int64_t forced_ = 0;    // tokens of the newest draft's chain
  bool skipped_ = false;  // the newest draft is the chain alone
};

}  // namespace specdec
