#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "core/kernels/cuda/emulation/emulation.h"
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/cuda/launch_shape.h"
#include "core/sampling.h"
#include "grammar/token_mask.h"

namespace specdec {
namespace {

using at::Tensor;

/// Grammar masks of some rows, as the kernel gets them.
struct CudaMasks {
  std::vector<uint32_t> bases;
  std::vector<int32_t> of_row, exception_starts{0}, exceptions;
  int32_t words;
};

Tensor cuda_probs(const Tensor& logits, int64_t vocab, const SamplingParams& params,
                  const CudaMasks* masks = nullptr) {
  const Tensor probs =
      at::full({logits.size(0), vocab}, std::numeric_limits<double>::quiet_NaN(), at::kDouble);
  cuda::TargetProbsTask task{logits.const_data_ptr<float>(),
                             probs.mutable_data_ptr<double>(),
                             logits.size(1),
                             static_cast<int32_t>(logits.size(0)),
                             static_cast<int32_t>(vocab),
                             params.temperature,
                             static_cast<int32_t>(params.top_k),
                             params.top_p,
                             params.min_p};
  if (masks != nullptr) {
    task.masks.bases = masks->bases.data();
    task.masks.of_row = masks->of_row.data();
    task.masks.exception_starts = masks->exception_starts.data();
    task.masks.exceptions = masks->exceptions.data();
    task.masks.words = masks->words;
  }
  EXPECT_EQ(specdec_cuda_target_probs(&task, nullptr), 0);
  return probs;
}

/// A row of `vocab` logits.
void expect_the_hosts(const Tensor& logits, const Tensor& probs, const SamplingParams& params,
                      const AllowedTokens& allowed) {
  std::vector<double> expected(static_cast<size_t>(probs.size(0)));
  target_distribution({logits.const_data_ptr<float>(), expected.size()}, {}, params, expected,
                      allowed);
  const double* actual = probs.const_data_ptr<double>();
  for (size_t id = 0; id < expected.size(); ++id) {
    ASSERT_EQ(actual[id] > 0, expected[id] > 0) << id << ": " << actual[id] << " " << expected[id];
    ASSERT_NEAR(actual[id], expected[id], 1e-12);
  }
}

/// Rows of logits, with padding behind the vocabulary that would win.
void expect_the_hosts(const Tensor& logits, const SamplingParams& params) {
  const int64_t vocab = logits.size(1) - 3;
  logits.narrow(1, vocab, 3).fill_(1000);
  const Tensor probs = cuda_probs(logits, vocab, params);
  for (int64_t row = 0; row < logits.size(0); ++row) {
    expect_the_hosts(logits[row], probs[row], params, nullptr);
  }
}

TEST(CudaTargetProbsTest, EqualTheHosts) {
  at::manual_seed(6);
  const std::vector<SamplingParams> all = {
      {},
      {.temperature = 1},
      {.temperature = 0.3, .top_k = 7},
      {.temperature = 1.5, .top_p = 0.8},
      {.temperature = 0.7, .top_p = 0.01},
      {.temperature = 1, .min_p = 0.1},
      {.temperature = 0.9, .top_k = 40, .top_p = 0.9, .min_p = 0.02},
      {.temperature = 1, .top_k = 100'000},
      {.temperature = 1e-310},
  };
  for (const SamplingParams& params : all) {
    for (const int64_t vocab : {1, 30, 1300}) {
      cuda::emulation::set_seed(static_cast<uint64_t>(vocab));
      SCOPED_TRACE(testing::Message()
                   << "temperature " << params.temperature << " top_k " << params.top_k << " top_p "
                   << params.top_p << " of " << vocab);
      expect_the_hosts(at::randn({2, vocab + 3}) * 3, params);
    }
  }
}

TEST(CudaTargetProbsTest, EqualOnesGoToTheLowestIds) {
  at::manual_seed(7);
  for (const SamplingParams& params :
       {SamplingParams{}, SamplingParams{.temperature = 1, .top_k = 9},
        SamplingParams{.temperature = 1, .top_k = 1},
        SamplingParams{.temperature = 1, .top_p = 0.33}}) {
    SCOPED_TRACE(params.top_k);
    expect_the_hosts(at::randint(-2, 3, {2, 703}, at::kFloat), params);
    expect_the_hosts(at::zeros({1, 703}), params);
    const Tensor signs = at::zeros({1, 40});
    signs.narrow(1, 0, 20).neg_();  // -0 is 0
    expect_the_hosts(signs, params);
  }
}

TEST(CudaTargetProbsTest, ForbiddenTokensHaveNoMass) {
  at::manual_seed(8);
  const Tensor logits = at::randn({1, 103});
  logits.narrow(1, 10, 80).fill_(-std::numeric_limits<float>::infinity());
  expect_the_hosts(logits, {.temperature = 1, .top_k = 60});
  expect_the_hosts(logits, {.temperature = 2, .top_p = 0.999});
}

/// The mask of a row; a base of its own.
void add_mask(const TokenMask& mask, CudaMasks& masks) {
  const TokenMask::Content& content = mask.content();
  masks.of_row.push_back(-1);
  if (content.base != nullptr) {
    masks.of_row.back() = static_cast<int32_t>(std::ssize(masks.bases) / masks.words);
    masks.bases.insert(masks.bases.end(), content.base->begin(), content.base->end());
  }
  masks.exceptions.insert(masks.exceptions.end(), content.added.begin(), content.added.end());
  for (const Token token : content.removed) {
    masks.exceptions.push_back(~token);
  }
  masks.exception_starts.push_back(static_cast<int32_t>(masks.exceptions.size()));
}

/// About a third of the tokens in the base, and exceptions of both kinds; without a base, some
/// tokens.
TokenMask random_mask(int64_t vocab, bool with_base, std::mt19937_64& random) {
  auto content = std::make_shared<TokenMask::Content>();
  if (with_base) {
    auto base = std::make_shared<MaskWords>(static_cast<size_t>((vocab + 31) / 32));
    for (Token token = 0; token < vocab; ++token) {
      set_token(*base, token, random() % 3 == 0);
    }
    content->base = base;
  }
  for (Token token = 0; token < vocab; ++token) {
    if (random() % 5 == 0) {
      const bool in_base = with_base && has_token(*content->base, token);
      (in_base ? content->removed : content->added).push_back(token);
    }
  }
  return {content, vocab};
}

std::shared_ptr<const std::vector<uint32_t>> words_of(const TokenMask& mask) {
  auto words = std::make_shared<std::vector<uint32_t>>((mask.vocab_size() + 31) / 32);
  mask.write(*words);
  return words;
}

/// Masks of rows as the kernels and the host get them.
struct MaskedRows {
  CudaMasks masks;
  std::vector<AllowedTokens> allowed;  ///< of each row; nullptr = all

  explicit MaskedRows(int64_t vocab)
      : masks{.bases = {},
              .of_row = {},
              .exceptions = {},
              .words = static_cast<int32_t>((vocab + 31) / 32)} {}

  void add(const TokenMask& mask) {
    add_mask(mask, masks);
    allowed.push_back(words_of(mask));
  }
  void add_all_tokens() {
    masks.of_row.push_back(cuda::kCudaAllTokens);
    masks.exception_starts.push_back(masks.exception_starts.back());
    allowed.push_back(nullptr);
  }
};

/// Three rows with random masks, and one that may have all tokens.
MaskedRows random_rows(int64_t vocab, std::mt19937_64& random) {
  MaskedRows rows(vocab);
  for (const bool with_base : {true, false, true}) {
    rows.add(random_mask(vocab, with_base, random));
  }
  rows.add_all_tokens();
  return rows;
}

TEST(CudaTargetProbsTest, GrammarsForbidTokens) {
  at::manual_seed(10);
  std::mt19937_64 random(10);
  for (const SamplingParams& params :
       {SamplingParams{}, SamplingParams{.temperature = 1},
        SamplingParams{.temperature = 0.7, .top_k = 50},
        SamplingParams{.temperature = 1.5, .top_p = 0.8, .min_p = 0.01}}) {
    for (const int64_t vocab : {40, 1300}) {
      cuda::emulation::set_seed(static_cast<uint64_t>(vocab));
      const Tensor logits = at::randn({4, vocab}) * 3;
      const MaskedRows rows = random_rows(vocab, random);
      const Tensor probs = cuda_probs(logits, vocab, params, &rows.masks);
      for (int64_t row = 0; row < 4; ++row) {
        SCOPED_TRACE(testing::Message() << "row " << row << " of " << vocab);
        expect_the_hosts(logits[row], probs[row], params, rows.allowed[static_cast<size_t>(row)]);
      }
    }
  }
}

TEST(CudaTargetProbsTest, TokensBeyondTheMaskAreForbidden) {
  const Tensor logits = at::arange(100, at::kFloat).view({1, 100});
  CudaMasks masks{.bases = {0xFFFFFFFFU}, .of_row = {0}, .exceptions = {70, ~31, 200}, .words = 1};
  masks.exception_starts.push_back(3);
  const Tensor probs = cuda_probs(logits, 100, {.temperature = 1}, &masks);
  EXPECT_GT(probs[0][70].item<double>(), 0.9);
  EXPECT_GT(probs[0][30].item<double>(), 0.0);
  EXPECT_EQ(probs[0][31].item<double>(), 0.0);
  EXPECT_EQ(probs[0][99].item<double>(), 0.0);
}

TEST(CudaTargetProbsTest, RefusesMasksWithoutExceptions) {
  const int32_t base = -1;
  cuda::TargetProbsTask task{};
  task.count = 1;
  task.vocab = 1;
  task.stride = 1;
  task.masks.of_row = &base;
  EXPECT_EQ(specdec_cuda_target_probs(&task, nullptr), cuda::kInvalidValue);
}

/// Rows of which some are damaged, and masks, the last of which allows nothing.
struct DamagedRows {
  Tensor logits = at::zeros({6, 1300});
  CudaMasks masks{.bases = {},
                  .of_row = std::vector<int32_t>(6, cuda::kCudaAllTokens),
                  .exception_starts = std::vector<int32_t>(7, 0),
                  .exceptions = {},
                  .words = 0};

  DamagedRows() {
    const float inf = std::numeric_limits<float>::infinity();
    logits[1][1299] = std::numeric_limits<float>::quiet_NaN();
    logits[2][600] = inf;
    logits[3].fill_(-inf);
    logits[4].fill_(-inf);
    logits[4][7] = -3;
    masks.of_row[5] = -1;
  }
};

TEST(CudaTargetProbsTest, RowsWithoutNumbersHaveNoSupport) {
  const DamagedRows rows;
  const Tensor support = at::full({6}, -7, at::kInt);
  const Tensor probs = at::empty({6, 1300}, at::kDouble);
  cuda::TargetProbsTask task{};
  task.logits = rows.logits.const_data_ptr<float>();
  task.probs = probs.mutable_data_ptr<double>();
  task.stride = task.vocab = 1300;
  task.count = 6;
  task.temperature = task.top_p = 1;
  task.masks.of_row = rows.masks.of_row.data();
  task.masks.exception_starts = rows.masks.exception_starts.data();
  task.masks.exceptions = rows.masks.exceptions.data();
  task.support = support.mutable_data_ptr<int32_t>();
  ASSERT_EQ(specdec_cuda_target_probs(&task, nullptr), 0);
  EXPECT_TRUE(at::equal(support, at::tensor({1300, 0, 0, 0, 1, 0}, at::kInt))) << support;
}

/// A path of three nodes, of four; its masses after each, [allowed | token].
Tensor cuda_masses(const Tensor& logits, const CudaMasks& masks, double temperature) {
  const Tensor tokens = at::tensor({0, 5, 6, 7}, at::kInt);
  const Tensor path = at::tensor({0, 1, 3, -1}, at::kInt);
  const Tensor end = at::tensor({2, 9}, at::kInt);  // accepted, next
  const Tensor masses = at::full({2, 4}, -7.0, at::kDouble);
  cuda::LogMassesTask task{};
  task.logits = logits.const_data_ptr<float>();
  task.tokens = tokens.const_data_ptr<int32_t>();
  task.path = path.const_data_ptr<int32_t>();
  task.accepted = end.const_data_ptr<int32_t>();
  task.next = task.accepted + 1;
  task.allowed = masses.mutable_data_ptr<double>();
  task.token = task.allowed + 4;
  task.stride = logits.size(1);
  task.temperature = temperature;
  task.nodes = 4;
  task.vocab = static_cast<int32_t>(logits.size(1)) - 3;
  task.masks = {masks.of_row.data(), masks.bases.data(), masks.exception_starts.data(),
                masks.exceptions.data(), masks.words};
  EXPECT_EQ(specdec_cuda_log_masses(&task, nullptr), 0);
  return masses;
}

TEST(CudaLogMassesTest, EqualTheHosts) {
  at::manual_seed(11);
  std::mt19937_64 random(11);
  for (const int64_t vocab : {40, 1300}) {
    for (const double temperature : {0.7, 1.0}) {
      SCOPED_TRACE(testing::Message() << vocab << " at " << temperature);
      const Tensor logits = at::randn({4, vocab + 3}) * 3;
      logits.narrow(1, vocab, 3).fill_(1000);
      logits[1][5] = -std::numeric_limits<float>::infinity();
      MaskedRows rows(vocab);
      for (const bool with_base : {true, false, true, false}) {
        rows.add(random_mask(vocab, with_base, random));
      }
      const Tensor masses = cuda_masses(logits, rows.masks, temperature);
      const std::vector<std::pair<int64_t, Token>> path = {{0, 5}, {1, 7}, {3, 9}};
      for (int64_t i = 0; i < std::ssize(path); ++i) {
        const auto [node, token] = path[static_cast<size_t>(i)];
        const LogMasses wanted = log_masses(LogitRow::of(logits.narrow(1, 0, vocab), node), {},
                                            {.temperature = temperature},
                                            rows.allowed[static_cast<size_t>(node)], token);
        EXPECT_NEAR(masses[0][i].item<double>(), wanted.allowed, 1e-12) << i;
        EXPECT_NEAR(masses[1][i].item<double>(), wanted.token, 1e-12) << i;
      }
      EXPECT_EQ(masses[0][3].item<double>(), -7.0) << "no node of the path";
    }
  }
}

/// What the kernels choose in rows of `vocab` logits.
struct CudaChoices {
  Tensor tokens;   ///< [rows]
  Tensor largest;  ///< [rows, 2]
  Tensor masses;   ///< [2, rows]
};

CudaChoices cuda_choices(const Tensor& logits, int64_t vocab, const CudaMasks& masks) {
  const int64_t rows = logits.size(0);
  const CudaChoices found{at::full({rows}, -7, at::kInt), at::full({rows, 2}, -7.0, at::kFloat),
                          at::full({2, rows}, -7.0, at::kDouble)};
  cuda::BestAllowedTask best{};
  best.logits = logits.const_data_ptr<float>();
  best.tokens = found.tokens.mutable_data_ptr<int32_t>();
  best.largest = found.largest.mutable_data_ptr<float>();
  best.stride = logits.size(1);
  best.count = static_cast<int32_t>(rows);
  best.vocab = static_cast<int32_t>(vocab);
  best.masks = {masks.of_row.data(), masks.bases.data(), masks.exception_starts.data(),
                masks.exceptions.data(), masks.words};
  EXPECT_EQ(specdec_cuda_best_allowed(&best, nullptr), 0);
  cuda::LogMassesTask task{};
  task.logits = best.logits;
  task.chosen = best.tokens;
  task.allowed = found.masses.mutable_data_ptr<double>();
  task.token = task.allowed + rows;
  task.stride = best.stride;
  task.temperature = 1.0;
  task.nodes = best.count;
  task.vocab = best.vocab;
  task.masks = best.masks;
  EXPECT_EQ(specdec_cuda_log_masses(&task, nullptr), 0);
  return found;
}

TEST(CudaBestAllowedTest, EqualTheHosts) {
  at::manual_seed(12);
  std::mt19937_64 random(12);
  for (const int64_t vocab : {40, 1300}) {
    for (const bool with_ties : {false, true}) {
      SCOPED_TRACE(testing::Message() << vocab << (with_ties ? " with ties" : ""));
      cuda::emulation::set_seed(static_cast<uint64_t>(vocab));
      const Tensor logits = with_ties ? at::randint(-2, 3, {4, vocab + 3}, at::kFloat)
                                      : at::randn({4, vocab + 3}) * 3;
      logits.narrow(1, vocab, 3).fill_(1000);
      const MaskedRows rows = random_rows(vocab, random);
      const CudaChoices found = cuda_choices(logits, vocab, rows.masks);
      for (int64_t row = 0; row < 4; ++row) {
        const LogitRow own = LogitRow::of(logits.narrow(1, 0, vocab), row);
        const AllowedTokens& mask = rows.allowed[static_cast<size_t>(row)];
        const GreedyChoice wanted = greedy_choice(own, {}, {}, mask);
        EXPECT_EQ(found.tokens[row].item<int32_t>(), wanted.token) << row;
        EXPECT_EQ(found.largest[row][0].item<double>() - found.largest[row][1].item<double>(),
                  wanted.gap)
            << row;
        const LogMasses masses = log_masses(own, {}, {}, mask, wanted.token);
        EXPECT_NEAR(found.masses[0][row].item<double>(), masses.allowed, 1e-12) << row;
        EXPECT_NEAR(found.masses[1][row].item<double>(), masses.token, 1e-12) << row;
      }
    }
  }
}

TEST(CudaBestAllowedTest, RowsWithoutNumbersHaveNone) {
  const DamagedRows rows;
  const CudaChoices found = cuda_choices(rows.logits, 1300, rows.masks);
  EXPECT_TRUE(at::equal(found.tokens, at::tensor({0, -1, -1, -1, 7, -1}, at::kInt)))
      << found.tokens;
  EXPECT_EQ(found.largest[4][1].item<float>(), -std::numeric_limits<float>::infinity())
      << "there is no other";
  EXPECT_EQ(found.masses[0][5].item<double>(), -7.0) << "nothing is written";
}

TEST(CudaBestAllowedTest, RefusesMasksWithoutExceptions) {
  const int32_t base = -1;
  cuda::BestAllowedTask task{};
  task.count = 1;
  task.vocab = 1;
  task.stride = 1;
  task.masks.of_row = &base;
  EXPECT_EQ(specdec_cuda_best_allowed(&task, nullptr), cuda::kInvalidValue);
}

/// One row of all nodes, as other kernels take it, would be row 0's answer for each.
TEST(CudaBestAllowedTest, RefusesRowsThatAreOne) {
  const std::vector<float> logits = {1.0F, 3.0F, 2.0F, 0.0F};
  std::vector<int32_t> tokens(2, -7);
  std::vector<float> largest(4);
  cuda::BestAllowedTask task{};
  task.logits = logits.data();
  task.tokens = tokens.data();
  task.largest = largest.data();
  task.count = task.vocab = 2;
  for (const int64_t stride : {0, 1, -2}) {
    task.stride = stride;
    EXPECT_EQ(specdec_cuda_best_allowed(&task, nullptr), cuda::kInvalidValue);
  }
  EXPECT_EQ(tokens, std::vector<int32_t>(2, -7));
  task.stride = 2;
  EXPECT_EQ(specdec_cuda_best_allowed(&task, nullptr), 0);
  EXPECT_EQ(tokens, (std::vector<int32_t>{1, 0}));
}

TEST(CudaLogMassesTest, RefusesRowsThatAreOne) {
  const std::vector<float> logits(4);
  const std::vector<int32_t> chosen = {0, 1};
  std::vector<double> allowed(2), token(2);
  cuda::LogMassesTask task{};
  task.logits = logits.data();
  task.chosen = chosen.data();
  task.allowed = allowed.data();
  task.token = token.data();
  task.temperature = 1.0;
  task.nodes = task.vocab = 2;
  for (const int64_t stride : {0, 1, -2}) {
    task.stride = stride;
    EXPECT_EQ(specdec_cuda_log_masses(&task, nullptr), cuda::kInvalidValue);
  }
  task.stride = 2;
  EXPECT_EQ(specdec_cuda_log_masses(&task, nullptr), 0);
  EXPECT_LT(token[1], 0.0);
}

TEST(CudaLogMassesTest, RefusesTheTemperatureOfNone) {
  cuda::LogMassesTask task{};
  task.nodes = task.vocab = 1;
  task.stride = 1;
  EXPECT_EQ(specdec_cuda_log_masses(&task, nullptr), cuda::kInvalidValue);
}

}  // namespace
}  // namespace specdec
