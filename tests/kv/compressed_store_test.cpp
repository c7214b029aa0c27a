// Attention over a cache that pools old keys and values, against its definition over explicit
// means, after random histories of chains, trees, commits, truncations, forks and snapshots.
#include "kv/compressed_store.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

#include "core/error.h"
#include "tests/kv/pooled_cache.h"
#include "tests/support/error_message.h"
#include "tests/support/parameter_name.h"

namespace specdec {
namespace {

using testing::HasSubstr;

/// Attention of the last of some tokens, by qkv [n, (heads + 2 kv_heads) * head_dim], in float64 by
/// the definition.
Tensor exact_attention(const PoolingCase& c, const Tensor& qkv) {
  const AttentionCase& shape = c.shape;
  const Tensor heads = qkv.view({qkv.size(0), shape.heads + 2 * shape.kv_heads, shape.head_dim});
  const Tensor stored =
      rounded_to(shape, heads.slice(1, shape.heads)).to(at::kDouble);  // keys, then values
  const int64_t last = qkv.size(0) - 1;
  std::vector<Tensor> seen;
  std::vector<double> weights;
  const auto see = [&](int64_t first, int64_t count) {
    seen.push_back(stored.narrow(0, first, count).mean(0));
    weights.push_back(std::log(static_cast<double>(count)));
  };
  const auto [chunk, recent, sink] = c.pooling;
  int64_t first = std::min(sink, last + 1);
  for (int64_t i = 0; i < first; ++i) {
    see(i, 1);
  }
  for (; first + chunk <= last - recent + 1; first += chunk) {
    see(first, chunk);
  }
  for (; first <= last; ++first) {
    see(first, 1);
  }
  const int64_t group = shape.heads / shape.kv_heads;
  const Tensor all = at::stack(seen, 1).repeat_interleave(group, 0);  // [2 heads, seen, dim]
  const Tensor query =
      rotated_as<double>(shape, heads[last].narrow(0, 0, shape.heads).to(at::kDouble));
  Tensor scores = at::matmul(all.narrow(0, 0, shape.heads), query.unsqueeze(-1)).squeeze(-1) *
                  AttentionCache::kScale;
  if (shape.soft_cap > 0) {
    scores = at::tanh(scores / shape.soft_cap) * shape.soft_cap;
  }
  const Tensor shares = at::softmax(scores + at::tensor(weights, at::kDouble), -1);
  return rotated_as<double>(
      shape, at::matmul(shares.unsqueeze(1), all.narrow(0, shape.heads, shape.heads)).squeeze(1));
}

class CompressedStoreTest : public testing::TestWithParam<PoolingCase> {
 protected:
  Tensor random_tokens(int64_t count) const {
    const AttentionCase& shape = GetParam().shape;
    return at::randn({count, (shape.heads + 2 * shape.kv_heads) * shape.head_dim}, shape.dtype);
  }

  /// Checks what the last of `tokens` gets, and that a fresh cache gives the same bits at once.
  void check(const Tensor& out, const Tensor& tokens) {
    const double tolerance = GetParam().shape.dtype == at::kFloat ? 5e-5 : 1e-7;
    EXPECT_LT(
        (out.to(at::kDouble) - exact_attention(GetParam(), tokens)).abs().max().item<double>(),
        tolerance);
    PooledCache fresh(GetParam(), 16);
    EXPECT_TRUE(at::equal(out, fresh.extend(0, {}, tokens)[tokens.size(0) - 1]))
        << tokens.size(0) << " tokens";
  }
};

TEST_P(CompressedStoreTest, RandomHistoriesHaveTheBitsOfAFreshPrefill) {
  at::manual_seed(3);
  std::mt19937 random(5);
  const auto below = [&random](int64_t bound) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(bound));
  };
  PooledCache cache(GetParam(), 5);
  struct Kept {
    RowId row;
    Tensor tokens;
  };
  std::vector<Kept> rows = {{0, random_tokens(0)}};
  std::shared_ptr<const KvSnapshot> snapshot;
  Tensor in_snapshot;
  for (int step = 0; step < 60 && !HasFailure(); ++step) {
    Kept& kept = rows[static_cast<size_t>(below(std::ssize(rows)))];
    const int64_t length = kept.tokens.size(0);
    const int64_t action = below(8);
    if (action == 0) {
      const int64_t shorter = cache.store().rewindable_to(kept.row, below(length + 1));
      cache.store().truncate(kept.row, shorter);
      kept.tokens = kept.tokens.narrow(0, 0, shorter);
      continue;
    }
    if (action == 1 && rows.size() < 3) {
      const int64_t shorter = below(length + 1);
      rows.push_back({cache.store().fork(kept.row, shorter), kept.tokens.narrow(0, 0, shorter)});
      continue;
    }
    if (action == 2 && rows.size() > 1) {
      cache.store().close(rows.back().row);
      rows.pop_back();
      continue;
    }
    if (action == 3) {
      if (snapshot) {
        const int64_t shorter = 1 + below(in_snapshot.size(0));
        cache.store().restore(kept.row, *snapshot, shorter);
        kept.tokens = in_snapshot.narrow(0, 0, shorter);
      }
      if (kept.tokens.size(0) > 0) {
        snapshot = cache.store().snapshot(kept.row);
        in_snapshot = kept.tokens;
      }
      continue;
    }
    const bool is_tree = below(2) == 0;
    const int64_t nodes = is_tree ? 6 : 1 + below(40);
    const Tensor tokens = random_tokens(nodes);
    const std::vector<std::vector<int64_t>> paths = {{0}, {0, 1}, {0, 2}, {0, 2, 3}, {4}, {4, 5}};
    const std::vector<int64_t> parents = {-1, 0, 0, 2, -1, 4};
    const Tensor out = cache.extend(kept.row, is_tree ? parents : std::vector<int64_t>(), tokens);
    const int64_t chosen = below(nodes);
    std::vector<int64_t> path;
    for (int64_t node = 0; node <= chosen; ++node) {
      path.push_back(node);
    }
    path = is_tree ? paths[static_cast<size_t>(chosen)] : path;
    const Tensor with_path =
        at::cat({kept.tokens, tokens.index_select(0, at::tensor(path, at::kLong))});
    check(out[chosen], with_path);
    if (below(3) == 0) {
      cache.store().undo_extend();
    } else {
      cache.store().commit(kept.row, path);
      kept.tokens = with_path;
    }
  }
}

