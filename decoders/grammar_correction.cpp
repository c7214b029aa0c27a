#include "decoders/grammar_correction.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "decoders/request_checks.h"

namespace specdec {
namespace {

/// Choices of a request's samples, kept apart: each has positions of its own.
class SampleRandomness final : public Randomness {
 public:
  SampleRandomness(Randomness& source, int64_t sample) : source_(source), first_(sample << 32U) {}
  bool bernoulli(double probability) override { return source_.bernoulli(probability); }
  using Randomness::draw;
  int64_t draw(std::span<const double> weights) override { return source_.draw(weights); }
  int64_t draw(const WeightBlocks& weights) override { return source_.draw(weights); }
  void seek(int64_t position, Purpose purpose) override {
    source_.seek(first_ + position, purpose);
  }

 private:
  Randomness& source_;
  int64_t first_;
};

/// Logarithm of prod Z_t, -inf when the output did not end.
double log_weight(const Generation& sample) {
  return ends_text(sample.stop_reason)
             ? std::accumulate(sample.log_allowed.begin(), sample.log_allowed.end(), 0.0)
             : -std::numeric_limits<double>::infinity();
}

/// A bound that differs from 0 by rounding alone: no text of the grammar is left to be drawn.
constexpr double kExhausted = 1e-12;

/// Position of the choices between samples: no token stands there.
constexpr int64_t kBetween = 0;

Generation none_accepted() {
  Generation none;
  none.stop_reason = StopReason::kNoneAccepted;
  return none;
}

}  // namespace

const FutureBounds::Node* FutureBounds::find(TokenSpan output) const {
  const Node* node = &nodes_.front();
  for (const Token token : output) {
    const auto child = node->children.find(token);
    if (child == node->children.end()) {
      return nullptr;
    }
    node = &nodes_[static_cast<size_t>(child->second.node)];
  }
  return node;
}

void FutureBounds::weigh(TokenSpan output, std::span<double> distribution) const {
  if (const Node* node = find(output)) {
    for (const auto& [token, child] : node->children) {
      distribution[static_cast<size_t>(token)] *= nodes_[static_cast<size_t>(child.node)].bound;
    }
  }
}

double FutureBounds::bound(TokenSpan output) const {
  const Node* node = find(output);
  return node == nullptr ? 1.0 : node->bound;
}

void FutureBounds::learn(const Generation& sample, bool ended) {
  std::vector<int64_t> path = {0};
  for (size_t i = 0; i < sample.tokens.size(); ++i) {
    const auto [entry, is_new] =
        nodes_[static_cast<size_t>(path.back())].children.try_emplace(sample.tokens[i]);
    Child& child = entry->second;
    if (is_new) {
      child = {std::exp(sample.log_probs[i]), std::ssize(nodes_)};
    }
    path.push_back(child.node);
    if (is_new) {
      nodes_.emplace_back();
    }
  }
  nodes_[static_cast<size_t>(path.back())].bound = ended ? 1.0 : 0.0;
  for (size_t i = sample.tokens.size(); i-- > 0;) {
    Node& node = nodes_[static_cast<size_t>(path[i])];
    double lost = 0.0;
    for (const auto& [token, child] : node.children) {
      lost += child.probability * (1.0 - nodes_[static_cast<size_t>(child.node)].bound);
    }
    node.bound = std::clamp(std::exp(sample.log_allowed[i]) - lost, 0.0, 1.0);
  }
}

CorrectedDecoding::CorrectedDecoding(std::unique_ptr<DecodingStrategy> strategy,
                                     const CorrectionOptions& options)
    : strategy_(std::move(strategy)), options_(options) {
  if (options.samples < 1) {
    throw ConfigError(fmt::format("a correction needs at least 1 sample, not {}", options.samples));
  }
}

void CorrectedDecoding::check(const SamplingParams& sampling) {
  if (sampling.greedy()) {
    throw ConfigError(
        "a correction changes the distribution that outputs are drawn from, and greedy decoding "
        "draws none: set sampling.temperature above 0, or leave the correction out");
  }
  if (sampling.top_k != 0 || sampling.top_p != 1.0 || sampling.min_p != 0.0) {
    throw ConfigError(
        "a correction weighs outputs by the mass that the grammar leaves of the whole "
        "distribution: leave "
        "out sampling.top_k, top_p and min_p");
  }
}

Generation CorrectedDecoding::draw(const Request& request, int64_t sample,
                                   const DistributionWeights* weights) {
  SampleRandomness random(request.random, sample);
  const Request own{.prompt = request.prompt,
                    .sampling = request.sampling,
                    .stop = request.stop,
                    .random = random,
                    .tokenizer = request.tokenizer,
                    .on_tokens =
                        [&](TokenSpan) {  // nothing is certain yet, but callers may interrupt
                          if (request.on_tokens) {
                            request.on_tokens({});
                          }
                        },
                    .log_overlaps = request.log_overlaps,
                    .log_rejected = request.log_rejected,
                    .constraint = request.constraint,
                    .weights = weights,
                    .embeddings = request.embeddings,
                    .library_products = request.library_products};
  Generation generation = strategy_->generate(own);
  seconds_ += generation.prefill_seconds + generation.decode_seconds;
  return generation;
}

Generation CorrectedDecoding::draw_by_rejection(const Request& request) {
  for (int64_t sample = 0; sample < options_.samples; ++sample) {
    Generation drawn = draw(request, sample, nullptr);
    SampleRandomness(request.random, sample).seek(kBetween, Purpose::kVerify);
    if (ends_text(drawn.stop_reason) && request.random.bernoulli(std::exp(log_weight(drawn)))) {
      drawn.samples = sample + 1;
      return drawn;
    }
  }
  Generation none = none_accepted();
  none.samples = options_.samples;
  return none;
}

Generation CorrectedDecoding::draw_by_importance(const Request& request) {
  std::vector<Generation> drawn;
  std::vector<double> weights;
  for (int64_t sample = 0; sample < options_.samples; ++sample) {
    drawn.push_back(draw(request, sample, nullptr));
    weights.push_back(log_weight(drawn.back()));
  }
  const double best = *std::max_element(weights.begin(), weights.end());
  Generation chosen = none_accepted();
  if (std::isfinite(best)) {
    std::transform(weights.begin(), weights.end(), weights.begin(),
                   [&](double weight) { return std::exp(weight - best); });
    request.random.seek(kBetween, Purpose::kVerify);
    chosen = std::move(drawn[static_cast<size_t>(request.random.draw(weights))]);
  }
  chosen.samples = options_.samples;
  return chosen;
}

Generation CorrectedDecoding::draw_by_asap(const Request& request) {
  FutureBounds bounds;
  Generation newest = none_accepted();
  int64_t samples = 0;
  while (samples < options_.samples && bounds.bound({}) > kExhausted) {
    Generation drawn = draw(request, samples++, &bounds);
    bounds.learn(drawn, ends_text(drawn.stop_reason));
    if (ends_text(drawn.stop_reason)) {
      newest = std::move(drawn);
    }
  }
  newest.samples = samples;
  return newest;
}

Generation CorrectedDecoding::generate(const Request& request) {
  if (options_.correction == Correction::kNone) {
    return strategy_->generate(request);
  }
  check(request.sampling);
  check_reads_whole(request);
  require_config(
      request.weights == nullptr,
      "a correction weighs outputs by the target's own masses: leave weights out, or the "
      "correction");
  if (request.constraint.grammar == nullptr) {
    throw ConfigError("a correction is one of a grammar, and there is none: add `grammar:`");
  }
  seconds_ = 0.0;
  Generation chosen = options_.correction == Correction::kRejection    ? draw_by_rejection(request)
                      : options_.correction == Correction::kImportance ? draw_by_importance(request)
                                                                       : draw_by_asap(request);
  chosen.decode_seconds = seconds_ - chosen.prefill_seconds;
  if (request.on_tokens) {
    request.on_tokens(chosen.tokens);
  }
  return chosen;
}

}  // namespace specdec
