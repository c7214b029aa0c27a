#pragma once
#include <ATen/ATen.h>

#include <algorithm>

#include "decoders/drafter.h"
#include "decoders/drafters/target_features.h"

namespace specdec {

/// Copies what followed the earlier place of the text where the target's final hidden state was the
/// most similar to its newest one.
class NearestStateDrafter final : public Drafter {
  Needs needs() const override { return {.internals = true}; }
  void reset() override {
    features_.reset();
    states_ = Tensor();
  }
  void skip(const DraftContext& context) override { collect(context); }
  Draft propose(const DraftContext& context) override {
    collect(context);
    Draft draft = Draft::root(context.committed.back());
    const int64_t newest = states_.size(0) - 1;  // the state of the token before the root
    if (newest < 1) {
      return draft;
    }
    const Tensor similar = at::mv(states_.narrow(0, 0, newest), states_[newest]);
    const auto place = similar.argmax().item<int64_t>();
    const int64_t most = std::min(context.max_tokens, context.max_depth);
    for (int64_t i = place + 2; i < std::ssize(context.committed) && draft.proposed() < most; ++i) {
      draft.add(context.committed[i], draft.size() - 1);
    }
    return draft;
  }
  void collect(const DraftContext& context) {
    features_.collect(context);
    const Tensor found = features_.take();
    if (found.defined()) {
      const Tensor unit = found / found.norm(2, {1}, true).clamp_min(1e-12);
      states_ = states_.defined() ? at::cat({states_, unit}) : unit;
    }
  }

  TargetFeatures features_{{}};  // no captured layers: the final hidden states
  Tensor states_;                // [tokens, hidden], of length 1
};

}  // namespace specdec
