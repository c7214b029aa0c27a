#pragma once
#include <cstddef>
#include <memory>
#include <vector>

#include "decoders/drafter.h"

namespace specdec {

/// Drafters of which one proposes at a time: a base for drafters that choose among several, by a
/// bandit's rule, by the text or in turn. What derives from it implements `propose`.
///
/// What any member needs of the target is captured once, and each sees its own layers in its own
/// order. In every step each member is asked for a draft or told to skip, so that all see the
/// features of all committed tokens, whoever drafted them: a member that was not asked for some
/// steps drafts what it would draft had it been asked in each of them. The last step's draft may be
/// another member's.
class DrafterGroup : public Drafter {
 public:
  Needs needs() const override { return needs_; }
  void check(const LanguageModel& target) const override;
  void reset() override;
  void forget() override;
  void skip(const DraftContext& context) override;
  bool reads_rejected() const override;
  bool draws() const override;

 protected:
  /// Throws ConfigError when there is no member.
  explicit DrafterGroup(std::vector<std::unique_ptr<Drafter>> members);

  size_t members() const { return members_.size(); }
  /// One member proposes; the others are told to skip the step.
  Draft propose_by(size_t member, const DraftContext& context);

  // For who may ask several members in a step: each member is asked or told to skip, once.

  Draft ask(size_t member, const DraftContext& context);
  void skip_by(size_t member, const DraftContext& context);

 private:
  void add_needs(const Needs& needs);

  std::vector<std::unique_ptr<Drafter>> members_;
  Needs needs_;                                 // of all members together
  std::vector<std::vector<size_t>> layers_of_;  // [member][i]: where its layer i is captured
};

}  // namespace specdec
