#include "core/token_probs.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "tests/support/dense_distribution.h"

namespace specdec {
namespace {

constexpr double kNoLogit = -std::numeric_limits<double>::infinity();

/// Rows of all kinds: small and large, with ties, masks, penalties, biases, extreme temperatures
/// and logits of -inf.
class RandomRows {
 public:
  explicit RandomRows(uint64_t seed) : random_(seed) {}

  SampledRow next(int64_t vocab = 0) {
    SampledRow row;
    fill(row.logits, static_cast<size_t>(vocab > 0 ? vocab : size()));
    const auto size = static_cast<int64_t>(row.logits.size());
    row.params.temperature =
        one_of<double>({0.0, 1e-310, 1e-3, 0.3, 0.7, 1.0, 1.0, 2.0, 1e3, 1e12});
    row.params.top_k = one_of<int64_t>({0, 0, 0, 1, 2, 5, 64, size - 1, size, size + 7});
    row.params.top_p = one_of<double>({1.0, 1.0, 1.0, 1e-9, 0.5, 0.9, 0.95, 0.9999});
    row.params.min_p = one_of<double>({0.0, 0.0, 0.0, 1e-9, 0.05, 0.5, 1.0});
    row.params.repetition_penalty = one_of<double>({1.0, 1.0, 1.3, 0.6});
    if (row.params.repetition_penalty != 1.0) {
      for (int64_t i = upto(12); i > 0; --i) {
        row.history.push_back(static_cast<Token>(upto(size - 1)));
      }
    }
    if (upto(3) == 0) {
      row.allowed = mask(row.logits.size());
    }
    if (upto(2) == 0) {
      for (int64_t i = upto(12); i > 0; --i) {
        row.params.logit_bias[static_cast<Token>(upto(size - 1))] =
            one_of<double>({kNoLogit, -2.5, 0.0, 0.5, 4.0});
      }
    }
    return row;
  }

  int64_t upto(int64_t most) { return std::uniform_int_distribution<int64_t>(0, most)(random_); }

 private:
  template <class T>
  T one_of(const std::vector<T>& values) {
    return values[static_cast<size_t>(upto(std::ssize(values) - 1))];
  }

  int64_t size() {
    const int64_t kind = upto(99);
    return kind < 85 ? 1 + upto(39) : kind < 99 ? 200 + upto(700) : 1000 + upto(4000);
  }

  void fill(std::vector<double>& logits, size_t size) {
    const double spread = one_of<double>({0.0, 0.5, 3.0, 3.0, 30.0, 1e30});
    const bool ties = upto(2) == 0;
    const bool gaps = upto(3) == 0;
    std::normal_distribution<float> normal;
    for (size_t i = 0; i < size; ++i) {
      const float value = normal(random_);
      // Exactly a float: the same logits are shown as float32 and float64.
      const float logit = static_cast<float>(spread) * (ties ? std::round(value) : value);
      logits.push_back(gaps && upto(3) == 0 ? kNoLogit : static_cast<double>(logit));
    }
  }

  AllowedTokens mask(size_t size) {
    auto words = std::make_shared<std::vector<uint32_t>>((size + 31) / 32);
    const int64_t kind = upto(3);
    for (uint32_t& word : *words) {
      const auto bits = static_cast<uint32_t>(upto(0xFFFFFFFF));
      word = kind == 0 ? bits : upto(3) == 0 ? bits : kind == 1 ? 0U : ~0U;
    }
    if (kind == 3) {
      words->pop_back();
    }
    return words;
  }

