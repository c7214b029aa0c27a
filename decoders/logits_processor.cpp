#include "decoders/logits_processor.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/error.h"
#include "core/kernels/probs.h"
#include "core/stopwatch.h"
#include "decoders/draft_grammar.h"
#include "decoders/step_statistics.h"

namespace specdec {
namespace {

constexpr const char* kNothingLeft =
    "the request's weights (DistributionWeights) leave no token any mass; let them allow one";

/// Score of a token that is forbidden.
constexpr double kNoScore = -std::numeric_limits<double>::infinity();

/// All scores, [vocab].
std::vector<double> row_of(const Scores& scores) {
  std::vector<double> row(static_cast<size_t>(scores.size()));
  for (size_t block = 0; block < scores.maxima().size(); ++block) {
    const auto index = static_cast<int64_t>(block);
    scores.fill(index, std::span(row).subspan(block * kProbsBlock, scores.size_of(index)));
  }
  return row;
}

}  // namespace

LogitsProcessor::LogitsProcessor(const Request& request, const CommittedText& text,
                                 int64_t vocab_size, double* mask_seconds)
    : request_(request),
      text_(text),
      vocab_size_(vocab_size),
      mask_seconds_(mask_seconds),
      probs_(0, vocab_size, nullptr) {}

void LogitsProcessor::find_masks(const Draft& draft) {
  if (text_.grammar() == nullptr) {
    return;
  }
  const ScopedSeconds timer(mask_seconds_);
  std::vector<int64_t> parents(draft.parents.begin() + 1, draft.parents.end());
  for (int64_t& parent : parents) {
    --parent;  // the matcher stands at the root
  }
  masks_ = text_.grammar()->tree_masks(TokenSpan(draft.tokens).subspan(1), parents);
  masks_.insert(masks_.begin(), text_.grammar()->mask());
}

AllowedTokens LogitsProcessor::allowed(int64_t node) const {
  return masks_.empty() ? nullptr : allowed_by(masks_[static_cast<size_t>(node)]);
}

void LogitsProcessor::weigh(int64_t node, std::span<double> row) const {
  const TokenSpan before = text_.tokens().first(committed_).subspan(request_.prompt.size());
  request_.weights->weigh(draft_.history(before, node), row);
  for (size_t token = 0; token < row.size(); ++token) {
    if (!std::isfinite(row[token]) || row[token] < 0.0) {
      throw Error(fmt::format(
          "the request's weights (DistributionWeights) made the probability of token {} "
          "{}; weights are finite and at least 0",
          token, row[token]));
    }
  }
}

TokenProbs LogitsProcessor::weighed(int64_t node, const TokenProbs& probs) const {
  std::vector<double> row = probs.row();
  weigh(node, row);
  const TokenProbs weighted(std::move(row));
  if (!(weighted.sum() > 0.0)) {
    throw Error(kNothingLeft);
  }
  return weighted.normalised();
}

GreedyChoice LogitsProcessor::greedy_weighed(int64_t node, TokenSpan penalised) const {
  const SamplingParams& sampling = request_.sampling;
  std::vector<double> scores =
      row_of(Scores(LogitRow::of(logits_, node), sampling.logit_bias,
                    {penalised, sampling.repetition_penalty}, allowed(node)));
  std::vector<double> weights(scores.size());
  std::transform(scores.begin(), scores.end(), weights.begin(),
                 [](double score) { return std::isinf(score) ? 0.0 : 1.0; });
  weigh(node, weights);
  std::transform(scores.begin(), scores.end(), weights.begin(), scores.begin(),
                 [](double score, double weight) { return score + std::log(weight); });
  const int64_t best = argmax(scores);
  const double most = std::exchange(scores[static_cast<size_t>(best)], kNoScore);
  if (std::isinf(most)) {
    throw Error(kNothingLeft);
  }
  return {.token = static_cast<Token>(best),
          .gap = most - *std::max_element(scores.begin(), scores.end())};
}

bool LogitsProcessor::is_forbidden(int64_t node) {
  std::optional<bool>& known = forbidden_[static_cast<size_t>(node)];
  if (known) {
    return *known;
  }
  const int64_t parent = draft_.parents[static_cast<size_t>(node)];
  if (parent < 0 || is_forbidden(parent)) {
    known = parent >= 0;
    return *known;
  }
  const auto token = static_cast<size_t>(draft_.tokens[static_cast<size_t>(node)]);
  known = false;
  if (!(probs_.probability(parent, draft_.tokens[static_cast<size_t>(node)]) > 0.0)) {
    std::vector<double> weights(static_cast<size_t>(vocab_size_), 1.0);
    weigh(parent, weights);
    known = weights[token] == 0.0;
  }
  return *known;
}

TokenProbs LogitsProcessor::make(int64_t node) {
  try {
    return distribution_of(node);
  } catch (const Error& error) {
    const auto before = draft_.history(text_.tokens().first(committed_), node).size();
    throw Error(fmt::format("the target after {} tokens: {}", before, error.what()));
  }
}

TokenProbs LogitsProcessor::distribution_of(int64_t node) {
  const SamplingParams& sampling = request_.sampling;
  const std::vector<Token> penalised = sampling.repetition_penalty != 1.0
                                           ? draft_.history(text_.tokens().first(committed_), node)
                                           : std::vector<Token>();
  const bool weighs = request_.weights != nullptr && !is_forbidden(node);
  if (sampling.greedy()) {
    const GreedyChoice best = weighs ? greedy_weighed(node, penalised) : greedy(node, penalised);
    gaps_[static_cast<size_t>(node)] = best.gap;
    return TokenProbs::one_hot(best.token, vocab_size_);
  }
  const LogitRow row = LogitRow::of(logits_, node);
  const TokenProbs probs = token_probs(row, penalised, sampling, allowed(node));
  return weighs ? weighed(node, probs) : probs;
}

GreedyChoice LogitsProcessor::greedy(int64_t node, TokenSpan penalised) const {
  if (best_.empty()) {
    return greedy_choice(LogitRow::of(logits_, node), penalised, request_.sampling, allowed(node));
  }
  const GreedyChoice best = best_[static_cast<size_t>(node)];
  if (best.token < 0) {
    throw Error(damaged_logits());
  }
  return best;
}

LogitsUse LogitsProcessor::use(const Request& request) {
  const SamplingParams& sampling = request.sampling;
  if (request.weights != nullptr || sampling.changes_logits()) {
    return LogitsUse::kRows;
  }
  if (sampling.greedy() && request.constraint.grammar == nullptr) {
    return LogitsUse::kBest;
  }
  const bool is_known = sampling.greedy() || request.random.device_key();
  return is_known && !request.log_overlaps ? LogitsUse::kSampler : LogitsUse::kRows;
}

std::vector<NodeMask> LogitsProcessor::node_masks() const {
  std::vector<NodeMask> masks;
  for (const TokenMask& mask : masks_) {
    const TokenMask::Content& content = mask.content();
    masks.push_back({content.base, content.added, content.removed});
  }
  return masks;
}

void LogitsProcessor::choose(DeviceSampler& sampler) {
  const std::vector<NodeMask> masks = node_masks();
  Stopwatch stopwatch;
  const std::optional<DeviceChoices> choices = sampler.choose(logits_, masks);
  device_seconds_ = stopwatch.lap();
  if (!choices) {
    return;
  }
  best_ = choices->best;
  for (size_t node = 0; node < best_.size(); ++node) {
    decided_masses_[static_cast<int64_t>(node)] = choices->masses[node];
  }
  read_backs_ = choices->read_backs;
}

std::optional<DeviceDecision> LogitsProcessor::decide(DeviceRule rule, const Draft& draft,
                                                      const ForwardResult& result) {
  device_seconds_ = 0.0;  // those of the step before were taken
  if (rule == DeviceRule::kNone || result.sampler == nullptr ||
      use(request_) != LogitsUse::kSampler || request_.sampling.greedy()) {
    return std::nullopt;
  }
  find(draft, result);
  const std::vector<NodeMask> masks = node_masks();
  Stopwatch stopwatch;
  std::optional<DeviceDecision> decided =
      result.sampler->decide(logits_, {.rule = rule,
                                       .draft = draft,
                                       .sampling = request_.sampling,
                                       .masks = masks,
                                       .key = *request_.random.device_key(),
                                       .position = static_cast<int64_t>(committed_)});
  device_seconds_ = stopwatch.lap();
  for (size_t i = 0; decided && i < decided->masses.size(); ++i) {
    decided_masses_[decided->verified.path[i]] = decided->masses[i];
  }
  return decided;
}

TargetProbs& LogitsProcessor::find(const Draft& draft, const ForwardResult& result) {
  logits_ = result.logits;  // of which rows are copied to the host when they are asked for
  decided_masses_.clear();
  read_backs_ = {};
  device_seconds_ = 0.0;
  best_ = result.best;
  if (best_.empty()) {
    SPECDEC_CHECK(logits_.defined() && logits_.dim() == 2 && logits_.size(0) == draft.size() &&
                      logits_.size(1) == vocab_size_,
                  "target_probs: {} logits for {} nodes and a vocabulary of {}",
                  logits_.defined() ? logits_.numel() : 0, draft.size(), vocab_size_);
  } else {
    SPECDEC_CHECK(std::ssize(best_) == draft.size() && use(request_) == LogitsUse::kBest,
                  "target_probs: the best tokens of {} nodes, where {} nodes' logits are read",
                  best_.size(), draft.size());
  }
  find_masks(draft);
  if (result.sampler != nullptr && use(request_) == LogitsUse::kSampler &&
      request_.sampling.greedy() && !masks_.empty()) {
    choose(*result.sampler);
  }
  gaps_.assign(draft.tokens.size(), 0.0);
  forbidden_.assign(draft.tokens.size(), std::nullopt);
  probs_ = TargetProbs(draft.size(), vocab_size_, [this](int64_t node) { return make(node); });
  draft_ = {.tokens = draft.tokens, .parents = draft.parents};
  committed_ = text_.tokens().size();
  return probs_;
}

double LogitsProcessor::gap(int64_t node) {
  probs_.after(node);
  return gaps_[static_cast<size_t>(node)];
}

LogMasses LogitsProcessor::masses(int64_t node, TokenSpan history, Token token) const {
  const auto decided = decided_masses_.find(node);
  // A verifier may take another token than the best; its row is copied then.
  const bool is_decided = best_.empty() || best_[static_cast<size_t>(node)].token == token;
  if (decided != decided_masses_.end() && is_decided) {
    return decided->second;
  }
  return log_masses(LogitRow::of(logits_, node), history, request_.sampling, allowed(node), token);
}

}  // namespace specdec
