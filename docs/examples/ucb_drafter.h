#pragma once
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "decoders/drafters/drafter_group.h"

namespace specdec {

/// Lets the drafter propose that promises the most accepted tokens, by the upper confidence bounds
/// of a bandit (UCB1: Auer et al., 2002, doi:10.1023/A:1013689704352). Each request begins anew.
class UcbDrafter final : public DrafterGroup {
 public:
  /// `exploration`: accepted tokens that a drafter of which little is known may be better by.
  UcbDrafter(std::vector<std::unique_ptr<Drafter>> drafters, double exploration)
      : DrafterGroup(std::move(drafters)), exploration_(exploration) {}

 private:
  struct Arm {
    double drafts = 0.0;
    double accepted = 0.0;  // tokens
  };

  void reset() override {
    DrafterGroup::reset();
    arms_.assign(members(), {});
    drafted_.reset();
  }
  void skip(const DraftContext& context) override {
    learn(context.last_step);
    DrafterGroup::skip(context);
  }
  Draft propose(const DraftContext& context) override {
    learn(context.last_step);
    chosen_ = best();
    drafted_ = propose_by(chosen_, context);
    return *drafted_;
  }

  /// Counts a draft of its own; what a grammar forced or changed is none.
  void learn(const StepResult* last) {
    if (last != nullptr && drafted_ && last->draft.tokens == drafted_->tokens) {
      arms_[chosen_].drafts += 1.0;
      arms_[chosen_].accepted += static_cast<double>(last->verified.path.size()) - 1.0;
    }
    drafted_.reset();
  }
  size_t best() const {
    double drafts = 0.0;
    for (const Arm& arm : arms_) {
      drafts += arm.drafts;
    }
    size_t best = 0;
    double highest = -1.0;
    for (size_t i = 0; i < arms_.size(); ++i) {
      const Arm& arm = arms_[i];
      const double bound = arm.drafts == 0.0
                               ? std::numeric_limits<double>::infinity()
                               : arm.accepted / arm.drafts +
                                     exploration_ * std::sqrt(2.0 * std::log(drafts) / arm.drafts);
      if (bound > highest) {
        highest = bound;
        best = i;
      }
    }
    return best;
  }

  double exploration_;
  std::vector<Arm> arms_;
  size_t chosen_ = 0;
  std::optional<Draft> drafted_;  // by the chosen one in the last step; none after a plain one
};

}  // namespace specdec
