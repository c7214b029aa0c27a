// Trees that are drawn where their logits lie: tokens, random numbers and what is left out are
// those of the host's distributions.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/draft_vocabulary.h"
#include "core/error.h"
#include "core/kernels/cuda/emulation/emulation.h"
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/cuda/launch_shape.h"
#include "core/randomness.h"
#include "core/sampling.h"
#include "tests/core/kernels/cuda/drawn_siblings.h"

namespace specdec {
namespace {

SamplingParams ranking(SamplingParams sampling) {
  sampling.temperature = sampling.greedy() ? 1.0 : sampling.temperature;
  return sampling;
}

/// The tokens of a mask that is not closed, as the host reads it.
AllowedTokens allowed_tokens(const NodeMask& mask) {
  if (mask.base == nullptr && mask.added.empty()) {
    return nullptr;
  }
  auto words = std::make_shared<std::vector<uint32_t>>((kTreeVocab + 31) / 32);
  *words = mask.base != nullptr ? *mask.base : *words;
  for (const Token token : mask.added) {
    (*words)[static_cast<size_t>(token) / 32] |= 1U << (token % 32);
  }
  for (const Token token : mask.removed) {
    (*words)[static_cast<size_t>(token) / 32] &= ~(1U << (token % 32));
  }
  return words;
}

/// What the host finds by the same logits and masks of the rows.
std::vector<Token> host_tree(const at::Tensor& logits, const SamplingParams& sampling,
                             Randomness* random, std::span<const NodeMask> masks = {}) {
  std::vector<Token> tokens(kTreeParents.size(), -1);
  tokens[0] = 0;
  int64_t row = 0;
  for (size_t first = 1; first < tokens.size(); ++row) {
    const auto parent = static_cast<size_t>(kTreeParents[first]);
    const NodeMask mask = masks.empty() ? NodeMask{} : masks[static_cast<size_t>(row)];
    TokenProbs left;
    if (!mask.closed) {
      left = token_probs(LogitRow::of(logits, row), {}, ranking(sampling), allowed_tokens(mask));
    }
    const std::vector<Candidate> best =
        mask.closed ? std::vector<Candidate>() : left.top(kTreeVocab);
    for (; first < tokens.size() && kTreeParents[first] == static_cast<int64_t>(parent); ++first) {
      const auto rank = static_cast<size_t>(kTreeRanks[first]);
      if (tokens[parent] < 0 || mask.closed) {
        continue;
      }
      if (random == nullptr) {
        tokens[first] = rank < best.size() ? best[rank].token : -1;
      } else if (left.sum() > 0.0) {
        tokens[first] = left.draw(*random);
        left = left.without(tokens[first]);
      }
    }
  }
  return tokens;
}

/// Draws the tree by rows of logits on the kernels; `fed` becomes what is fed to each level. Under
/// masks of the rows each level is read.
std::optional<DrawnTree> drawn_tree(const at::Tensor& logits, TreeRequest request,
                                    std::vector<at::Tensor>* fed = nullptr,
                                    std::span<const NodeMask> masks = {}) {
  request.parents = kTreeParents;
  request.ranks = kTreeRanks;
  TreeMemory memory(logits.size(1), at::kCPU);
  const auto tree = begin_tree(request, logits.size(1), memory);
  int64_t row = 0;
  int64_t found = 0;  // levels
  std::optional<DrawnTree> drawn;
  for (const std::vector<int64_t>& level : branching_nodes(kTreeParents)) {
    const at::Tensor tokens =
        tree->draw(found++, logits.narrow(0, row, std::ssize(level)),
                   masks.empty() ? masks : masks.subspan(static_cast<size_t>(row), level.size()));
    row += std::ssize(level);
    if (fed != nullptr) {
      fed->push_back(tokens);
    }
    if (!masks.empty() && !(drawn = tree->read(found))) {
      return drawn;
    }
  }
  return masks.empty() ? tree->read(found) : drawn;
}

TEST(CudaDrawSiblingsTest, TreesAreTheHosts) {
  const std::vector<SamplingParams> cases = {
      {.temperature = 1.0},
      {.temperature = 0.6, .top_k = 2},
      {.temperature = 1.4, .top_p = 0.3},
      {.temperature = 1.0, .top_k = 9, .top_p = 0.9, .min_p = 0.3},
      {.temperature = 1e-3},
      {},
      {.top_k = 2}};
  int64_t left_out = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    for (const bool draws : {true, false}) {
      SCOPED_TRACE(testing::Message() << "case " << i << (draws ? ", drawn" : ", best"));
      if (draws && cases[i].greedy()) {
        continue;
      }
      cuda::emulation::set_seed(i);
      const at::Tensor logits = tree_logits(i);
      CounterRandomness random(5, 2);
      random.seek(40, Purpose::kDraft);
      TreeRequest request{.parents = {}, .ranks = {}, .sampling = cases[i]};
      if (draws) {
        request.random = DeviceRandomness{.key = *random.device_key(), .position = 40};
      }
      std::vector<at::Tensor> fed;
      const auto drawn = drawn_tree(logits, request, &fed);
      ASSERT_TRUE(drawn.has_value());
      EXPECT_EQ(drawn->tokens, host_tree(logits, cases[i], draws ? &random : nullptr));
      EXPECT_EQ(drawn->read_backs, (ReadBacks{1, 4 * (12 + 6)}));
      EXPECT_EQ(drawn->probs.defined(), draws);
      ASSERT_EQ(fed.size(), 3U);
      EXPECT_TRUE(at::equal(
          fed[1], at::tensor({drawn->tokens[6], drawn->tokens[7]}, at::kInt).clamp_min(0)));
      EXPECT_FALSE(fed[2].defined());
      left_out += std::count(drawn->tokens.begin(), drawn->tokens.end(), -1);
    }
  }
  EXPECT_GT(left_out, 20) << "cuts leave too few tokens for some nodes";
}

/// Where all nodes of a level have the same logits, these need not lie there as often.
TEST(CudaDrawSiblingsTest, ALevelMayHaveOneRow) {
  const SamplingParams cut{.temperature = 0.9, .top_k = 7};
  const SamplingParams greedy;
  for (const bool draws : {true, false}) {
    for (const SamplingParams* sampling : {&cut, &greedy}) {
      if (draws && sampling->greedy()) {
        continue;
      }
      const auto tree_of = [&](bool is_one) {
        TreeRequest request{
            .parents = kTreeParents, .ranks = kTreeRanks, .sampling = *sampling, .random = {}};
        if (draws) {
          request.random = DeviceRandomness{.key = {1, 2}, .position = 3};
        }
        TreeMemory memory(kTreeVocab, at::kCPU);
        const auto tree = begin_tree(request, kTreeVocab, memory);
        int64_t found = 0;
        for (const std::vector<int64_t>& level : branching_nodes(kTreeParents)) {
          const at::Tensor row = tree_logits(3).narrow(0, found, 1);
          const at::Tensor rows = row.expand({std::ssize(level), kTreeVocab});
          tree->draw(found++, is_one ? rows : rows.contiguous(), {});
        }
        return tree->read(found);
      };
      const auto one = tree_of(true);
      const auto many = tree_of(false);
      ASSERT_TRUE(one.has_value() && many.has_value());
      EXPECT_EQ(one->tokens, many->tokens);
      EXPECT_EQ(one->probs.defined(), draws);
      EXPECT_TRUE(!draws || at::equal(one->probs, many->probs));
    }
  }
}

/// Masks of the rows of tree_logits: with exceptions to a base that some share, of a few tokens,
/// closed, and of a text that is over.
struct TreeMasks {
  std::shared_ptr<const std::vector<uint32_t>> base =
      std::make_shared<std::vector<uint32_t>>((kTreeVocab + 31) / 32, 0x0f0f0f0fU);
  std::vector<Token> added = {7, 64, 299}, removed = {0, 33}, few = {5, 290};
  std::vector<NodeMask> rows = {{.base = base, .added = added, .removed = removed},
                                {.base = nullptr, .closed = true},
                                {.base = nullptr, .added = few},
                                {.base = base, .removed = removed},
                                {.base = base, .added = added},
                                {.base = nullptr}};
};

TEST(CudaDrawSiblingsTest, LevelsUnderMasksAreTheHosts) {
  const TreeMasks masks;
  const std::vector<SamplingParams> cases = {
      {.temperature = 1.0}, {.temperature = 0.9, .top_k = 2, .top_p = 0.9}, {}, {.top_k = 2}};
  for (size_t i = 0; i < cases.size(); ++i) {
    for (const bool draws : {true, false}) {
      SCOPED_TRACE(testing::Message() << "case " << i << (draws ? ", drawn" : ", best"));
      if (draws && cases[i].greedy()) {
        continue;
      }
      cuda::emulation::set_seed(i);
      at::Tensor logits = tree_logits(i);
      logits[1].fill_(std::nanf(""));  // of the closed node
      CounterRandomness random(5, 2);
      random.seek(40, Purpose::kDraft);
      TreeRequest request{.parents = {}, .ranks = {}, .sampling = cases[i]};
      if (draws) {
        request.random = DeviceRandomness{.key = *random.device_key(), .position = 40};
      }
      const auto drawn = drawn_tree(logits, request, nullptr, masks.rows);
      ASSERT_TRUE(drawn.has_value());
      EXPECT_EQ(drawn->tokens, host_tree(logits, cases[i], draws ? &random : nullptr, masks.rows));
      EXPECT_EQ(drawn->read_backs, (ReadBacks{3, 4 * (12 + 6)}));
      EXPECT_GE(drawn->tokens[1], 0);
      EXPECT_EQ(drawn->tokens[4], -1) << "nothing follows a closed node";
      ASSERT_TRUE(draws == drawn->probs.defined());
      const TokenProbs wanted =
          token_probs(LogitRow::of(logits, 3), {}, cases[i], allowed_tokens(masks.rows[3]));
      if (draws) {
        const at::Tensor row = at::tensor(wanted.row(), at::kDouble);
        EXPECT_LT((drawn->probs[3] - row).abs().max().item<double>(), 1e-12);
      }
      logits[0].index_fill_(0, at::tensor(masks.few, at::kLong), std::nanf(""));
      EXPECT_FALSE(drawn_tree(logits, request, nullptr, masks.rows).has_value());
    }
  }
}

TEST(CudaDrawSiblingsTest, AMaskOfImpossibleTokensIsTheHostsError) {
  const TreeMasks masks;
  at::Tensor logits = tree_logits(2);
  logits[2].index_fill_(0, at::tensor(masks.few, at::kLong),
                        -std::numeric_limits<float>::infinity());
  const SamplingParams sampling{.temperature = 1.0};
  TreeRequest request{.parents = {}, .ranks = {}, .sampling = sampling};
  EXPECT_FALSE(drawn_tree(logits, request, nullptr, masks.rows).has_value());
  request.random = DeviceRandomness{.key = {1, 2}, .position = 3};
  EXPECT_FALSE(drawn_tree(logits, request, nullptr, masks.rows).has_value());
  EXPECT_FALSE(cuda_rank(logits, sampling, 2, masks.rows).has_value());
}

TEST(CudaDrawSiblingsTest, ColumnsHaveNames) {
  std::vector<Token> names;
  for (Token column = 0; column < kTreeVocab; ++column) {
    names.push_back(3 * column + 1);
  }
  const DraftVocabulary vocabulary(names, 4 * kTreeVocab);
  const SamplingParams greedy;
  TreeRequest request{.parents = {}, .ranks = {}, .sampling = greedy};
  const at::Tensor logits = tree_logits(3);
  const std::vector<Token> columns = drawn_tree(logits, request)->tokens;
  request.vocabulary = &vocabulary;
  const std::vector<Token> tokens = drawn_tree(logits, request)->tokens;
  for (size_t node = 1; node < columns.size(); ++node) {
    EXPECT_EQ(tokens[node], 3 * columns[node] + 1);
  }
}

TEST(CudaDrawSiblingsTest, DamagedRowsOfTheTreeDrawNothing) {
  const float inf = std::numeric_limits<float>::infinity();
  const SamplingParams two{.temperature = 1.0, .top_k = 2};
  bool draws = true;
  for (const float damage : {std::nanf(""), inf, -inf}) {
    TreeRequest request{.parents = {}, .ranks = {}, .sampling = two};
    if (draws) {
      request.random = DeviceRandomness{.key = {1, 2}, .position = 3};
    }
    at::Tensor logits = tree_logits(4);
    logits[3].fill_(damage);  // after the third child, which is left out
    EXPECT_TRUE(drawn_tree(logits, request).has_value());
    at::Tensor row = logits[2];
    std::isinf(damage) && damage < 0 ? row.fill_(damage) : row.narrow(0, 299, 1).fill_(damage);
    EXPECT_FALSE(drawn_tree(logits, request).has_value());
    draws = !draws;
  }
}

TEST(CudaDrawSiblingsTest, CandidatesAreTheHosts) {
  const at::Tensor logits = tree_logits(6);
  for (const SamplingParams& sampling : std::vector<SamplingParams>{
           {}, {.temperature = 0.7}, {.temperature = 1.0, .top_k = 3}, {.top_p = 0.2}}) {
    const auto ranked = cuda_rank(logits, sampling, 5, {});
    ASSERT_TRUE(ranked.has_value());
    EXPECT_EQ(ranked->read_backs, (ReadBacks{1, 12 * 6 * 5 + 4 * 6 + 4}));
    for (int64_t row = 0; row < 6; ++row) {
      const auto wanted = token_probs(LogitRow::of(logits, row), {}, ranking(sampling)).top(5);
      const auto& found = ranked->best[static_cast<size_t>(row)];
      ASSERT_EQ(found.size(), wanted.size());
      for (size_t i = 0; i < wanted.size(); ++i) {
        EXPECT_EQ(found[i].token, wanted[i].token);
        EXPECT_NEAR(found[i].probability, wanted[i].probability, 1e-12);
      }
    }
  }
  logits[5][7] = std::nan("");
  EXPECT_FALSE(cuda_rank(logits, {}, 2, {}).has_value());
}

TEST(CudaDrawSiblingsTest, CandidatesUnderMasksAreTheHosts) {
  const TreeMasks masks;
  at::Tensor logits = tree_logits(6);
  logits[1].fill_(std::nanf(""));  // of the closed node
  const SamplingParams sampling{.temperature = 0.7, .top_k = 30};
  const auto ranked = cuda_rank(logits, sampling, 4, masks.rows);
  ASSERT_TRUE(ranked.has_value());
  for (int64_t row = 0; row < 6; ++row) {
    const NodeMask& mask = masks.rows[static_cast<size_t>(row)];
    const auto& found = ranked->best[static_cast<size_t>(row)];
    const auto wanted =
        mask.closed
            ? std::vector<Candidate>()
            : token_probs(LogitRow::of(logits, row), {}, sampling, allowed_tokens(mask)).top(4);
    ASSERT_EQ(found.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_EQ(found[i].token, wanted[i].token);
      EXPECT_NEAR(found[i].probability, wanted[i].probability, 1e-12);
    }
  }
  EXPECT_THROW(cuda_rank(logits, sampling, 4, std::span(masks.rows).first(5)), InternalError);
}

TEST(CudaDrawSiblingsTest, RefusesWhatIsNoTree) {
  const SamplingParams greedy;
  const std::vector<int64_t> out_of_order = {-1, 0, 1, 0};
  EXPECT_THROW(branching_nodes(out_of_order), InternalError);
  EXPECT_THROW(branching_nodes(std::vector<int64_t>{0}), InternalError);
  EXPECT_EQ(branching_nodes(kTreeParents),
            (std::vector<std::vector<int64_t>>{{0}, {1, 2, 3}, {6, 7}}));
  TreeMemory memory(kTreeVocab, at::kCPU);
  const auto tree = begin_tree({.parents = kTreeParents, .ranks = kTreeRanks, .sampling = greedy},
                               kTreeVocab, memory);
  EXPECT_THROW(tree->parents_in_level(0), InternalError) << "the root follows nothing";
  EXPECT_THROW(tree->parents_in_level(3), InternalError);
  EXPECT_TRUE(at::equal(tree->parents_in_level(1), at::tensor({0, 0, 0}, at::kInt)));
  EXPECT_TRUE(at::equal(tree->parents_in_level(2), at::tensor({0, 1}, at::kInt)));
  EXPECT_THROW(tree->read(0), InternalError) << "no level was found";
  EXPECT_THROW(tree->read(4), InternalError) << "it has three";
  EXPECT_THROW(tree->draw(0, tree_logits(1), {}), InternalError) << "more rows than nodes";
  EXPECT_THROW(tree->draw(3, tree_logits(1).narrow(0, 0, 1), {}), InternalError);
  EXPECT_TRUE(tree->draw(0, tree_logits(1).narrow(0, 0, 1), {}).defined());
  EXPECT_TRUE(tree->read(1).has_value());
  EXPECT_THROW(tree->read(1), InternalError) << "it was read";
  cuda::DrawSiblingsTask drawn{};
  cuda::BestSiblingsTask best{};
  EXPECT_EQ(specdec_cuda_draw_siblings(&drawn, nullptr), 0) << "no row is no work";
  EXPECT_EQ(specdec_cuda_best_siblings(&best, nullptr), 0);
  drawn.siblings.rows = best.siblings.rows = 1;
  EXPECT_EQ(specdec_cuda_draw_siblings(&drawn, nullptr), cuda::kInvalidValue);
  EXPECT_EQ(specdec_cuda_best_siblings(&best, nullptr), cuda::kInvalidValue);
  std::vector<int32_t> numbers(8);
  const std::vector<double> probs(8, 0.125);
  drawn.siblings = {numbers.data(), numbers.data(), numbers.data(), nullptr, 1};
  drawn.probs = probs.data();
  drawn.support = numbers.data();
  drawn.key = reinterpret_cast<const uint32_t*>(numbers.data());
  drawn.position = reinterpret_cast<const int64_t*>(numbers.data());
  drawn.vocab = 8;
  drawn.most = 1;
  EXPECT_EQ(specdec_cuda_draw_siblings(&drawn, nullptr), 0);
  drawn.siblings.fed = numbers.data();
  EXPECT_EQ(specdec_cuda_draw_siblings(&drawn, nullptr), cuda::kInvalidValue) << "without places";
}

}  // namespace
}  // namespace specdec
