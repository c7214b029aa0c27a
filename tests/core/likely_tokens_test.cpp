#include "core/likely_tokens.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace specdec {
namespace {

/// The likeliest tokens, found by sorting all.
std::vector<Token> sorted_tokens(const at::Tensor& logits, int64_t count) {
  std::vector<Token> tokens(static_cast<size_t>(logits.numel()));
  std::iota(tokens.begin(), tokens.end(), 0);
  const auto key = [&](Token token) {
    const auto logit = logits[token].item<double>();
    return std::isnan(logit) ? -std::numeric_limits<double>::infinity() : logit;
  };
  std::stable_sort(tokens.begin(), tokens.end(), [&](Token a, Token b) { return key(a) > key(b); });
  tokens.resize(std::min(tokens.size(), static_cast<size_t>(count)));
  return tokens;
}

TEST(LikelyTokensTest, TheHighestLogitsAreThoseOfASort) {
  at::manual_seed(1);
  for (const int64_t size : {1, 7, 256, 257, 1000, 3000}) {
    for (const int64_t count : {1, 2, 8, 40, 3000}) {
      for (const auto dtype : {at::kFloat, at::kDouble}) {
        const at::Tensor logits = (3 * at::randn({size})).round().to(dtype);  // many are equal
        EXPECT_EQ(highest_logits(LogitRow::of(logits), count), sorted_tokens(logits, count))
            << size << " " << count;
      }
    }
  }
}

TEST(LikelyTokensTest, LogitsThatAreNoNumbersComeLast) {
  at::Tensor logits = at::randn({700});
  logits[3] = std::nan("");
  logits[600] = std::numeric_limits<double>::infinity();
  logits[601] = -std::numeric_limits<double>::infinity();
  EXPECT_EQ(highest_logits(LogitRow::of(logits), 5), sorted_tokens(logits, 5));
  const auto all = highest_logits(LogitRow::of(logits), 700);
  EXPECT_EQ(all, sorted_tokens(logits, 700));
  EXPECT_EQ(all.front(), 600);
}

}  // namespace
}  // namespace specdec
