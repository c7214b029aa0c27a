#include "decoders/shapes/draft_growth.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <variant>

#include "core/draft_vocabulary.h"
#include "core/error.h"

namespace specdec {
namespace {

/// Whether a mask and a bias of -inf leave a token whose logit is not -inf.
bool leaves_any(const LogitRow& row, const AllowedTokens& allowed, const LogitBias& bias) {
  constexpr size_t kBits = 32;
  const auto is_left = [&](auto logit, size_t token) {
    const size_t word = token / kBits;
    const auto summand = bias.find(static_cast<Token>(token));
    return !(std::isinf(logit) && logit < 0) &&
           (allowed == nullptr ||
            (word < allowed->size() && ((*allowed)[word] >> (token % kBits) & 1U) != 0)) &&
           (summand == bias.end() || !std::isinf(summand->second));
  };
  return std::visit(
      [&](const auto& logits) {
        for (size_t token = 0; token < logits.size(); ++token) {
          if (is_left(logits[token], token)) {
            return true;
          }
        }
        return false;
      },
      row.values);
}

/// Size of the logits that were asked for, in words.
std::string size_text(int64_t nodes, int64_t vocab_size) {
  return fmt::format("[{}, {}]", nodes,
                     vocab_size == kUnknownVocabulary ? "vocab" : std::to_string(vocab_size));
}

/// What a drafter's `expand` returns has a row for each node that was asked for, and a column for
/// each token of the vocabulary.
void check_expanded(const Tensor& logits, int64_t nodes, int64_t vocab_size) {
  SPECDEC_CHECK(logits.defined(), "the drafter: expand returned an undefined tensor for logits {}",
                size_text(nodes, vocab_size));
  SPECDEC_CHECK(logits.dim() == 2 && logits.size(0) == nodes &&
                    (vocab_size == kUnknownVocabulary || logits.size(1) == vocab_size),
                "the drafter: expand returned logits [{}] where {} were asked for",
                fmt::join(logits.sizes(), ", "), size_text(nodes, vocab_size));
}

}  // namespace

DraftGrowth::DraftGrowth(const DraftContext& context, ChildDistribution& distribution,
                         Siblings siblings)
    : context_(context),
      child_distribution_(distribution),
      draws_(siblings == Siblings::kDrawn && !context.sampling.greedy()),
      max_tokens_(context.max_tokens),
      evaluations_left_(context.max_evaluated),
      draft_(Draft::root(context.committed.back())) {
  if (context.grammar != nullptr) {
    grammar_.emplace(*context.grammar, context.mask_seconds);
  }
}

DraftGrowth DraftGrowth::of_candidates(const DraftContext& context,
                                       ChildDistribution& distribution) {
  DraftGrowth growth(context, distribution, Siblings::kBest);
  growth.max_tokens_ = std::numeric_limits<int64_t>::max();
  return growth;
}

bool DraftGrowth::is_expanded(int64_t node) const {
  if (node >= std::ssize(logits_)) {
    return false;
  }
  const Expanded& expanded = logits_[static_cast<size_t>(node)];
  return expanded.logits.defined() || expanded.best;
}

bool DraftGrowth::has_distribution(int64_t node) {
  if (!is_expanded(node) || (grammar_ && grammar_->is_at_limit(draft_, node))) {
    return false;
  }
  const LogitBias& bias = context_.sampling.logit_bias;
  if (logits_[static_cast<size_t>(node)].best) {
    return true;
  }
  if (child_distribution_.leaves_out_tokens()) {
    return leaves_any(row(node), allowed(node), bias);
  }
  const DraftVocabulary* vocabulary = child_distribution_.vocabulary();
  const int64_t size = vocabulary == nullptr ? logits_[static_cast<size_t>(node)].logits.size(1)
                                             : vocabulary->vocab_size();
  return bias.empty() || !forbids_all(bias, allowed(node), size);
}

bool DraftGrowth::may_have_children(int64_t node) const {
  return room() > 0 && depths_[static_cast<size_t>(node)] < context_.max_depth;
}

void DraftGrowth::expand(std::span<const int64_t> nodes, int64_t candidates) {
  std::vector<int64_t> asked;
  for (const int64_t node : nodes) {
    SPECDEC_CHECK(node >= 0 && node < draft_.size() && !is_expanded(node),
                  "node {} is expanded twice, or there are only {}", node, draft_.size());
    const int64_t evaluations = node == 0 ? 0 : 1;  // the root's logits come with the cache
    if (may_have_children(node) && evaluations <= evaluations_left_ &&
        !child_distribution_.ends(draft_, node)) {
      evaluations_left_ -= evaluations;
      asked.push_back(node);
    }
  }
  if (asked.empty()) {
    return;
  }
  if (asked.front() == 0) {
    ranks_on_device_ = may_rank_on_device(candidates);
  }
  const ForwardResult found =
      ranks_on_device_ ? child_distribution_.expand_on_device(draft_, asked, {})
                       : ForwardResult{.logits = child_distribution_.expand(draft_, asked)};
  const bool is_whole = child_distribution_.vocabulary() == nullptr;
  check_expanded(found.logits, std::ssize(asked),
                 is_whole ? context_.vocab_size : kUnknownVocabulary);
  logits_.resize(draft_.tokens.size());
  if (ranks_on_device_ && rank(asked, found, candidates)) {
    return;
  }
  if ((ranks_on_device_ || !found.logits.is_cpu()) && context_.read_backs != nullptr) {
    *context_.read_backs += {1, static_cast<int64_t>(found.logits.nbytes())};
  }
  const Tensor logits = found.logits.cpu();
  for (size_t i = 0; i < asked.size(); ++i) {
    logits_[static_cast<size_t>(asked[i])] = {logits, static_cast<int64_t>(i)};
  }
}

Tensor DraftGrowth::logits(int64_t node) const {
  if (!is_expanded(node) || logits_[static_cast<size_t>(node)].best) {
    return {};
  }
  const Expanded& expanded = logits_[static_cast<size_t>(node)];
  const DraftVocabulary* vocabulary = child_distribution_.vocabulary();
  return vocabulary == nullptr
             ? expanded.logits.select(0, expanded.row)
             : vocabulary->widened(expanded.logits.narrow(0, expanded.row, 1)).squeeze(0);
}

LogitRow DraftGrowth::row(int64_t node) const {
  const Expanded& expanded = logits_[static_cast<size_t>(node)];
  SPECDEC_CHECK(expanded.logits.defined(), "of node {} the best tokens alone were asked for", node);
  return LogitRow::of(expanded.logits, expanded.row);
}

AllowedTokens DraftGrowth::allowed(int64_t node) {
  return grammar_ ? allowed_by(grammar_->mask(draft_, node)) : nullptr;
}

std::vector<Token> DraftGrowth::penalised(int64_t node) const {
  return context_.sampling.repetition_penalty != 1.0 ? draft_.history(context_.committed, node)
                                                     : std::vector<Token>();
}

TokenProbs DraftGrowth::distribution(int64_t node) {
  if (!has_distribution(node)) {
    return {};
  }
  SamplingParams sampling = context_.sampling;
  // A greedy distribution ranks only its best token; siblings need all tokens ranked.
  sampling.temperature = sampling.greedy() ? 1.0 : sampling.temperature;
  return probs(node, sampling);
}

TokenProbs DraftGrowth::probs(int64_t node, const SamplingParams& sampling) {
  try {
    if (const DraftVocabulary* vocabulary = child_distribution_.vocabulary()) {
      return vocabulary->probs(row(node), penalised(node), sampling, allowed(node));
    }
    return token_probs(row(node), penalised(node), sampling, allowed(node));
  } catch (const Error& error) {
    const auto before = draft_.history(context_.committed, node).size();
    throw Error(fmt::format("the drafter after {} tokens: {}", before, error.what()));
  }
}

int64_t DraftGrowth::add(Token token, int64_t node) {
  if (!may_have_children(node)) {
    return -1;
  }
  depths_.push_back(depths_[static_cast<size_t>(node)] + 1);
  return draft_.add(token, node);
}

std::vector<int64_t> DraftGrowth::draw_children(int64_t node, int64_t count) {
  TokenProbs left = distribution(node);
  if (left.empty()) {
    return {};
  }
  draft_.child_probs[static_cast<size_t>(node)] = std::ssize(draft_.probs);
  draft_.probs.push_back(left);
  std::vector<int64_t> children;
  for (int64_t i = 0; i < count; ++i) {
    const Token token = left.draw(context_.random);
    children.push_back(add(token, node));
    if (i + 1 == count) {
      break;
    }
    left = left.without(token);
    if (!(left.sum() > 0.0)) {
      break;
    }
  }
  return children;
}

std::vector<int64_t> DraftGrowth::add_children(int64_t node, int64_t count) {
  // The number of draws is fixed before the first one: dropping a drawn token would change the
  // output's distribution.
  const int64_t most = std::min(count, room());
  if (!is_expanded(node) || !may_have_children(node) || most < 1) {
    return {};
  }
  if (draws_) {
    return draw_children(node, most);
  }
  std::vector<int64_t> children;
  for (const Candidate& candidate : best(node, most)) {
    children.push_back(add(candidate.token, node));
  }
  return children;
}

std::vector<Candidate> DraftGrowth::best(int64_t node, int64_t count) {
  if (!has_distribution(node)) {
    return {};
  }
  const bool is_certain = count == 1 && context_.sampling.greedy();
  if (auto found = logits_[static_cast<size_t>(node)].best) {
    found->resize(std::min(found->size(), static_cast<size_t>(count)));
    for (Candidate& candidate : *found) {
      candidate.probability = is_certain ? 1.0 : candidate.probability;
    }
    return *std::move(found);
  }
  if (is_certain) {
    return probs(node, context_.sampling).top(1);
  }
  return distribution(node).top(count);
}

Draft DraftGrowth::finish() && {
  SPECDEC_CHECK(draft_.proposed() <= context_.max_tokens,
                "a draft of {} candidates where {} tokens fit: name those to keep",
                draft_.proposed(), context_.max_tokens);
  return std::move(draft_);
}

Draft DraftGrowth::finish(std::span<const int64_t> nodes) && {
  SPECDEC_CHECK(std::ssize(nodes) <= context_.max_tokens, "{} nodes are kept where {} fit",
                nodes.size(), context_.max_tokens);
  SPECDEC_CHECK(!draws_, "nodes are dropped after they were drawn");
  Draft kept = Draft::root(draft_.tokens.front());
  std::vector<int64_t> place(draft_.tokens.size(), -1);
  place[0] = 0;
  for (const int64_t node : nodes) {
    const auto index = static_cast<size_t>(node);
    place[index] = kept.add(draft_.tokens[index],  // refuses a node without its parent
                            place[static_cast<size_t>(draft_.parents[index])]);
  }
  return kept;
}

}  // namespace specdec