  std::mt19937_64 random_;
};

TokenProbs probs_of(const SampledRow& row, bool narrow) {
  if (!narrow) {
    return token_probs({{}, row.logits}, row.history, row.params, row.allowed);
  }
  const at::Tensor logits = at::tensor(row.logits, at::kDouble).to(at::kFloat).unsqueeze(0);
  return token_probs(LogitRow::of(logits, 0), row.history, row.params, row.allowed);
}

bool near(double a, double b) { return std::abs(a - b) <= 1e-13 * std::max(1e-3, b); }

/// How two rows of probabilities differ; empty when they do not.
std::string compare_rows(const std::vector<double>& found, const std::vector<double>& expected) {
  for (size_t token = 0; token < expected.size(); ++token) {
    if (!near(found[token], expected[token]) || (found[token] > 0.0) != (expected[token] > 0.0)) {
      return fmt::format("token {} has {} and not {}", token, found[token], expected[token]);
    }
  }
  return "";
}

std::string compare_choices(const TokenProbs& found, const DenseDistribution& expected,
                            uint64_t seed) {
  std::vector<Token> top;
  for (const Candidate& candidate : found.top(4)) {
    top.push_back(candidate.token);
    if (candidate.probability != found[candidate.token]) {
      return "a candidate has another probability";
    }
  }
  if (top != expected.top(4) || found.best() != expected.top(1).front()) {
    return "other tokens are the best";
  }
  CounterRandomness one(seed);
  CounterRandomness other(seed);
  for (int draw = 0; draw < 3; ++draw) {
    if (found.draw(one) != other.draw(expected.probs())) {
      return "other tokens are drawn";
    }
  }
  return "";
}

/// How what is found of one row differs from the definition of another one.
std::string compare(const SampledRow& found, const SampledRow& expected, uint64_t seed) {
  const DenseDistribution dense(expected);
  for (const bool narrow : {false, true}) {
    if (dense.probs().empty()) {
      EXPECT_THROW(probs_of(found, narrow), Error);
      continue;
    }
    if (dense.is_ambiguous()) {
      continue;
    }
    const TokenProbs probs = probs_of(found, narrow);
    std::string difference = compare_rows(probs.row(), dense.probs());
    difference = difference.empty() ? compare_choices(probs, dense, seed) : difference;
    const GreedyChoice greedy =
        greedy_choice({{}, found.logits}, found.history, found.params, found.allowed);
    if (greedy.token != dense.greedy().token || greedy.gap != dense.greedy().gap) {
      difference = "greedy decoding takes another token";
    }
    if (!difference.empty()) {
      return difference;
    }
  }
  return "";
}

std::string describe(const SampledRow& row) {
  return fmt::format("vocab {}, T {}, top_k {}, top_p {}, min_p {}, penalty {} of {}, mask {}",
                     row.logits.size(), row.params.temperature, row.params.top_k, row.params.top_p,
                     row.params.min_p, row.params.repetition_penalty, row.history.size(),
                     row.allowed != nullptr);
}

TEST(TokenProbsTest, EqualsTheDefinitionOnRandomRows) {
  RandomRows rows(1);
  int64_t ambiguous = 0;
  for (uint64_t i = 0; i < 100000; ++i) {
    const SampledRow row = rows.next();
    ambiguous += DenseDistribution(row).is_ambiguous() ? 1 : 0;
    ASSERT_EQ(compare(row, row, i), "") << "row " << i << ": " << describe(row);
  }
  EXPECT_LT(ambiguous, 2000) << "these were not compared";
}

TEST(TokenProbsTest, EqualsTheDefinitionOnLargeVocabularies) {
  RandomRows rows(2);
  for (uint64_t i = 0; i < 24; ++i) {
    const SampledRow row = rows.next(i % 2 == 0 ? 262144 : 100000 + static_cast<int64_t>(i));
    ASSERT_EQ(compare(row, row, i), "") << "row " << i << ": " << describe(row);
  }
}

/// max(scale * p - q, 0), one token after the other.
std::vector<double> dense_residual(const std::vector<double>& p, const std::vector<double>& q,
                                   double scale) {
  std::vector<double> rest(p.size());
  std::transform(p.begin(), p.end(), q.begin(), rest.begin(),
                 [scale](double a, double b) { return std::max(scale * a - b, 0.0); });
  return rest;
}

TEST(TokenProbsTest, ResidualsAreThoseOfTheRows) {
  RandomRows rows(3);
  for (uint64_t i = 0; i < 20000; ++i) {
    const SampledRow one = rows.next();
    const SampledRow other = rows.next(std::ssize(one.logits));
    if (DenseDistribution(one).probs().empty() || DenseDistribution(other).probs().empty()) {
      continue;
    }
    const TokenProbs p = probs_of(one, true);
    const TokenProbs q = probs_of(other, false);
    const TokenProbs rest = residual(p, q, 0.75);
    const std::vector<double> expected = dense_residual(p.row(), q.row(), 0.75);
    ASSERT_EQ(rest.row(), expected) << describe(one) << " / " << describe(other);
    ASSERT_EQ(residual(p.stored(), q.stored(), 0.75).row(), expected);
    ASSERT_NEAR(rest.sum(), std::accumulate(expected.begin(), expected.end(), 0.0), 1e-13);
    ASSERT_EQ(rest.sum() > 0.0, *std::max_element(expected.begin(), expected.end()) > 0.0);
    if (rest.sum() > 0.0) {
      CounterRandomness a(i);
      CounterRandomness b(i);
      ASSERT_EQ(rest.normalised().draw(a), b.draw(expected));
      ASSERT_NEAR(rest.normalised().sum(), 1.0, 1e-12);
    }
    // A second rejection: what is left without the best token of q.
    const Token gone = q.best();
    std::vector<double> less = q.row();
    less[static_cast<size_t>(gone)] = 0.0;
    ASSERT_EQ(q.without(gone).row(), less);
    ASSERT_EQ(residual(rest, q.without(gone)).row(), dense_residual(expected, less, 1.0));
  }
}

/// A row and what a damaged fast path would take it for.
struct Fault {
  std::string name;
  std::function<void(SampledRow& row, RandomRows& rows)> plant;
};

TEST(TokenProbsTest, TheComparisonFindsAFaultInEachPath) {
  const std::vector<Fault> faults = {
      {"one logit read from its neighbour",
       [](SampledRow& row, RandomRows& rows) {
         const auto at = static_cast<size_t>(rows.upto(std::ssize(row.logits) - 1));
         row.logits[at] = row.logits[at / 2];
       }},
      {"the last block left out",
       [](SampledRow& row, RandomRows&) { row.logits.back() = kNoLogit; }},
      {"top-k with one more", [](SampledRow& row, RandomRows&) { row.params.top_k += 1; }},
      {"top-k with one fewer",
       [](SampledRow& row, RandomRows&) { row.params.top_k -= row.params.top_k > 1 ? 1 : 0; }},
      {"top-p not reached", [](SampledRow& row, RandomRows&) { row.params.top_p *= 0.99; }},
      {"min-p twice as high",
       [](SampledRow& row, RandomRows&) {
         row.params.min_p = std::min(1.0, 2.0 * row.params.min_p);
       }},
      {"a temperature in single precision",
       [](SampledRow& row, RandomRows&) {
         row.params.temperature =
             static_cast<double>(static_cast<float>(row.params.temperature * 0.999));
       }},
      {"the last token of the history not penalised",
       [](SampledRow& row, RandomRows&) {
         row.history.resize(row.history.size() - (row.history.empty() ? 0 : 1));
       }},
      {"no mask", [](SampledRow& row, RandomRows&) { row.allowed = nullptr; }},
      {"the last word of the mask lost",
       [](SampledRow& row, RandomRows&) {
         if (row.allowed != nullptr && !row.allowed->empty()) {
           auto words = *row.allowed;
           words.pop_back();
           row.allowed = std::make_shared<const std::vector<uint32_t>>(std::move(words));
         }
       }},
      {"equal tokens in the other order",
       [](SampledRow& row, RandomRows&) { std::reverse(row.logits.begin(), row.logits.end()); }}};
  for (const Fault& fault : faults) {
    RandomRows rows(4);
    int64_t found = 0;
    for (uint64_t i = 0; i < 3000; ++i) {
      const SampledRow row = rows.next();
      SampledRow damaged = row;
      fault.plant(damaged, rows);
      if (!DenseDistribution(row).probs().empty() && !DenseDistribution(damaged).probs().empty()) {
        found += compare(damaged, row, i).empty() ? 0 : 1;
      }
    }
    EXPECT_GT(found, 20) << fault.name;
  }
}

/// Blocks whose sums are wrong.
class WrongSums final : public WeightBlocks {
 public:
  int64_t size() const override { return 2 * static_cast<int64_t>(kProbsBlock); }
  std::span<const double> sums() const override { return sums_; }
  void fill(int64_t /*block*/, std::span<double> weights) const override {
    std::fill(weights.begin(), weights.end(), 1.0 / static_cast<double>(2 * kProbsBlock));
  }

