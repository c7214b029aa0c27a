#include "decoders/shapes/draft_growth.h"

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

DraftGrowth::DraftGrowth(const DraftContext& context, ChildDistribution& distribution,
                         Siblings siblings)
    : context_(context),
      child_distribution_(distribution),
      draws_(siblings == Siblings::kDrawn && !context.sampling.greedy()),
      draft_(Draft::root(context.committed.back())) {
  if (context.grammar != nullptr) {
    grammar_.emplace(*context.grammar);
  }
}

Tensor DraftGrowth::expand(std::span<const int64_t> nodes) {
  Tensor logits = child_distribution_.expand(draft_, nodes).cpu();
  SPECDEC_CHECK(logits.dim() == 2 && logits.size(0) == static_cast<int64_t>(nodes.size()),
                "a drafter was asked for {} distributions", nodes.size());
  return logits;
}

ScoreFilter DraftGrowth::filter(int64_t node) {
  if (!grammar_) {
    return {};
  }
  mask_ = grammar_->mask(draft_, node);
  return filter_of(mask_);
}

void DraftGrowth::fill_distribution(int64_t node, const Tensor& logits) {
  SamplingParams sampling = context_.sampling;
  // A greedy distribution ranks nothing but its best token; siblings need an order of all.
  sampling.temperature = sampling.greedy() ? 1.0 : sampling.temperature;
  const bool penalised = sampling.repetition_penalty != 1.0;
  const std::vector<Token> history =
      penalised ? history_of(context_.committed, draft_, node) : std::vector<Token>();
  distribution_.resize(static_cast<size_t>(logits.numel()));
  target_distribution(logits, history, sampling, distribution_, filter(node));
}

void DraftGrowth::record_distribution(int64_t node) {
  draft_.child_probs[static_cast<size_t>(node)] = static_cast<int64_t>(distributions_.size());
  distributions_.push_back(at::tensor(distribution_, at::kDouble));
}

int64_t DraftGrowth::add_children(int64_t node, const Tensor& logits, int64_t count) {
  const int64_t first = draft_.size();
  if (!draws_) {
    for (const Candidate& candidate : best(node, logits, count)) {
      add(candidate.token, node);
    }
    return first;
  }
  fill_distribution(node, logits);
  record_distribution(node);
  for (int64_t i = 0; i < count; ++i) {
    const auto token = static_cast<size_t>(context_.random.draw(distribution_));
    draft_.add(static_cast<Token>(token), node);
    distribution_[token] = 0.0;
    if (i + 1 < count && *std::max_element(distribution_.begin(), distribution_.end()) <= 0.0) {
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
  fill_distribution(node, logits);
  std::vector<Token> tokens(distribution_.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  const auto wanted = tokens.begin() + std::min(count, static_cast<int64_t>(tokens.size()));
  const auto more_likely = [&](Token a, Token b) {
    const double of_a = distribution_[static_cast<size_t>(a)];
    const double of_b = distribution_[static_cast<size_t>(b)];
    return of_a != of_b ? of_a > of_b : a < b;
  };
  std::partial_sort(tokens.begin(), wanted, tokens.end(), more_likely);
  std::vector<Candidate> found;
  for (auto token = tokens.begin(); token != wanted; ++token) {
    if (distribution_[static_cast<size_t>(*token)] > 0.0) {
      found.push_back({*token, distribution_[static_cast<size_t>(*token)]});
    }
  }
  return found;
}

std::span<const double> DraftGrowth::distribution(int64_t node, const Tensor& logits) {
  fill_distribution(node, logits);
  return distribution_;
}

Draft DraftGrowth::finish() && {
  if (!distributions_.empty()) {
    draft_.probs = distributions_.size() == 1 ? distributions_.front().unsqueeze(0)
                                              : at::stack(distributions_);
  }
  return std::move(draft_);
}

}  // namespace specdec
