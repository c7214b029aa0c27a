#include "decoders/drafters/draft_model.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace specdec {

DraftModelDrafter::DraftModelDrafter(std::unique_ptr<LanguageModel> model,
                                     const DraftModelOptions& options)
    : model_(std::move(model)), options_(options) {}

void DraftModelDrafter::check(const LanguageModel& target) const {
  if (model_->vocab_size() != target.vocab_size()) {
    throw ConfigError(fmt::format(
        "the draft model has a vocabulary of {} tokens and the target one of {}: a drafted token "
        "would not mean the same to both. Choose a draft model that was trained with the target's "
        "tokenizer",
        model_->vocab_size(), target.vocab_size()));
  }
}

void DraftModelDrafter::reset() { cached_.clear(); }

Tensor DraftModelDrafter::catch_up(TokenSpan committed) {
  const auto [mine, theirs] =
      std::mismatch(cached_.begin(), cached_.end(), committed.begin(), committed.end());
  // The newest token is fed in any case: its logits are what the draft begins with.
  const size_t common = std::min(static_cast<size_t>(mine - cached_.begin()), committed.size() - 1);
  cached_.assign(committed.begin(), committed.end());
  if (common == 0) {
    return model_->prefill_get_last_logits(committed);
  }
  model_->truncate(static_cast<int64_t>(common));
  return model_->extend_get_last_logits(committed.subspan(common));
}

void DraftModelDrafter::add_token(const DraftContext& context, const Tensor& logits, bool draws,
                                  Draft& draft) {
  const int64_t last = draft.size() - 1;
  if (!draws) {
    draft.add(greedy_choice(logits, cached_, context.sampling).token, last);
    return;
  }
  auto* row = draft.probs.data_ptr<double>() + last * model_->vocab_size();
  const std::span<double> law(row, static_cast<size_t>(model_->vocab_size()));
  target_law(logits, cached_, context.sampling, law);
  draft.law[static_cast<size_t>(last)] = last;
  draft.add(static_cast<Token>(context.random.draw(law)), last);
}

Draft DraftModelDrafter::propose(const DraftContext& context) {
  Draft draft = Draft::root(context.committed.back());
  // All but the last drafted token are fed, so this many fit the draft model.
  const int64_t room = model_->max_length() - static_cast<int64_t>(context.committed.size()) + 1;
  const int64_t length = std::min(context.max_tokens, room);
  if (length < 1) {
    return draft;
  }
  const bool draws = options_.sample && !context.sampling.greedy();
  if (draws) {
    draft.probs = at::empty({length, model_->vocab_size()}, at::kDouble);
  }
  Tensor logits = catch_up(context.committed);
  add_token(context, logits, draws, draft);
  while (draft.proposed() < length) {
    const TokenSpan newest = TokenSpan(draft.tokens).last(1);
    logits = model_->extend_get_last_logits(newest);
    cached_.push_back(newest.front());
    add_token(context, logits, draws, draft);
  }
  return draft;
}

}  // namespace specdec
