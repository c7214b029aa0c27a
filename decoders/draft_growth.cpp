#include "decoders/draft_growth.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "core/error.h"

namespace specdec {
namespace {

/// Everything before the token that follows `node`.
std::vector<Token> history_of(TokenSpan committed, const Draft& draft, int64_t node) {
  std::vector<Token> path;
  for (int64_t i = node; i > 0; i = draft.parents[static_cast<size_t>(i)]) {
    path.push_back(draft.tokens[static_cast<size_t>(i)]);
  }
  std::vector<Token> history(committed.begin(), committed.end());
  history.insert(history.end(), path.rbegin(), path.rend());
  return history;
}

}  // namespace

DraftGrowth::DraftGrowth(const DraftContext& context, ChildLaw& law, Siblings siblings)
    : context_(context),
      child_law_(law),
      draws_(siblings == Siblings::kDrawn && !context.sampling.greedy()),
      draft_(Draft::root(context.committed.back())) {
  if (context.grammar != nullptr) {
    grammar_.emplace(*context.grammar);
  }
}

Tensor DraftGrowth::expand(std::span<const int64_t> nodes) {
  Tensor logits = child_law_.expand(draft_, nodes).cpu();
  SPECDEC_CHECK(logits.dim() == 2 && logits.size(0) == static_cast<int64_t>(nodes.size()),
                "a drafter was asked for {} laws", nodes.size());
  return logits;
}

ScoreFilter DraftGrowth::filter(int64_t node) {
  if (!grammar_) {
    return {};
  }
  mask_ = grammar_->mask(draft_, node);
  return filter_of(mask_);
}

void DraftGrowth::fill_law(int64_t node, const Tensor& logits) {
  SamplingParams sampling = context_.sampling;
  // A greedy law ranks nothing but its best token; siblings need an order of all.
  sampling.temperature = sampling.greedy() ? 1.0 : sampling.temperature;
  const bool penalised = sampling.repetition_penalty != 1.0;
  const std::vector<Token> history =
      penalised ? history_of(context_.committed, draft_, node) : std::vector<Token>();
  law_.resize(static_cast<size_t>(logits.numel()));
  target_law(logits, history, sampling, law_, filter(node));
}

void DraftGrowth::record_law(int64_t node) {
  draft_.law[static_cast<size_t>(node)] = static_cast<int64_t>(laws_.size());
  laws_.push_back(at::tensor(law_, at::kDouble));
}

int64_t DraftGrowth::add_children(int64_t node, const Tensor& logits, int64_t count) {
  const int64_t first = draft_.size();
  if (!draws_) {
    for (const Candidate& candidate : best(node, logits, count)) {
      add(candidate.token, node);
    }
    return first;
  }
  fill_law(node, logits);
  record_law(node);
  for (int64_t i = 0; i < count; ++i) {
    const auto token = static_cast<size_t>(context_.random.draw(law_));
    draft_.add(static_cast<Token>(token), node);
    law_[token] = 0.0;
    if (i + 1 < count && *std::max_element(law_.begin(), law_.end()) <= 0.0) {
      break;
    }
  }
  return first;
}

std::vector<Candidate> DraftGrowth::best(int64_t node, const Tensor& logits, int64_t count) {
  if (count == 1 && context_.sampling.greedy()) {
    const bool penalised = context_.sampling.repetition_penalty != 1.0;
    const GreedyChoice choice = greedy_choice(
        logits, penalised ? history_of(context_.committed, draft_, node) : std::vector<Token>(),
        context_.sampling, filter(node));
    return {{choice.token, 1.0}};
  }
  fill_law(node, logits);
  std::vector<Token> tokens(law_.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  const auto wanted = tokens.begin() + std::min(count, static_cast<int64_t>(tokens.size()));
  const auto likelier = [&](Token a, Token b) {
    const double of_a = law_[static_cast<size_t>(a)];
    const double of_b = law_[static_cast<size_t>(b)];
    return of_a != of_b ? of_a > of_b : a < b;
  };
  std::partial_sort(tokens.begin(), wanted, tokens.end(), likelier);
  std::vector<Candidate> found;
  for (auto token = tokens.begin(); token != wanted; ++token) {
    if (law_[static_cast<size_t>(*token)] > 0.0) {
      found.push_back({*token, law_[static_cast<size_t>(*token)]});
    }
  }
  return found;
}

std::span<const double> DraftGrowth::law(int64_t node, const Tensor& logits) {
  fill_law(node, logits);
  return law_;
}

Draft DraftGrowth::finish() && {
  if (!laws_.empty()) {
    draft_.probs = laws_.size() == 1 ? laws_.front().unsqueeze(0) : at::stack(laws_);
  }
  return std::move(draft_);
}

}  // namespace specdec
