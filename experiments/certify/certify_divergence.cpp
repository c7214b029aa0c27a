#include "experiments/certify/certify_divergence.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/error.h"
#include "decoders/draft_grammar.h"

namespace specdec {
namespace {

double float_ulp(double value) {
  const auto near = static_cast<float>(std::abs(value));
  return std::nextafter(near, std::numeric_limits<float>::infinity()) - near;
}

std::string token_text(Token token) { return token < 0 ? "ends" : fmt::format("takes {}", token); }

}  // namespace

Tensor PlainLogits::row(TokenSpan history) {
  const auto [mine, theirs] =
      std::mismatch(cached_.begin(), cached_.end(), history.begin(), history.end());
  const int64_t common =
      model_.rewindable_to(std::min<int64_t>(mine - cached_.begin(), std::ssize(history) - 1));
  Tensor logits;
  if (common == 0) {
    logits = model_.prefill_get_last_logits(history);
  } else {
    model_.truncate(common);
    for (auto i = static_cast<size_t>(common); i < history.size(); ++i) {
      logits = model_.extend_get_last_logits(history.subspan(i, 1));
    }
  }
  cached_.assign(history.begin(), history.end());
  return logits.cpu();
}

NextLogits PlainLogits::function() {
  return [this](TokenSpan history) {
    const Tensor logits = row(history).to(at::kDouble).contiguous();
    const auto* values = logits.const_data_ptr<double>();
    return std::vector<double>(values, values + logits.numel());
  };
}

ForwardResult WatchedModel::forward(const TokenBatch& batch, const ForwardOptions& options) {
  ForwardOptions own = options;
  own.logits_use = LogitsUse::kRows;  // which are read here
  ForwardResult result = model_.forward(batch, own);
  look(batch, own, result);
  return result;
}

/// Follows the new nodes; keeps the logits of the watched one.
void WatchedModel::look(const TokenBatch& batch, const ForwardOptions& options,
                        const ForwardResult& result) {
  const Tensor tokens = batch.tokens.defined()
                            ? batch.tokens.cpu()
                            : at::full({batch.inputs.embeddings.size(0)}, -1, at::kInt);
  const auto count = static_cast<size_t>(tokens.numel());
  const bool whole = result.logits.defined() && options.layers.empty();
  int64_t last_of_row = -1;
  for (size_t i = 0; i < count; ++i) {
    const RowId name = batch.rows.empty() ? 0 : batch.rows[i];
    const bool ends_row = i + 1 == count || (!batch.rows.empty() && batch.rows[i + 1] != name);
    last_of_row += ends_row ? 1 : 0;
    Row& row = rows_[name];
    const auto newest = static_cast<int64_t>(row.pending.size()) - 1;
    const int64_t parent = batch.parents.empty() ? newest : batch.parents[i];
    auto path = parent < 0 ? row.kept : row.pending[static_cast<size_t>(parent)];
    path.push_back(tokens.const_data_ptr<Token>()[i]);
    const bool has_logits = options.logits == Logits::kAll || ends_row;
    if (!sight_ && whole && has_logits && path == watched_) {
      const int64_t index = options.logits == Logits::kAll ? static_cast<int64_t>(i) : last_of_row;
      sight_ = {result.logits[index].cpu().clone(), static_cast<int64_t>(count)};
    }
    row.pending.push_back(std::move(path));
  }
}

void WatchedModel::commit(std::span<const int64_t> path, RowId row) {
  model_.commit(path, row);
  Row& mine = rows_[row];
  if (!path.empty() && static_cast<size_t>(path.back()) < mine.pending.size()) {
    mine.kept = mine.pending[static_cast<size_t>(path.back())];
  }
  mine.pending.clear();
}

void WatchedModel::truncate(int64_t length, RowId row) {
  model_.truncate(length, row);
  Row& mine = rows_[row];
  mine.kept.resize(std::min(mine.kept.size(), static_cast<size_t>(length)));
  mine.pending.clear();
}

RowId WatchedModel::fork(RowId row, int64_t length) {
  const RowId branch = model_.fork(row, length);
  const std::vector<Token>& kept = rows_[row].kept;
  const auto count = std::min(std::ssize(kept), static_cast<std::ptrdiff_t>(length));
  rows_[branch].kept.assign(kept.begin(), kept.begin() + count);
  return branch;
}

void WatchedModel::close(RowId row) {
  model_.close(row);
  rows_.erase(row);
}

std::string cause_name(DivergenceCause cause) {
  switch (cause) {
    case DivergenceCause::kNearTie:
      return "near_tie";
    case DivergenceCause::kOtherLogits:
      return "other_logits";
    case DivergenceCause::kNotItsBest:
      return "not_its_best";
    case DivergenceCause::kWrongEnd:
      return "wrong_end";
    case DivergenceCause::kNeverEvaluated:
      return "never_evaluated";
    case DivergenceCause::kNotRepeatable:
      return "not_repeatable";
  }
  return "";
}

DivergenceCause TokenDivergence::cause() const {
  if (token_plain < 0 || token_other < 0) {
    return DivergenceCause::kWrongEnd;
  }
  if (!repeated) {
    return DivergenceCause::kNotRepeatable;
  }
  if (width == 0) {
    return DivergenceCause::kNeverEvaluated;
  }
  if (!own_choice) {
    return DivergenceCause::kNotItsBest;
  }
  const bool near_tie = gap_plain <= kNearTieUlps * ulp && gap_other <= kNearTieUlps * ulp;
  return near_tie ? DivergenceCause::kNearTie : DivergenceCause::kOtherLogits;
}

namespace {

std::string explain_cause(const TokenDivergence& divergence) {
  switch (divergence.cause()) {
    case DivergenceCause::kNearTie:
      return fmt::format(
          "a near tie: both gaps are within {} ulp of float32 ({:.2g} each here), and the width of "
          "the forward decided it",
          kNearTieUlps, divergence.ulp);
    case DivergenceCause::kOtherLogits:
      return fmt::format(
          "no near tie ({} ulp of float32 are {:.2g} here): the two forwards see different things, "
          "so cache, positions or mask are wrong",
          kNearTieUlps, kNearTieUlps * divergence.ulp);
    case DivergenceCause::kNotItsBest:
      return "this is not the best token of its own forward: a mistake of the strategy, not of "
             "rounding";
    case DivergenceCause::kWrongEnd:
      return divergence.token_other < 0 ? "too early: a mistake of the strategy"
                                        : "it goes on after the end: a mistake of the strategy";
    case DivergenceCause::kNeverEvaluated:
      return "it never evaluated this place: a mistake of the strategy";
    case DivergenceCause::kNotRepeatable:
      return "built anew, on this prompt alone, it does not do so again: what it keeps between "
             "prompts, or what it measures, decides";
  }
  return "";
}

}  // namespace

std::string explain(const TokenDivergence& divergence) {
  auto text = fmt::format("after {} equal token{} plain decoding {}", divergence.position,
                          divergence.position == 1 ? "" : "s", token_text(divergence.token_plain));
  if (divergence.ulp > 0.0) {
    text +=
        fmt::format(" (best logit ahead by {:.3g} in a forward of 1 node)", divergence.gap_plain);
  }
  text += fmt::format(", the strategy {}", token_text(divergence.token_other));
  if (divergence.width > 0) {
    text += fmt::format(
        " (best logit ahead by {:.3g} in its forward of {} node{}; the two forwards' logits differ "
        "by {:.3g} at most)",
        divergence.gap_other, divergence.width, divergence.width == 1 ? "" : "s",
        divergence.logit_difference);
  }
  return text + "; " + explain_cause(divergence);
}

std::optional<int64_t> first_difference(TokenSpan plain, TokenSpan other) {
  const auto [mine, theirs] = std::mismatch(plain.begin(), plain.end(), other.begin(), other.end());
  if (mine == plain.end() && theirs == other.end()) {
    return std::nullopt;
  }
  return mine - plain.begin();
}

namespace {

/// The grammar's mask after `output`; empty without a grammar.
TokenMask mask_after(const Constraint& constraint, TokenSpan output) {
  if (constraint.grammar == nullptr) {
    return {};
  }
  GrammarMatcher place(constraint.grammar);
  for (const Token token : output) {
    (void)place.accept(token);
  }
  return place.mask();
}

}  // namespace

TokenDivergence describe_divergence(TokenSpan plain, TokenSpan other, int64_t position,
                                    const Tensor& plain_logits,
                                    const std::optional<WatchedModel::Sight>& own,
                                    const Task& task) {
  const auto at = static_cast<size_t>(position);
  TokenDivergence divergence{.position = position,
                             .token_plain = at < plain.size() ? plain[at] : -1,
                             .token_other = at < other.size() ? other[at] : -1,
                             .gap_plain = std::numeric_limits<double>::quiet_NaN(),
                             .gap_other = std::numeric_limits<double>::quiet_NaN()};
  if (divergence.token_plain < 0 || divergence.token_other < 0) {
    return divergence;
  }
  std::vector<Token> history = task.prompt;
  history.insert(history.end(), plain.begin(), plain.begin() + position);
  const TokenMask mask = mask_after(task.constraint, plain.first(at));
  const GreedyChoice choice =
      greedy_choice(LogitRow::of(plain_logits), history, task.sampling, allowed_by(mask));
  divergence.gap_plain = choice.gap;
  divergence.ulp = float_ulp(plain_logits[choice.token].item<double>());
  if (own) {
    const GreedyChoice own_choice =
        greedy_choice(LogitRow::of(own->logits), history, task.sampling, allowed_by(mask));
    divergence.gap_other = own_choice.gap;
    divergence.own_choice = own_choice.token == divergence.token_other;
    divergence.width = own->width;
    divergence.logit_difference =
        (own->logits.to(at::kDouble) - plain_logits.to(at::kDouble)).abs().max().item<double>();
  }
  return divergence;
}

}  // namespace specdec
