#include "decoders/drafters/drafter_group.h"

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

/// A context as one member sees it.
class MemberContext {
 public:
  MemberContext(const DraftContext& context, const std::vector<size_t>& layers)
      : context_(context) {
    if (context.last_step != nullptr && !context.last_step->result.captured.empty()) {
      last_step_ = *context.last_step;
      last_step_->result = with_layers(std::move(last_step_->result), layers);
      context_.last_step = &*last_step_;
    }
    if (context.prompt_result != nullptr && !context.prompt_result->captured.empty()) {
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

template <class Says>
bool any_of(const std::vector<std::unique_ptr<Drafter>>& drafters, const Says& says) {
  return std::any_of(drafters.begin(), drafters.end(),
                     [&](const std::unique_ptr<Drafter>& drafter) { return says(*drafter); });
}

}  // namespace

DrafterGroup::DrafterGroup(std::vector<std::unique_ptr<Drafter>> members)
    : members_(std::move(members)) {
  require_config(!members_.empty(), "a choice among drafters needs at least one drafter");
  needs_.prompt_states = any_of(members_, [](const Drafter& drafter) {
    return drafter.needs().internals && drafter.needs().prompt_states;
  });
  for (const auto& member : members_) {
    add_needs(member->needs());
  }
}

void DrafterGroup::add_needs(const Needs& needs) {
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

void DrafterGroup::check(const LanguageModel& target) const {
  for (const auto& member : members_) {
    member->check(target);
  }
}

void DrafterGroup::reset() {
  for (const auto& member : members_) {
    member->reset();
  }
}

void DrafterGroup::forget() {
  for (const auto& member : members_) {
    member->forget();
  }
}

bool DrafterGroup::reads_rejected() const {
  return any_of(members_, [](const Drafter& drafter) { return drafter.reads_rejected(); });
}

bool DrafterGroup::draws() const {
  return any_of(members_, [](const Drafter& drafter) { return drafter.draws(); });
}

void DrafterGroup::skip(const DraftContext& context) {
  for (size_t member = 0; member < members_.size(); ++member) {
    skip_by(member, context);
  }
}

Draft DrafterGroup::propose_by(size_t member, const DraftContext& context) {
  for (size_t other = 0; other < members_.size(); ++other) {
    if (other != member) {
      skip_by(other, context);
    }
  }
  return ask(member, context);
}

Draft DrafterGroup::ask(size_t member, const DraftContext& context) {
  SPECDEC_CHECK(member < members_.size(), "drafter {} of {} is asked", member, members_.size());
  return members_[member]->propose(MemberContext(context, layers_of_[member]).get());
}

void DrafterGroup::skip_by(size_t member, const DraftContext& context) {
  MemberContext own(context, layers_of_[member]);
  own.get().max_tokens = 0;
  members_[member]->skip(own.get());
}

}  // namespace specdec
