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

void DraftModelDrafter::reset() {
  cached_.clear();
  pending_.clear();
}

void DraftModelDrafter::commit_accepted() {
  if (pending_.empty()) {
    return;
  }
  std::vector<int64_t> path;
  const bool continues = committed_.size() > cached_.size() &&
                         std::equal(cached_.begin(), cached_.end(), committed_.begin());
  int64_t parent = -1;
  for (size_t node = 0; continues && node < pending_.size(); ++node) {
    const size_t next = cached_.size() + path.size();
    if (next < committed_.size() && pending_[node].parent == parent &&
        pending_[node].token == committed_[next]) {
      parent = static_cast<int64_t>(node);
      path.push_back(parent);
    }
  }
  model_->commit(path);
  for (const int64_t node : path) {
    cached_.push_back(pending_[static_cast<size_t>(node)].token);
  }
  pending_.clear();
}

Tensor DraftModelDrafter::catch_up() {
  commit_accepted();
  const auto [mine, theirs] =
      std::mismatch(cached_.begin(), cached_.end(), committed_.begin(), committed_.end());
  // The newest token is fed in any case: its logits are what the draft begins with.
  const size_t common =
      std::min(static_cast<size_t>(mine - cached_.begin()), committed_.size() - 1);
  cached_.assign(committed_.begin(), committed_.end());
  if (common == 0) {
    return model_->prefill_get_last_logits(committed_).unsqueeze(0);
  }
  model_->truncate(static_cast<int64_t>(common));
  return model_->extend_get_last_logits(committed_.subspan(common)).unsqueeze(0);
}

Tensor DraftModelDrafter::expand(const Draft& partial, std::span<const int64_t> frontier) {
  pending_of_node_.resize(partial.tokens.size(), -1);
  if (frontier.size() == 1 && frontier.front() == 0) {
    return catch_up();
  }
  TokenBatch batch{.tokens = at::empty({static_cast<int64_t>(frontier.size())}, at::kInt)};
  auto* tokens = batch.tokens.data_ptr<Token>();
  for (const int64_t node : frontier) {
    const auto index = static_cast<size_t>(node);
    const int64_t parent = pending_of_node_[static_cast<size_t>(partial.parents[index])];
    pending_of_node_[index] = static_cast<int64_t>(pending_.size());
    pending_.push_back({partial.tokens[index], parent});
    batch.parents.push_back(parent);
    *tokens++ = partial.tokens[index];
  }
  return model_->forward(batch).logits;
}

Draft DraftModelDrafter::propose(const DraftContext& context) {
  DraftContext own = context;
  // All but the deepest nodes are fed, and have to fit the draft model.
  const int64_t room = model_->max_length() - static_cast<int64_t>(context.committed.size()) + 1;
  own.max_tokens = std::min(context.max_tokens, room);
  own.max_depth = std::min(context.max_depth, room);
  if (own.max_tokens < 1) {
    return Draft::root(context.committed.back());
  }
  committed_ = context.committed;
  pending_of_node_.clear();
  const bool draws = options_.sample.value_or(context.shape.allows_drawn());
  return context.shape.grow(own, *this, draws ? Siblings::kDrawn : Siblings::kBest);
}

}  // namespace specdec
