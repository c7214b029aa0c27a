#include "decoders/drafters/lookahead.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace specdec {
namespace {

/// Most nodes that a window has while it fills up and afterwards.
int64_t most_window_tokens(int64_t window, int64_t ngram) {
  int64_t most = 0;
  for (int64_t filled = 0; filled <= ngram - 2; ++filled) {
    const int64_t columns = window + ngram - 2 - filled;
    most = std::max(most, columns - 1 + filled * columns);
  }
  return most;
}

/// The child of `parent` that is `token`, added when it is not there.
int64_t child_of(Draft& draft, int64_t parent, Token token) {
  for (const int64_t child : draft.children(parent)) {
    if (draft.tokens[static_cast<size_t>(child)] == token) {
      return child;
    }
  }
  return draft.add(token, parent);
}

}  // namespace

void NgramPool::add(Token first, std::vector<Token> rest) {
  auto& ngrams = ngrams_[first];
  std::erase(ngrams, rest);
  ngrams.push_back(std::move(rest));
  if (ngrams.size() > most_) {
    ngrams.erase(ngrams.begin());
  }
}

const std::vector<std::vector<Token>>& NgramPool::after(Token first) const {
  static const std::vector<std::vector<Token>> kNone;
  const auto entry = ngrams_.find(first);
  return entry == ngrams_.end() ? kNone : entry->second;
}

LookaheadDrafter::LookaheadDrafter(const LookaheadOptions& options)
    : options_(options), pool_(std::max<int64_t>(1, options.guesses)) {
  if (options.window < 1 || options.ngram < 2 || options.guesses < 1) {
    throw ConfigError(fmt::format(
        "lookahead needs window and guesses of at least 1 and ngram of at least 2, not {}, {} "
        "and {}",
        options.window, options.guesses, options.ngram));
  }
}

void LookaheadDrafter::reset() {
  pool_.clear();
  levels_.clear();
  begun_ = false;
  drafted_ = {};
  ends_.clear();
  committed_taken_ = 0;
}

void LookaheadDrafter::skip(const DraftContext& context) {
  take_results(context.last_step);
  drafted_ = {};
  ends_.clear();
}

int64_t LookaheadDrafter::window_tokens() const {
  int64_t sum = 0;
  for (const std::vector<Token>& level : levels_) {
    sum += static_cast<int64_t>(level.size());
  }
  return sum;
}

void LookaheadDrafter::begin_window(const DraftContext& context) {
  begun_ = true;
  // Guesses get what they need, but no more than half.
  const int64_t for_guesses =
      std::min(options_.guesses * (options_.ngram - 1), context.max_tokens / 2);
  int64_t window = std::min(options_.window, context.max_depth - options_.ngram + 3);
  while (window > 0 &&
         most_window_tokens(window, options_.ngram) + for_guesses > context.max_tokens) {
    --window;
  }
  if (window < 1) {
    return;
  }
  const auto size = static_cast<size_t>(window + options_.ngram - 3);
  std::vector<Token> first;
  while (first.size() < size) {
    const size_t missing = std::min(size - first.size(), context.committed.size());
    const TokenSpan newest = context.committed.last(missing);
    first.insert(first.end(), newest.begin(), newest.end());
  }
  levels_.push_back(std::move(first));
}

void LookaheadDrafter::add_iteration(Token root, std::vector<Token> newest) {
  levels_.push_back(std::move(newest));
  if (static_cast<int64_t>(levels_.size()) < options_.ngram) {
    for (std::vector<Token>& level : levels_) {  // still filling up: one column less
      level.erase(level.begin());
    }
    return;
  }
  for (size_t column = 0; column < levels_.back().size(); ++column) {
    std::vector<Token> rest;
    for (size_t level = 1; level < levels_.size(); ++level) {
      rest.push_back(levels_[level][column]);
    }
    pool_.add(column == 0 ? root : levels_.front()[column - 1], std::move(rest));
  }
  levels_.erase(levels_.begin());
  levels_.front().erase(levels_.front().begin());
}

void LookaheadDrafter::take_results(const StepResult* step) {
  const bool mine = step != nullptr && !ends_.empty() && step->draft.tokens == drafted_.tokens &&
                    step->draft.parents == drafted_.parents;
  if (!mine) {
    return;
  }
  const Tensor logits = step->result.logits;
  const Tensor ends = at::tensor(ends_, at::kLong).to(logits.device());
  const Tensor best = logits.index_select(0, ends).argmax(1).cpu();
  const auto* tokens = best.const_data_ptr<int64_t>();
  add_iteration(step->draft.tokens.front(), {tokens, tokens + best.numel()});
}

void LookaheadDrafter::take_committed(TokenSpan committed) {
  const auto size = static_cast<int64_t>(committed.size());
  for (int64_t end = std::max(committed_taken_, options_.ngram); end <= size; ++end) {
    const TokenSpan ngram = committed.subspan(static_cast<size_t>(end - options_.ngram))
                                .first(static_cast<size_t>(options_.ngram));
    pool_.add(ngram.front(), {ngram.begin() + 1, ngram.end()});
    committed_taken_ = end + 1;
  }
}

void LookaheadDrafter::add_guesses(Draft& draft, const DraftContext& context,
                                   int64_t max_tokens) const {
  const auto& guesses = pool_.after(context.committed.back());
  for (auto guess = guesses.rbegin(); guess != guesses.rend(); ++guess) {  // the newest first
    int64_t node = 0;
    for (size_t i = 0; i < guess->size() && static_cast<int64_t>(i) < context.max_depth; ++i) {
      const std::vector<int64_t> children = draft.children(node);
      const bool known = std::any_of(children.begin(), children.end(), [&](int64_t child) {
        return draft.tokens[static_cast<size_t>(child)] == (*guess)[i];
      });
      const auto branches = static_cast<int64_t>(children.size());
      if (!known && (draft.proposed() >= max_tokens ||
                     branches >= context.max_branches - options_.window_branches())) {
        break;
      }
      node = child_of(draft, node, (*guess)[i]);
    }
  }
}

void LookaheadDrafter::add_window(Draft& draft) {
  int64_t column_root = 0;
  for (size_t column = 0; column <= levels_.front().size(); ++column) {
    if (column > 0) {
      column_root = child_of(draft, column_root, levels_.front()[column - 1]);
    }
    int64_t node = column_root;
    for (size_t level = 1; level < levels_.size(); ++level) {
      node = child_of(draft, node, levels_[level][column]);
    }
    ends_.push_back(node);
  }
}

Draft LookaheadDrafter::propose(const DraftContext& context) {
  if (!context.shape.branches()) {
    throw ConfigError(
        fmt::format("lookahead drafts a window beside its guesses: it needs a tree that allows at "
                    "least {} branches (tree: {{type: ...}}), not a chain",
                    options_.least_branches()));
  }
  if (context.max_branches < options_.least_branches()) {
    skip(context);
    return Draft::root(context.committed.back());
  }
  take_results(context.last_step);
  ends_.clear();
  if (!begun_) {
    begin_window(context);
  }
  if (options_.pool_from_prompt) {
    take_committed(context.committed);
  }
  const int64_t deepest =
      levels_.empty() ? 0 : columns() + static_cast<int64_t>(levels_.size()) - 2;
  const bool fits =
      !levels_.empty() && window_tokens() <= context.max_tokens && deepest <= context.max_depth;
  drafted_ = Draft::root(context.committed.back());
  add_guesses(drafted_, context, context.max_tokens - (fits ? window_tokens() : 0));
  if (fits) {
    add_window(drafted_);
  }
  return drafted_;
}

}  // namespace specdec
