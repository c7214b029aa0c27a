#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "decoders/decoding_strategy.h"

namespace specdec {

/// Way in which outputs under a grammar are drawn. Masking step by step gives a distribution of its
/// own: each step is normalised by itself, so an output is drawn with its probability over the
/// product of the allowed masses Z_t on its way, not with the target's distribution given that the
/// text is in the language and ends within max_new_tokens ("Grammar-Aligned Decoding", Park et al.
/// 2024, arXiv:2405.21047).
enum class Correction {
  kNone,        ///< masked step by step
  kRejection,   ///< keeps a masked sample with probability prod Z_t: exact, but may keep none
  kImportance,  ///< draws one of `samples` masked samples, in proportion to prod Z_t: tends to it
  kAsap,  ///< the last of `samples`, each of which learns from those before (Algorithm 1): tends
          ///< to it
};

struct CorrectionOptions {
  Correction correction = Correction::kNone;
  /// Samples to draw. `rejection` ends with the first that it accepts, `asap` when it has learned
  /// that no text is left.
  int64_t samples = 16;
};

/// Expected future grammaticality by prefix, learned from samples (ASAp, section 4.2): an upper
/// bound of the probability that the target, from this prefix on, stays in the grammar and ends. It
/// starts at 1, the distribution of masking, and falls to its true value where samples went.
class FutureBounds final : public DistributionWeights {
 public:
  void weigh(TokenSpan output, std::span<double> distribution) const override;
  /// Learns from one sample, which ended in the language or did not.
  void learn(const Generation& sample, bool ended);
  /// The bound after `output`.
  double bound(TokenSpan output) const;

 private:
  struct Child {
    double probability = 0.0;  // by the target, without the grammar
    int64_t node = 0;
  };
  struct Node {
    double bound = 1.0;
    std::map<Token, Child> children;
  };

  const Node* find(TokenSpan output) const;

  std::vector<Node> nodes_ = {Node()};
};

/// Draws towards the target's distribution given that the output is in the language, with any
/// strategy. What counts as in the language is an output that the grammar ended: by an end token or
/// because it allowed nothing else, in which case the probability of an end token plays no part.
class CorrectedDecoding final : public DecodingStrategy {
 public:
  /// Throws ConfigError for fewer than one sample.
  CorrectedDecoding(std::unique_ptr<DecodingStrategy> strategy, const CorrectionOptions& options);
  /// Checks that outputs can be corrected: throws ConfigError for greedy decoding, and for top-k,
  /// top-p and min-p, under which the allowed mass is not that of the distribution that is drawn
  /// from.
  static void check(const SamplingParams& sampling);
  /// The chosen output, with the time of all samples; tokens are given on when it is chosen. Throws
  /// ConfigError without a grammar, and for sampling that `check` refuses.
  Generation generate(const Request& request) override;
  void forget() override { strategy_->forget(); }
  bool can_resume() const override {
    return options_.correction == Correction::kNone && strategy_->can_resume();
  }

 private:
  Generation draw(const Request& request, int64_t sample, const DistributionWeights* weights);
  Generation draw_by_rejection(const Request& request);
  Generation draw_by_importance(const Request& request);
  Generation draw_by_asap(const Request& request);

  std::unique_ptr<DecodingStrategy> strategy_;
  CorrectionOptions options_;
  double seconds_ = 0.0;  // of all samples of this request
};

}  // namespace specdec