 private:
  std::vector<double> sums_ = {0.5, 0.4};
};

TEST(TokenProbsTest, EnumeratingChecksTheSumsThatDrawsGoBy) {
  EnumeratingRandomness random;
  EXPECT_THROW(TokenProbs(std::make_shared<WrongSums>()).draw(random), InternalError);
}

TEST(TokenProbsTest, OneHotTakesOneChoiceAndHasNothingElse) {
  const TokenProbs probs = TokenProbs::one_hot(3, 600);
  CounterRandomness random(1);
  EXPECT_EQ(probs.draw(random), 3);
  EXPECT_EQ(probs.best(), 3);
  EXPECT_EQ(probs[3], 1.0);
  EXPECT_EQ(probs[599], 0.0);
  EXPECT_EQ(probs.without(3).sum(), 0.0);
  EXPECT_THROW(probs.without(3).best(), InternalError);
  EXPECT_THROW(probs.without(3).normalised(), InternalError);
  EXPECT_THROW(probs[600], InternalError);
  EXPECT_THROW(probs[-1], InternalError);
}

TEST(TokenProbsTest, RefusesTokensOutsideOrOutOfOrder) {
  EXPECT_THROW(TokenProbs({1, 1}, {0.5, 0.5}, 3), InternalError);
  EXPECT_THROW(TokenProbs({2, 1}, {0.5, 0.5}, 3), InternalError);
  EXPECT_THROW(TokenProbs({1, 3}, {0.5, 0.5}, 3), InternalError);
  EXPECT_THROW(TokenProbs({-1, 2}, {0.5, 0.5}, 3), InternalError);
  EXPECT_THROW(TokenProbs({1}, {0.5, 0.5}, 3), InternalError);
  EXPECT_THROW(residual(TokenProbs::one_hot(0, 3), TokenProbs::one_hot(0, 4)), InternalError);
}

TEST(TokenProbsTest, TinySumsAreNormalisedToo) {
  const TokenProbs probs(std::vector<double>{3e-310, 1e-310, 0.0});
  EXPECT_NEAR(probs.normalised()[0], 0.75, 1e-12);
  EXPECT_NEAR(probs.normalised()[1], 0.25, 1e-12);
}

}  // namespace
}  // namespace specdec
