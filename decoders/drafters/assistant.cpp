#include "decoders/drafters/assistant.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <utility>

#include "core/error.h"
#include "decoders/drafters/hidden_states.h"

namespace specdec {

AssistantDrafter::AssistantDrafter(LanguageModel& target, AssistantSteps steps,
                                   const AssistantDrafterOptions& options)
    : DistributionDrafter(options.sample), target_(target), steps_(std::move(steps)) {}

void AssistantDrafter::check(const LanguageModel& target) const {
  SPECDEC_CHECK(&target == &target_, "an assistant drafts for the target whose keys it reads");
  check_hidden_states(target, steps_.hidden_size, steps_.vocab_size);
}

AssistantSteps::Step AssistantDrafter::step(TokenSpan tokens, const Tensor& hidden) const {
  const Internals& target = *target_.internals();
  AssistantSteps::Step next = steps_.step(target.embed(token_tensor(tokens)), hidden, target);
  (void)counted({.read_backs = next.read_backs});
  return next;
}

TokenSpan AssistantDrafter::unseen() const {
  return committed_.subspan(static_cast<size_t>(target_.length()));
}

Tensor AssistantDrafter::begin() {
  Tensor hidden = last_hidden_;
  Tensor logits;
  for (const Token& token : unseen()) {
    AssistantSteps::Step next = step({&token, 1}, hidden);
    hidden = next.hidden;
    logits = next.logits;
  }
  hidden_.assign(1, hidden);
  return logits;
}

Tensor AssistantDrafter::expand(const Draft& partial, std::span<const int64_t> frontier) {
  if (frontier.size() == 1 && frontier.front() == 0) {
    return begin();
  }
  std::vector<Token> tokens;
  std::vector<Tensor> before;
  for (const int64_t node : frontier) {
    const auto index = static_cast<size_t>(node);
    tokens.push_back(partial.tokens[index]);
    before.push_back(hidden_[static_cast<size_t>(partial.parents[index])]);
  }
  const AssistantSteps::Step next = step(tokens, at::cat(before));
  hidden_.resize(partial.tokens.size());
  for (size_t i = 0; i < frontier.size(); ++i) {
    hidden_[static_cast<size_t>(frontier[i])] = next.hidden.narrow(0, static_cast<int64_t>(i), 1);
  }
  return next.logits;
}

std::optional<DrawnChain> AssistantDrafter::draw_chain(const ChainRequest& chain) {
  return steps_.draw_chain ? steps_.draw_chain(unseen(), last_hidden_, *target_.internals(), chain)
                           : std::nullopt;
}

std::optional<DraftRoom> AssistantDrafter::begin_draft(const DraftContext& context) {
  if (target_.length() == 0) {
    return std::nullopt;  // there is no key to read yet
  }
  const int64_t first = target_.length() - steps_.older_keys;
  if (first > 0 && target_.rewindable_to(first) != first) {
    throw Error(fmt::format(
        "the assistant reads {} keys behind the target's windows, and the target's cache cannot be "
        "cut back that far: raise window_slack to {} or more, or lower sliding_keys",
        steps_.older_keys, steps_.older_keys));
  }
  committed_ = context.committed;
  last_hidden_ = last_hidden_state(context);
  hidden_.clear();
  return DraftRoom{};
}

}  // namespace specdec
