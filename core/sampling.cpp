#include "core/sampling.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "core/error.h"
#include "core/kernels/probs.h"
#include "core/likely_tokens.h"

namespace specdec {
namespace {

/// The inverse of the temperature. That of the smallest ones is infinite, and 0 * infinity is not a
/// number.
double inverse(double temperature) {
  return std::min(1.0 / temperature, std::numeric_limits<double>::max());
}

/// The masses of all tokens: the logits, of which a block becomes masses when it is asked for.
class SoftmaxBlocks final : public WeightBlocks {
 public:
  SoftmaxBlocks(Scores scores, double scale)
      : scores_(std::move(scores)), scale_(scale), sums_(scores_.mass_sums(scale)) {}
  int64_t size() const override { return scores_.size(); }
  std::span<const double> sums() const override { return sums_; }
  void fill(int64_t block, std::span<double> weights) const override {
    scores_.fill_masses(block, scale_, weights);
  }

 private:
  Scores scores_;
  double scale_;
  std::vector<double> sums_;
};

/// The first token of a score, in a block that has it, and the best of the others there.
GreedyChoice best_in(const Scores& scores, int64_t block, double best) {
  std::array<double, kProbsBlock> part;
  const std::span<double> filled = std::span(part).first(scores.size_of(block));
  scores.fill(block, filled);
  const auto place = std::find(filled.begin(), filled.end(), best);
  SPECDEC_CHECK(place != filled.end(), "the best score of a block is not in it");
  *place = -std::numeric_limits<double>::infinity();
  const int64_t begin = block * static_cast<int64_t>(kProbsBlock);
  return {static_cast<Token>(begin + (place - filled.begin())), best - largest_of(filled)};
}

GreedyChoice choose_best(const Scores& scores) {
  const std::span<const double> maxima = scores.maxima();
  const auto place = std::find(maxima.begin(), maxima.end(), scores.best());
  GreedyChoice choice = best_in(scores, place - maxima.begin(), scores.best());
  const double others =
      std::max(largest_of(maxima.first(static_cast<size_t>(place - maxima.begin()))),
               largest_of({place + 1, maxima.end()}));
  choice.gap = std::min(choice.gap, scores.best() - others);
  return choice;
}

void write_row(const TokenProbs& probs, std::span<double> distribution) {
  SPECDEC_CHECK(probs.vocab_size() == std::ssize(distribution),
                "{} logits for a distribution of {}", probs.vocab_size(), distribution.size());
  const std::vector<double> row = probs.row();
  std::copy(row.begin(), row.end(), distribution.begin());
}

Scores scores_of(LogitRow logits, TokenSpan history, const SamplingParams& params,
                 AllowedTokens allowed) {
  return {std::move(logits),
          params.logit_bias,
          {history, params.repetition_penalty},
          std::move(allowed)};
}

void require(bool valid, const char* name, double value, const char* range) {
  if (!valid) {
    throw ConfigError(fmt::format("sampling.{} is {}; it must be {}", name, value, range));
  }
}

}  // namespace

void SamplingParams::validate() const {
  require(temperature >= 0.0 && std::isfinite(temperature), "temperature", temperature,
          "0 (greedy) or more");
  require(top_k >= 0, "top_k", static_cast<double>(top_k), "0 (all tokens) or more");
  require(top_p > 0.0 && top_p <= 1.0, "top_p", top_p, "above 0 and at most 1 (all tokens)");
  require(min_p >= 0.0 && min_p <= 1.0, "min_p", min_p, "from 0 (all tokens) to 1");
  require(repetition_penalty > 0.0 && std::isfinite(repetition_penalty), "repetition_penalty",
          repetition_penalty, "above 0; 1 means none");
  for (const auto& [token, summand] : logit_bias) {
    require_config(token >= 0 && summand < std::numeric_limits<double>::infinity(),
                   fmt::format("sampling.logit_bias of token {} is {}; it must be a number, or "
                               "-inf, which forbids the token, of a token's id from 0 on",
                               token, summand));
  }
}

bool SamplingParams::forbids(Token token) const {
  const auto found = logit_bias.find(token);
  return found != logit_bias.end() && std::isinf(found->second);
}

TokenProbs token_probs(LogitRow logits, TokenSpan history, const SamplingParams& params,
                       AllowedTokens allowed) {
  Scores scores = scores_of(std::move(logits), history, params, std::move(allowed));
  if (params.greedy()) {
    return TokenProbs::one_hot(choose_best(scores).token, scores.size());
  }
  const double scale = inverse(params.temperature);
  const LikelyTokens limits{.top_k = params.top_k, .top_p = params.top_p, .min_p = params.min_p};
  if (limits.keeps_all(scores.size())) {
    return TokenProbs(std::make_shared<SoftmaxBlocks>(std::move(scores), scale)).normalised();
  }
  return limits.of(scores, scale).normalised();
}

void target_distribution(std::span<const float> logits, TokenSpan history,
                         const SamplingParams& params, std::span<double> distribution,
                         AllowedTokens allowed) {
  write_row(token_probs({{}, logits}, history, params, std::move(allowed)), distribution);
}

void target_distribution(std::span<const double> logits, TokenSpan history,
                         const SamplingParams& params, std::span<double> distribution,
                         AllowedTokens allowed) {
  write_row(token_probs({{}, logits}, history, params, std::move(allowed)), distribution);
}

void target_distribution(const at::Tensor& logits, TokenSpan history, const SamplingParams& params,
                         std::span<double> distribution, AllowedTokens allowed) {
  write_row(token_probs(LogitRow::of(logits), history, params, std::move(allowed)), distribution);
}

GreedyChoice greedy_choice(LogitRow logits, TokenSpan history, const SamplingParams& params,
                           AllowedTokens allowed) {
  return choose_best(scores_of(std::move(logits), history, params, std::move(allowed)));
}

LogMasses log_masses(const LogitRow& logits, TokenSpan history, const SamplingParams& params,
                     const AllowedTokens& allowed, Token token) {
  const double scale = inverse(params.greedy() ? 1.0 : params.temperature);
  const auto log_sum = [&](const Scores& scores) {
    return scores.best() * scale + std::log(sum_of(scores.mass_sums(scale)).sum);
  };
  const Scores scores = scores_of(logits, history, params, nullptr);
  const double all = log_sum(scores);
  const double left =
      allowed == nullptr ? all : log_sum(scores_of(logits, history, params, allowed));
  return {.allowed = std::min(0.0, left - all), .token = scores.of(token) * scale - all};
}

int64_t argmax(std::span<const double> values) {
  SPECDEC_CHECK(!values.empty(), "argmax of nothing");
  const auto found = std::find(values.begin(), values.end(), largest_of(values));
  SPECDEC_CHECK(found != values.end(), "argmax of values that are not numbers");
  return found - values.begin();
}

}  // namespace specdec
