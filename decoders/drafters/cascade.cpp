#include "decoders/drafters/cascade.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/error.h"

namespace specdec {
namespace {

ForwardResult with_layers(ForwardResult result, const std::vector<size_t>& layers) {
  std::vector<Tensor> captured;
  for (const size_t layer : layers) {
    captured.push_back(result.captured.at(layer));
  }
  result.captured = std::move(captured);
  return result;
}

bool is_drawn(const Draft& draft) {
  return std::any_of(draft.child_probs.begin(), draft.child_probs.end(),
                     [](int64_t row) { return row >= 0; });
}

/// A context as one member sees it.
class MemberContext {
 public:
  MemberContext(const DraftContext& context, const std::vector<size_t>& layers)
      : context_(context) {
    if (layers.empty()) {
      return;
    }
    if (context.last_step != nullptr) {
      last_step_ = *context.last_step;
      last_step_->result = with_layers(std::move(last_step_->result), layers);
      context_.last_step = &*last_step_;
    }
    if (context.prompt_result != nullptr) {
      prompt_result_ = with_layers(*context.prompt_result, layers);
      context_.prompt_result = &*prompt_result_;
    }
  }

  DraftContext& get() { return context_; }

 private:
  std::optional<StepResult> last_step_;
  std::optional<ForwardResult> prompt_result_;
  DraftContext context_;
};

}  // namespace

CascadeDrafter::CascadeDrafter(std::vector<CascadeMember> members) : members_(std::move(members)) {
  if (members_.empty()) {
    throw ConfigError("cascade needs at least one drafter");
  }
  for (const CascadeMember& member : members_) {
    if (member.min_tokens < 1 || (member.min_tokens > 1 && member.drafter->draws())) {
      throw ConfigError(fmt::format(
          "cascade: min_tokens is {}; it must be at least 1, and 1 for a drafter that draws its "
          "tokens at random, since dropping a draft that was drawn changes the output's "
          "distribution (let "
          "it take its best tokens: sample: false)",
          member.min_tokens));
    }
    if (member.max_tokens < member.min_tokens) {
      throw ConfigError(fmt::format("cascade: max_tokens is {}, fewer than min_tokens ({})",
                                    member.max_tokens, member.min_tokens));
    }
    const Needs needs = member.drafter->needs();
    needs_.internals = needs_.internals || needs.internals;
    needs_.logits = needs_.logits || needs.logits;
    std::vector<size_t> places;
    for (const int64_t layer : needs.capture_layers) {
      auto& all = needs_.capture_layers;
      const auto found = std::find(all.begin(), all.end(), layer);
      places.push_back(static_cast<size_t>(found - all.begin()));
      if (found == all.end()) {
        all.push_back(layer);
      }
    }
    layers_of_.push_back(std::move(places));
  }
}

void CascadeDrafter::check(const LanguageModel& target) const {
  for (const CascadeMember& member : members_) {
    member.drafter->check(target);
  }
}

void CascadeDrafter::reset() {
  for (const CascadeMember& member : members_) {
    member.drafter->reset();
  }
}

void CascadeDrafter::forget() {
  for (const CascadeMember& member : members_) {
    member.drafter->forget();
  }
}

bool CascadeDrafter::reads_rejected() const {
  return std::any_of(members_.begin(), members_.end(),
                     [](const CascadeMember& member) { return member.drafter->reads_rejected(); });
}

bool CascadeDrafter::draws() const {
  return std::any_of(members_.begin(), members_.end(),
                     [](const CascadeMember& member) { return member.drafter->draws(); });
}

void CascadeDrafter::skip(const DraftContext& context) {
  for (size_t i = 0; i < members_.size(); ++i) {
    members_[i].drafter->skip(MemberContext(context, layers_of_[i]).get());
  }
}

Draft CascadeDrafter::propose(const DraftContext& context) {
  Draft draft = Draft::root(context.committed.back());
  bool found = false;
  for (size_t i = 0; i < members_.size(); ++i) {
    MemberContext own(context, layers_of_[i]);
    if (found) {
      own.get().max_tokens = 0;
      members_[i].drafter->skip(own.get());
      continue;
    }
    const int64_t allowed = std::min(context.max_tokens, members_[i].max_tokens);
    own.get().max_tokens = allowed;
    own.get().max_depth = std::min(context.max_depth, allowed);  // nothing deeper would be kept
    Draft proposed = members_[i].drafter->propose(own.get());
    // A step that allows few tokens still lets the first member have its turn. A drafter that draws
    // only where the shape allows it cannot say so in advance.
    const int64_t enough = std::max<int64_t>(1, std::min(members_[i].min_tokens, allowed));
    if (proposed.proposed() >= enough || is_drawn(proposed)) {
      draft = std::move(proposed);
      found = true;
    }
  }
  return draft;
}

}  // namespace specdec
