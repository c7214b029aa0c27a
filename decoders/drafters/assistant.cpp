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

TokenSpan AssistantDrafter::unseen() const {
  return committed_.subspan(static_cast<size_t>(target_.length()));
}

AssistantSteps::Step AssistantDrafter::follow(const StepFunction& step, TokenSpan tokens) {
  const Internals& target = *target_.internals();
  AssistantSteps::Step next{.logits = {}, .hidden = last_hidden_};
  for (const Token& token : tokens) {
    next = step(target.embed(token_tensor({&token, 1})), next.hidden, target);
    (void)counted({.read_backs = next.read_backs});
  }
  return next;
}

AssistantSteps::Step AssistantDrafter::evaluate(const StepFunction& step, const Draft& partial,
                                                std::span<const int64_t> frontier,
                                                const Tensor& tokens) {
  if (frontier.size() == 1 && frontier.front() == 0) {
    AssistantSteps::Step root = follow(step, unseen());
    hidden_.assign(1, root.hidden);
    return root;
  }
  const Internals& target = *target_.internals();
  std::vector<Token> drafted;
  std::vector<Tensor> before;
  for (const int64_t node : frontier) {
    const auto index = static_cast<size_t>(node);
    drafted.push_back(partial.tokens[index]);
    before.push_back(hidden_[static_cast<size_t>(partial.parents[index])]);
  }
  AssistantSteps::Step next = step(target.embed(tokens.defined() ? tokens : token_tensor(drafted)),
                                   at::cat(before), target);
  (void)counted({.read_backs = next.read_backs});
  hidden_.resize(partial.tokens.size());
  for (size_t i = 0; i < frontier.size(); ++i) {
    hidden_[static_cast<size_t>(frontier[i])] = next.hidden.narrow(0, static_cast<int64_t>(i), 1);
  }
  return next;
}

Tensor AssistantDrafter::expand(const Draft& partial, std::span<const int64_t> frontier) {
  return evaluate(steps_.step, partial, frontier, {}).logits;
}

ForwardResult AssistantDrafter::expand_on_device(const Draft& partial,
                                                 std::span<const int64_t> frontier,
                                                 const Tensor& tokens) {
  AssistantSteps::Step next = evaluate(steps_.device_step, partial, frontier, tokens);
  return {.logits = next.logits, .sampler = next.sampler};
}

std::optional<DrawnChain> AssistantDrafter::draw_chain(const ChainRequest& chain) {
  if (!steps_.draw_chain) {
    return std::nullopt;
  }
  return steps_.draw_chain(chain, committed_.back(), hidden_before_newest(), *target_.internals());
}

std::optional<DrawnTree> AssistantDrafter::draw_tree(const TreeRequest& tree) {
  if (!steps_.draw_tree) {
    return std::nullopt;
  }
  return steps_.draw_tree(tree, committed_.back(), hidden_before_newest(), *target_.internals());
}

Tensor AssistantDrafter::hidden_before_newest() {
  const TokenSpan tokens = unseen();
  return follow(steps_.device_step, tokens.first(tokens.size() - 1)).hidden;
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
