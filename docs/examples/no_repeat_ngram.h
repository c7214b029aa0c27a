#pragma once
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "decoders/decoding_strategy.h"

namespace specdec {

/// Forbids tokens that would complete an n-gram of the output a second time. Where that would leave
/// no token, it forbids none.
class NoRepeatRule final : public DistributionWeights {
 public:
  /// `other`: the weights that the request has already, or nullptr.
  NoRepeatRule(size_t n, const DistributionWeights* other) : n_(n), other_(other) {}

  void weigh(TokenSpan output, std::span<double> distribution) const override {
    if (other_ != nullptr) {
      other_->weigh(output, distribution);
    }
    if (output.size() < n_) {
      return;
    }
    std::vector<double> left(distribution.begin(), distribution.end());
    const TokenSpan newest = output.last(n_ - 1);
    for (size_t begin = 0; begin + n_ <= output.size(); ++begin) {
      const TokenSpan ngram = output.subspan(begin, n_);
      if (std::equal(newest.begin(), newest.end(), ngram.begin())) {
        left[ngram.back()] = 0.0;
      }
    }
    if (std::any_of(left.begin(), left.end(), [](double weight) { return weight > 0.0; })) {
      std::copy(left.begin(), left.end(), distribution.begin());
    }
  }

 private:
  size_t n_;
  const DistributionWeights* other_;
};

/// Decodes with another strategy, under the rule.
class NoRepeatNgram final : public DecodingStrategy {
 public:
  NoRepeatNgram(std::unique_ptr<DecodingStrategy> inner, size_t n)
      : inner_(std::move(inner)), n_(n) {}

  Generation generate(const Request& request) override {
    const NoRepeatRule rule(n_, request.weights);
    Request own = request;
    own.weights = &rule;
    return inner_->generate(own);
  }
  bool can_resume() const override { return inner_->can_resume(); }
  void forget() override { inner_->forget(); }
  std::optional<DraftTrace> trace(const Request& request, TokenSpan output,
                                  const TraceOptions& options) override {
    return inner_->trace(request, output, options);
  }

 private:
  std::unique_ptr<DecodingStrategy> inner_;
  size_t n_;
};

}  // namespace specdec
