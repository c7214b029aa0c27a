#pragma once
#include <cstdint>

#include "decoders/decoding_strategy.h"
#include "decoders/drafter.h"

namespace specdec {

/// What a step verifies: a chain of tokens that a grammar forces, then what a drafter proposes.
struct StepDraft {
  Draft draft;
  int64_t forced = 0;  ///< tokens of the chain
  /// Whether the context's shape planned what follows the chain; false where a drafter skips the
  /// step, since it lives on the target's features, which nobody has of forced tokens.
  bool planned = true;

  /// Tells the shape what came of the part that it planned of a draft like this, if that was
  /// reached.
  void observe(DraftShape& shape, const Draft& verified, const VerifyResult& result) const;
};

/// The draft that a drafter proposes as the context's shape plans: the shape is asked how much the
/// step may draft, and the drafter for that much, within the context's limits, which are what fits.
/// Checks what is proposed (InternalError), and takes out what the grammar forbids.
Draft planned_draft(Drafter& drafter, const DraftContext& context);

/// The planned draft after the tokens that the request's grammar forces next, which the drafter
/// sees as committed. `place`: the grammar's after what is committed; nullptr = nothing is ever
/// forced.
StepDraft step_draft(Drafter& drafter, const DraftContext& context, const Request& request,
                     const GrammarMatcher* place);

}  // namespace specdec
