#include "decoders/drafters/draft_model.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "core/error.h"
#include "core/stopwatch.h"

namespace specdec {
namespace {

/// Tokens of the text that a drawn draft feeds together with the newest one; more are read before.
constexpr int64_t kMostFed = 32;

}  // namespace

DraftModelDrafter::DraftModelDrafter(std::unique_ptr<LanguageModel> model,
                                     const DraftModelOptions& options)
    : DistributionDrafter(options.sample),
      model_(std::move(model)),
      vocab_size_(options.vocab_size > 0 ? options.vocab_size : model_->vocab_size()),
      own_cache_(options.own_cache) {}

template <class F>
auto DraftModelDrafter::of_cache(const F& f) {
  try {
    return f();
  } catch (const Error& error) {
    if (own_cache_.empty()) {
      throw;
    }
    throw Error(fmt::format("drafter draft_model, whose cache is its own ({}, not model.cache): {}",
                            own_cache_, error.what()));
  }
}

void DraftModelDrafter::check(const LanguageModel& target) const {
  if (vocab_size_ != target.vocab_size()) {
    throw ConfigError(fmt::format(
        "the draft model has a vocabulary of {} tokens and the target one of {}: a drafted token "
        "would not mean the same to both. Choose a draft model that was trained with the target's "
        "tokenizer",
        vocab_size_, target.vocab_size()));
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

void DraftModelDrafter::keep_common() {
  commit_accepted();
  const auto [mine, theirs] =
      std::mismatch(cached_.begin(), cached_.end(), committed_.begin(), committed_.end());
  // The newest token is always fed: the draft starts from its logits.
  const int64_t common =
      model_->rewindable_to(std::min<int64_t>(mine - cached_.begin(), std::ssize(committed_) - 1));
  cached_.resize(static_cast<size_t>(common));
  if (common > 0) {
    model_->truncate(common);
  }
}

Tensor DraftModelDrafter::catch_up() {
  keep_common();
  return read(std::ssize(committed_), Logits::kLast);
}

Tensor DraftModelDrafter::read(int64_t end, Logits scored) {
  const TokenSpan text = committed_.first(static_cast<size_t>(end));
  const size_t known = cached_.size();
  cached_.assign(text.begin(), text.end());
  if (known == 0) {
    return read_prompt(text, scored);
  }
  return of_cache(
      [&] { return counted(model_->extend(text.subspan(known), {.logits = scored})).logits; });
}

Tensor DraftModelDrafter::read_prompt(TokenSpan text, Logits scored) {
  const ScopedSeconds timer(prompt_seconds_);
  return of_cache([&] { return counted(model_->prefill(text, {.logits = scored})).logits; });
}

Tensor DraftModelDrafter::expand(const Draft& partial, std::span<const int64_t> frontier) {
  if (frontier.size() == 1 && frontier.front() == 0) {
    return fitted(catch_up());
  }
  return fitted(evaluate(partial, frontier, {}, {}).logits);
}

ForwardResult DraftModelDrafter::evaluate(const Draft& partial, std::span<const int64_t> frontier,
                                          const Tensor& tokens, const ForwardOptions& options) {
  const TokenBatch batch = nodes_.batch(partial, frontier, std::ssize(pending_), tokens);
  for (size_t i = 0; i < frontier.size(); ++i) {
    pending_.push_back(
        {partial.tokens[static_cast<size_t>(frontier[i])], batch.parents[i], frontier[i]});
  }
  return of_cache([&] { return counted(model_->forward(batch, options)); });
}

bool DraftModelDrafter::expands_on_device() {
  return model_->draws_drafts() && vocab_size_ == model_->vocab_size() &&
         committed_.size() > 1;  // one token alone has nothing before it to be kept
}

TokenSpan DraftModelDrafter::begin_on_device() {
  keep_common();
  const auto before = std::ssize(committed_) - 1;  // the newest token
  if (cached_.empty() || before - std::ssize(cached_) >= kMostFed) {
    read(before, Logits::kNone);
  }
  return committed_.subspan(cached_.size());
}

ForwardResult DraftModelDrafter::expand_on_device(const Draft& partial,
                                                  std::span<const int64_t> frontier,
                                                  const Tensor& tokens) {
  if (frontier.front() != 0) {
    return evaluate(partial, frontier, tokens, {.logits_use = LogitsUse::kSampler});
  }
  const TokenSpan fed = begin_on_device();
  cached_.assign(committed_.begin(), committed_.end());
  return of_cache([&] {
    return counted(
        model_->extend(fed, {.logits = Logits::kLast, .logits_use = LogitsUse::kSampler}));
  });
}

void DraftModelDrafter::see_tokens(const Draft& draft) {
  for (Pending& pending : pending_) {
    pending.token = draft.tokens[static_cast<size_t>(pending.node)];
  }
}

std::optional<DrawnChain> DraftModelDrafter::draw_chain(const ChainRequest& chain) {
  const TokenSpan fed = begin_on_device();
  std::optional<DrawnChain> drawn = of_cache([&] { return model_->draw_chain(fed, chain); });
  if (drawn) {
    std::vector<Token> evaluated(fed.begin(), fed.end());
    evaluated.insert(evaluated.end(), drawn->tokens.begin(), drawn->tokens.end() - 1);
    for (const Token token : evaluated) {
      pending_.push_back({token, std::ssize(pending_) - 1});
    }
  }
  return drawn;
}

std::optional<DrawnTree> DraftModelDrafter::draw_tree(const TreeRequest& tree) {
  const TokenSpan fed = begin_on_device();
  std::optional<DrawnTree> drawn = of_cache([&] { return model_->draw_tree(fed, tree); });
  if (!drawn) {
    return drawn;
  }
  for (const Token token : fed) {
    pending_.push_back({token, std::ssize(pending_) - 1});
  }
  const EvaluatedNodes evaluated = evaluated_nodes(tree.parents);
  const int64_t root = std::ssize(pending_) - 1;
  for (size_t place = 1; place < evaluated.nodes.size(); ++place) {
    const Token token = drawn->tokens[static_cast<size_t>(evaluated.nodes[place])];
    pending_.push_back({std::max(token, 0), root + evaluated.parents[place]});
  }
  return drawn;
}

Tensor DraftModelDrafter::fitted(const Tensor& logits) const {
  const int64_t missing = vocab_size_ - logits.size(1);
  return missing == 0
             ? logits
             : at::constant_pad_nd(logits, {0, missing}, -std::numeric_limits<double>::infinity());
}

std::optional<DraftRoom> DraftModelDrafter::begin_draft(const DraftContext& context) {
  const int64_t room = model_->max_length() - std::ssize(context.committed);
  if (room < 0) {
    return std::nullopt;
  }
  committed_ = context.committed;
  prompt_seconds_ = context.prompt_seconds;
  nodes_.begin(-1);
  return DraftRoom{.evaluated = room};
}

}  // namespace specdec
