#include "tests/support/test_drafters.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace specdec {

TreeDrafter::TreeDrafter(LogitTable table, const TreeDrafterOptions& options)
    : table_(std::move(table)), options_(options) {}

Draft TreeDrafter::propose(const DraftContext& context) {
  Draft draft = Draft::root(context.committed.back());
  const bool draws = options_.sample && !context.sampling.greedy();
  for (int64_t node = 0; node < draft.size() && draft.proposed() < context.max_tokens; ++node) {
    if (draft.depths()[static_cast<size_t>(node)] >= context.max_depth) {
      break;
    }
    const std::vector<Token> history = draft.history(context.committed, node);
    const std::vector<double> logits = table_(history);
    SamplingParams sampling = context.sampling;
    sampling.temperature = sampling.greedy() ? 1.0 : sampling.temperature;
    std::vector<double> left(logits.size());
    target_distribution(std::span<const double>(logits), history, sampling, left);
    if (draws) {
      draft.child_probs[static_cast<size_t>(node)] = std::ssize(draft.probs);
      draft.probs.emplace_back(left);
    }
    for (int64_t i = 0; i < options_.branches && draft.proposed() < context.max_tokens; ++i) {
      if (*std::max_element(left.begin(), left.end()) == 0.0) {
        break;
      }
      const int64_t token = draws ? context.random.draw(left) : argmax(left);
      left[static_cast<size_t>(token)] = 0.0;
      draft.add(static_cast<Token>(token), node);
    }
  }
  return draft;
}

Draft MixedChainDrafter::propose(const DraftContext& context) {
  Draft draft = Draft::root(context.committed.back());
  for (int64_t node = 0; node < std::min(context.max_tokens, context.max_depth); ++node) {
    const std::vector<Token> history = draft.history(context.committed, node);
    const std::vector<double> logits = table_(history);
    std::vector<double> weights(logits.size());
    target_distribution(std::span<const double>(logits), history, context.sampling, weights);
    const bool draws = node % 2 == 0 && !context.sampling.greedy();
    if (draws) {
      draft.child_probs[static_cast<size_t>(node)] = std::ssize(draft.probs);
      draft.probs.emplace_back(weights);
    }
    const int64_t token = draws ? context.random.draw(weights) : argmax(weights);
    draft.add(static_cast<Token>(token), node);
    if (token == 0) {
      break;
    }
  }
  return draft;
}

ScriptedDrafter::ScriptedDrafter(Script script, std::vector<Shown>* shown, Needs needs)
    : script_(std::move(script)), shown_(shown), needs_(std::move(needs)) {}

Draft ScriptedDrafter::propose(const DraftContext& context) {
  if (shown_ != nullptr) {
    Shown shown;
    shown.committed.assign(context.committed.begin(), context.committed.end());
    shown.max_tokens = context.max_tokens;
    shown.had_last_step = context.last_step != nullptr;
    shown.had_prompt_result = context.prompt_result != nullptr;
    if (shown.had_last_step) {
      shown.last_step = *context.last_step;
    }
    if (shown.had_prompt_result) {
      shown.prompt_result = *context.prompt_result;
    }
    shown_->push_back(std::move(shown));
  }
  Draft draft = Draft::root(context.committed.back());
  for (const Token token : script_(context.committed)) {
    if (draft.proposed() < context.max_tokens) {
      draft.add(token, draft.size() - 1);
    }
  }
  return draft;
}

void FakeBlock::keep(TokenSpan committed, const Tensor& features) {
  SPECDEC_CHECK(length_ + features.size(0) + 1 == std::ssize(committed),
                "{} features beside {} of {} tokens", features.size(0), length_, committed.size());
  for (int64_t i = 0; i < features.size(0); ++i) {
    const TokenSpan history = committed.first(static_cast<size_t>(++length_));
    const Tensor wanted = at::tensor(FakeModel::hidden_state(history, kLayer), at::kDouble);
    SPECDEC_CHECK(at::equal(features[i], wanted), "features of another text at {}", length_ - 1);
  }
}

void FakeBlock::evaluate(Token newest, int64_t wanted) {
  SPECDEC_CHECK(length_ > 0 && wanted > 0 && wanted <= depth(), "{} drafts after {} tokens", wanted,
                length_);
  newest_ = newest;
  wanted_ = wanted;
}

Tensor FakeBlock::logits(const Draft& partial, std::span<const int64_t> nodes) {
  const std::vector<int64_t> depths = partial.depths();
  std::vector<Tensor> rows;
  for (const int64_t node : nodes) {
    const int64_t depth = depths[static_cast<size_t>(node)];
    SPECDEC_CHECK(partial.tokens.front() == newest_ && depth < wanted_, "slot {} of {}", depth,
                  wanted_);
    const std::vector<Token> slot = {newest_, static_cast<Token>(depth % vocab_)};
    rows.push_back(at::tensor(table_(slot), at::kDouble));
  }
  return at::stack(rows);
}

}  // namespace specdec
