#pragma once
#include "decoders/drafters/forwarding_drafter.h"

namespace specdec {

/// Another drafter, which rests for some steps after each draft of which nothing was accepted.
class PatientDrafter final : public ForwardingDrafter {
 public:
  PatientDrafter(std::unique_ptr<Drafter> inner, int64_t rest)
      : ForwardingDrafter(std::move(inner)), rest_(rest) {}

 private:
  void reset() override {
    left_ = 0;
    ForwardingDrafter::reset();
  }
  Draft propose(const DraftContext& context) override {
    const StepResult* last = context.last_step;
    if (last != nullptr && last->draft.proposed() > 0 && last->verified.path.size() == 1) {
      left_ = rest_;
    }
    if (left_ == 0) {
      return inner().propose(context);
    }
    --left_;
    inner().skip(context);
    return Draft::root(context.committed.back());
  }

  int64_t rest_;
  int64_t left_ = 0;  ///< steps
};

}  // namespace specdec