TEST_P(CompressedStoreTest, LongPromptsInPiecesHaveTheBitsOfOnePiece) {
  at::manual_seed(7);
  const Tensor tokens = random_tokens(700);
  PooledCache pieces(GetParam(), 16);
  Tensor out;
  for (int64_t first = 0; first < 700; first += 175) {
    out = pieces.extend(0, {}, tokens.narrow(0, first, 175));
    std::vector<int64_t> path(175);
    std::iota(path.begin(), path.end(), 0);
    pieces.store().commit(0, path);
  }
  check(out[174], tokens);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, CompressedStoreTest,
    testing::Values(
        PoolingCase{{at::kFloat, 4, 2, 8, 0, 0, false}, {.chunk = 4, .recent = 3, .sink = 2}},
        PoolingCase{{at::kFloat, 3, 1, 20, 0, 2, false}, {.chunk = 7, .recent = 12, .sink = 0}},
        PoolingCase{{at::kDouble, 4, 2, 10, 0, 0, false}, {.chunk = 2, .recent = 3, .sink = 1}},
        PoolingCase{{at::kFloat, 4, 2, 8, 0, 0, false}, {.chunk = 1, .recent = 1, .sink = 0}},
        PoolingCase{{at::kFloat, 4, 2, 8, 0, 0, false}, {.chunk = 2, .recent = 1, .sink = 1}},
        PoolingCase{{at::kFloat, 4, 2, 64, 0, 0, false, 4, KvFormat::kQ8},
                    {.chunk = 16, .recent = 5, .sink = 4}},
        PoolingCase{{at::kFloat, 4, 2, 64, 0, 0, false, 4, KvFormat::kBFloat16},
                    {.chunk = 3, .recent = 4, .sink = 300}},
        PoolingCase{{at::kFloat, 2, 1, 32, 0, 0, false, 4, KvFormat::kQ4, 0, KvRotation::kHadamard},
                    {.chunk = 5, .recent = 9, .sink = 1}}),
    ParameterName());

TEST(CompressedStoreChecksTest, ABiasOfTokensIsAnError) {
  const PoolingCase c{{at::kFloat, 2, 1, 8, 0, 0, false}, {.chunk = 2, .recent = 1, .sink = 0}};
  PooledCache cache(c, 4);
  (void)cache.extend(0, {}, at::randn({3, 4 * 8}));
  Tensor out = at::empty({3, 2, 8});
  EXPECT_THAT(error_message<Error>([&] {
                paged_attention(at::randn({3, 2, 8}), cache.store().view(0),
                                {1.0, 0.0, at::zeros({3, 3})}, out);
              }),
              HasSubstr("takes no attention_bias"));
}

TEST(CompressedStoreChecksTest, LayersWithAWindowAndReadersSeeTokens) {
  const std::vector<LayerKv> layers = {{1, 8, 4}, {1, 8}, {1, 8, 0, 1}};
  CompressedStore store(std::make_unique<KvCache>(layers, KvCacheOptions{.max_length = 64}), layers,
                        {.chunk = 2, .recent = 3, .sink = 1});
  EXPECT_EQ(store.view(0).pooled, nullptr);
  EXPECT_EQ(store.view(0).window, 4);
  EXPECT_NE(store.view(1).pooled, nullptr);
  EXPECT_EQ(store.view(1).sink, 1);
  EXPECT_EQ(store.describe(2).pooled, store.view(1).pooled) << "it reads that layer's";
}

}  // namespace
}  // namespace specdec
