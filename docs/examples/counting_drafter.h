#pragma once
#include <ATen/ATen.h>

#include <map>
#include <optional>

#include "decoders/drafters/distribution_drafter.h"

namespace specdec {

/// A bigram model of the text so far: how often each token followed the newest one, plus `prior`.
class CountingDrafter final : public DistributionDrafter {
 public:
  CountingDrafter(int64_t vocab, double prior) : vocab_(vocab), prior_(prior) {}

 private:
  std::optional<DraftRoom> begin_draft(const DraftContext& context) override {
    counts_.clear();
    for (size_t i = 1; i < context.committed.size(); ++i) {
      counts_[context.committed[i - 1]][context.committed[i]] += 1.0;
    }
    return DraftRoom{};
  }
  Tensor expand(const Draft& partial, std::span<const int64_t> frontier) override {
    Tensor counts = at::full({std::ssize(frontier), vocab_}, prior_, at::kDouble);
    for (int64_t row = 0; row < std::ssize(frontier); ++row) {
      for (const auto& [token, count] : counts_[partial.tokens[frontier[row]]]) {
        counts[row][token] += count;
      }
    }
    return counts.log();
  }

  int64_t vocab_;
  double prior_;
  std::map<Token, std::map<Token, double>> counts_;
};

}  // namespace specdec
