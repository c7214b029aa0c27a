#include "core/kernels/attention.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "core/kernels/cuda/emulation/emulation.h"
#include "core/kernels/cuda/launch_shape.h"
#include "tests/core/kernels/cuda/cuda_attend.h"
#include "tests/support/parameter_name.h"
#include "tests/support/ranged_reference.h"

namespace specdec {
namespace {

constexpr float kUnwritten = std::numeric_limits<float>::quiet_NaN();

class CudaAttentionTest : public testing::TestWithParam<AttentionCase> {
 protected:
  void SetUp() override {
    at::manual_seed(3);
    cuda::emulation::set_seed(3);
  }

  int64_t below(int64_t bound) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(bound));
  }

  static void keep(AttentionCache& cache, int64_t row, int64_t tokens) {
    std::vector<int64_t> path(static_cast<size_t>(tokens));
    std::iota(path.begin(), path.end(), 0);
    cache.kv().commit(row, path);
  }

  /// Rows of these lengths.
  static void prefill(AttentionCache& cache, const std::vector<Tensor>& prompts) {
    std::vector<int64_t> rows;
    for (size_t row = 0; row < prompts.size(); ++row) {
      rows.insert(rows.end(), static_cast<size_t>(prompts[row].size(0)), static_cast<int64_t>(row));
    }
    cache.extend(rows, {}, at::cat(prompts));
    for (size_t row = 0; row < prompts.size(); ++row) {
      keep(cache, static_cast<int64_t>(row), prompts[row].size(0));
    }
  }

  Tensor random_qkv(int64_t nodes) const {
    const AttentionCase& c = GetParam();
    return at::randn({nodes, (c.heads + 2 * c.kv_heads) * c.head_dim});
  }

  std::vector<int64_t> random_parents(int64_t nodes) {
    std::vector<int64_t> parents;
    const int64_t reach = 1 + below(4);
    for (int64_t node = 0; node < nodes; ++node) {
      parents.push_back(std::max<int64_t>(-1, node - 1 - below(reach)));
    }
    return parents;
  }

  /// Scores of long heads are sums of more terms, each of which either op rounds its own way.
  static void expect_close(const Tensor& out, const Tensor& expected) {
    const double tolerance = 2e-6 + 5e-8 * static_cast<double>(GetParam().head_dim);
    EXPECT_TRUE(at::allclose(out, expected, 1e-4, tolerance))
        << (out - expected).abs().max().item<float>();
  }

  std::mt19937_64 random_{7};
};

TEST_P(CudaAttentionTest, EqualsTheOp) {
  for (const int64_t length : {1, 3, 127, 129, 300}) {
    for (const int64_t nodes : {1, 7}) {
      SCOPED_TRACE(testing::Message() << length << " + " << nodes);
      AttentionCache cache(GetParam());
      prefill(cache, {random_qkv(length), random_qkv(5)});
      std::vector<int64_t> rows(static_cast<size_t>(nodes), 0);
      std::vector<int64_t> parents = random_parents(nodes);
      rows.insert(rows.end(), 2, 1);  // and two siblings of the other row
      parents.insert(parents.end(), 2, -1);
      const Tensor queries = cache.extend(rows, parents, random_qkv(nodes + 2));
      Tensor bias;
      if (GetParam().bias) {
        bias = at::randn({nodes + 2, length + 2});
        bias[0][0] = -std::numeric_limits<float>::infinity();
      }
      expect_close(cuda_attend(cache, queries, bias), cache.attend(queries, bias));
    }
  }
}

TEST_P(CudaAttentionTest, APromptEqualsTheOp) {
  AttentionCache cache(GetParam());
  const Tensor queries = cache.extend({}, {}, random_qkv(140));
  expect_close(cuda_attend(cache, queries), cache.attend(queries));
  if (GetParam().format == KvFormat::kHierarchical) {
    expect_close(cuda_attend(cache, queries, {}, KvRead::kUpperHalf),
                 cache.attend(queries, {}, KvRead::kUpperHalf));
  }
}

/// The node of a tree, and the same tokens as a chain that is kept, then decoded alone.
TEST_P(CudaAttentionTest, ANodeOfATreeHasTheBitsOfDecoding) {
  for (const int64_t length : {2, 125, 260}) {
    SCOPED_TRACE(length);
    const Tensor prompt = random_qkv(length);
    const Tensor tree = random_qkv(9);
    const std::vector<int64_t> parents = random_parents(9);
    AttentionCache cache(GetParam());
    prefill(cache, {random_qkv(20), prompt});
    // Another row's node comes first, so tiles hold rows of different nodes than alone.
    std::vector<int64_t> rows(10, 1);
    std::vector<int64_t> all_parents = parents;
    rows[0] = 0;
    all_parents.insert(all_parents.begin(), -1);
    const Tensor foreign = at::full({1, tree.size(1)}, std::numeric_limits<float>::infinity());
    const Tensor queries = cache.extend(rows, all_parents, at::cat({foreign, tree}));
    const Tensor among_others = cuda_attend(cache, queries);
    for (const int64_t node : {0, 4, 8}) {
      std::vector<int64_t> path;
      for (int64_t n = node; n >= 0; n = parents[static_cast<size_t>(n)]) {
        path.insert(path.begin(), n);
      }
      const Tensor tokens = at::cat({prompt, tree.index_select(0, at::tensor(path, at::kLong))});
      const int64_t kept = tokens.size(0) - 1;
      AttentionCache alone(GetParam());
      prefill(alone, {tokens.narrow(0, 0, kept)});
      cuda::emulation::set_seed(static_cast<uint64_t>(node));
      const Tensor decoded = cuda_attend(alone, alone.extend({}, {}, tokens.narrow(0, kept, 1)));
      EXPECT_TRUE(at::equal(decoded[0], among_others[node + 1])) << node;
    }
  }
}

/// A node sees neither its siblings, which hold NaN and infinities, nor memory that nobody wrote.
TEST_P(CudaAttentionTest, WhatIsHiddenMayBeAnything) {
  const Tensor prompt = random_qkv(130);
  const Tensor token = random_qkv(1);
  AttentionCache alone(GetParam());
  prefill(alone, {prompt});
  const Tensor expected = cuda_attend(alone, alone.extend({}, {}, token));
  AttentionCache cache(GetParam());
  cache.extend({}, {}, random_qkv(140));  // so that there are pages
  const KvView view = cache.kv().view(0);
  for (const Tensor& memory : {view.keys, view.values, view.exact.keys, view.exact.values}) {
    if (!memory.defined()) {
      continue;
    }
    const int64_t pages = std::min<int64_t>(memory.size(0), 64);
    std::memset(memory.mutable_data_ptr(), 255, memory.narrow(0, 0, pages).nbytes());  // NaN
  }
  cache.kv().truncate(0, 0);
  prefill(cache, {prompt});
  const Tensor nodes = at::cat({at::full_like(token, kUnwritten), token,
                                at::full_like(token, std::numeric_limits<float>::infinity())});
  const Tensor out = cuda_attend(cache, cache.extend({}, {-1, -1, -1}, nodes));
  EXPECT_TRUE(at::equal(out[1], expected[0]));
  EXPECT_FALSE(out[0].isfinite().any().item<bool>());
}

TEST_P(CudaAttentionTest, PaddingIsZero) {
  AttentionCache cache(GetParam());
  prefill(cache, {random_qkv(10)});
  const Tensor queries = cache.extend({}, {}, random_qkv(3));
  const Tensor expected = cuda_attend(cache, queries);
  Tensor positions = cache.kv().view(0).tables->positions;
  positions[2] = -1;
  const Tensor padded = cuda_attend(cache, queries);
  EXPECT_TRUE(at::equal(padded.narrow(0, 0, 2), expected.narrow(0, 0, 2)));
  EXPECT_TRUE((padded[2] == 0).all().item<bool>());
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, CudaAttentionTest,
    testing::Values(AttentionCase{at::kFloat, 4, 1, 64, 0, 0, false},
                    AttentionCase{at::kFloat, 8, 1, 64, 100, 0, false, 16},
                    AttentionCase{at::kFloat, 3, 3, 16, 0, 5, true},
                    AttentionCase{at::kFloat, 2, 1, 8, 0, 0, false, 16, KvFormat::kBFloat16},
                    AttentionCase{at::kFloat, 4, 2, 32, 30, 0, false, 16},
                    AttentionCase{at::kFloat, 1, 1, 2, 0, 0, false},
                    AttentionCase{at::kFloat, 6, 2, 128, 130, 50, false, 32, KvFormat::kBFloat16},
                    AttentionCase{at::kFloat, 4, 2, 256, 0, 0, false, 16, KvFormat::kBFloat16},
                    AttentionCase{at::kFloat, 2, 1, 512, 7, 0, false, 16},
                    AttentionCase{at::kFloat, 4, 2, 32, 10, 0, false, 16, KvFormat::kNative, 5},
                    AttentionCase{at::kFloat, 4, 1, 64, 40, 0, true, 16, KvFormat::kFloat16, 130},
                    AttentionCase{at::kFloat, 4, 2, 40, 0, 5, false, 16, KvFormat::kFp8E4m3},
                    AttentionCase{at::kFloat, 3, 1, 72, 100, 0, false, 16, KvFormat::kQ8},
                    AttentionCase{at::kFloat, 8, 2, 64, 0, 0, true, 16, KvFormat::kQ4},
                    AttentionCase{at::kFloat, 2, 1, 6, 3, 0, false, 4, KvFormat::kQ4, 2},
                    AttentionCase{at::kFloat, 4, 2, 96, 0, 5, false, 16, KvFormat::kQ4, 0,
                                  KvRotation::kHadamard},
                    AttentionCase{at::kFloat, 3, 1, 70, 0, 0, true, 16, KvFormat::kHierarchical},
                    AttentionCase{at::kFloat, 4, 2, 40, 100, 3, false, 16, KvFormat::kQ3},
                    AttentionCase{at::kFloat, 6, 3, 40, 90, 0, true, 5, KvFormat::kQ3, 2,
                                  KvRotation::kHadamard, 0, true},
                    AttentionCase{at::kFloat, 1, 1, 512, 60, 0, false, 16, KvFormat::kHierarchical,
                                  4, KvRotation::kHadamard},
                    AttentionCase{at::kFloat, 4, 1, 64, 0, 5, false, 16, KvFormat::kFloat16, 0,
                                  KvRotation::kNone, 130},
                    AttentionCase{at::kFloat, 8, 2, 64, 100, 0, true, 16, KvFormat::kQ4, 0,
                                  KvRotation::kNone, 40},
                    AttentionCase{at::kFloat, 4, 2, 32, 10, 0, false, 16, KvFormat::kQ8, 5,
                                  KvRotation::kNone, 20},
                    AttentionCase{at::kFloat, 6, 2, 16, 30, 0, true, 4, KvFormat::kFp8E4m3, 0,
                                  KvRotation::kNone, 64},
                    AttentionCase{at::kFloat, 3, 1, 40, 0, 0, false, 5, KvFormat::kQ3, 0,
                                  KvRotation::kHadamard, 1, true},
                    AttentionCase{at::kFloat, 3, 3, 70, 130, 0, false, 16, KvFormat::kHierarchical,
                                  140, KvRotation::kNone, 50},
                    AttentionCase{at::kFloat, 4, 2, 64, 0, 0, false, 32, KvFormat::kKivi2, 0,
                                  KvRotation::kNone, 32},
                    AttentionCase{at::kFloat, 3, 1, 72, 100, 5, true, 64, KvFormat::kKivi4, 0,
                                  KvRotation::kNone, 40},
                    AttentionCase{at::kFloat, 6, 3, 24, 71, 0, true, 96, KvFormat::kKivi2, 3,
                                  KvRotation::kNone, 40},
                    AttentionCase{at::kFloat, 8, 1, 256, 30, 0, false, 32, KvFormat::kKivi4, 0,
                                  KvRotation::kNone, 128},
                    AttentionCase{at::kFloat, 1, 1, 512, 0, 0, false, 32, KvFormat::kKivi2, 0,
                                  KvRotation::kNone, 100}),
    ParameterName());

class CudaAttentionFormatTest : public testing::TestWithParam<PageFormatCase> {};

/// Numbers are widened exactly: the bits of a float32 cache that holds the rounded ones.
TEST_P(CudaAttentionFormatTest, ReadsTheRoundedNumbers) {
  at::manual_seed(5);
  const auto [format, rotation, read] = GetParam();
  const AttentionCase narrow{at::kFloat, 4, 2, 72, 100, 3, false, 16, format, 0, rotation};
  const AttentionCase wide{at::kFloat, 4, 2, 72, 100, 3, false, 16};
  const Tensor prompt = at::randn({150, 8 * 72});
  const Tensor drafted = at::randn({5, 8 * 72});
  AttentionCache stored(narrow);
  AttentionCache rounded(wide);
  AttentionCache exact(wide);
  const auto fill = [&, half = read](AttentionCache& cache, bool round) {  // returns the queries
    const auto given = [&](const Tensor& qkv) {
      Tensor all = qkv.clone();
      Tensor kv = all.narrow(1, 4 * 72, 4 * 72);
      kv.copy_(rounded_to(narrow, kv.reshape({-1, 72}), half).view(kv.sizes()));
      return round ? all : qkv;
    };
    cache.extend({}, {}, given(prompt));
    std::vector<int64_t> path(150);
    std::iota(path.begin(), path.end(), 0);
    cache.kv().commit(0, path);
    return cache.extend({}, {-1, 0, 0, 1, 2}, given(drafted));
  };
  const Tensor queries = fill(stored, false);
  fill(rounded, true);
  const Tensor out = cuda_attend(stored, queries, {}, read);
  EXPECT_TRUE(at::equal(out, rotated_as<float>(narrow, cuda_attend(rounded, queries))));
  EXPECT_FALSE(at::equal(out, cuda_attend(exact, fill(exact, false))))
      << "a format that rounds nothing";
}

INSTANTIATE_TEST_SUITE_P(
    All, CudaAttentionFormatTest,
    testing::Values(PageFormatCase{KvFormat::kBFloat16}, PageFormatCase{KvFormat::kFloat16},
                    PageFormatCase{KvFormat::kFp8E4m3}, PageFormatCase{KvFormat::kQ8},
                    PageFormatCase{KvFormat::kQ4}, PageFormatCase{KvFormat::kQ3},
                    PageFormatCase{KvFormat::kHierarchical},
                    PageFormatCase{KvFormat::kQ3, KvRotation::kHadamard},
                    PageFormatCase{KvFormat::kHierarchical, KvRotation::kHadamard},
                    PageFormatCase{KvFormat::kHierarchical, KvRotation::kNone, KvRead::kUpperHalf},
                    PageFormatCase{KvFormat::kHierarchical, KvRotation::kHadamard,
                                   KvRead::kUpperHalf}),
    page_format_name);

class CudaAttentionPrecisionTest : public testing::TestWithParam<AttentionCase> {};

/// Scores and mixed values differ from those in float64 by 3e-7 of their terms' magnitudes at most.
TEST_P(CudaAttentionPrecisionTest, EqualsFloat64) {
  at::manual_seed(6);
  const AttentionCase& c = GetParam();
  constexpr int64_t kTokens = 150;
  AttentionCache cache(c);
  const Tensor qkv = at::randn({kTokens, (c.heads + 2 * c.kv_heads) * c.head_dim});
  cache.extend({}, {}, qkv.narrow(0, 0, kTokens - 1));
  std::vector<int64_t> path(kTokens - 1);
  std::iota(path.begin(), path.end(), 0);
  cache.kv().commit(0, path);
  const Tensor queries = cache.extend({}, {}, qkv.narrow(0, kTokens - 1, 1));
  const Tensor out = cuda_attend(cache, queries);
  const Tensor last = queries.view({c.kv_heads, -1, c.head_dim}).to(at::kDouble);
  const int64_t first_exact = cache.kv().view(0).exact.first_at(kTokens - 1);
  const auto numbers = [&](int64_t first_head) {  // [kv_heads, kTokens, head_dim]
    const Tensor heads = qkv.view({kTokens, -1, c.head_dim}).narrow(1, first_head, c.kv_heads);
    if (kv_key_group(c.format) == 1) {
      return rounded_to(c, heads).to(at::kDouble).transpose(0, 1);
    }
    Tensor read =
        first_head == c.heads ? rounded_keys(c.format, heads) : rounded_values(c.format, heads);
    read.slice(0, first_exact).copy_(heads.slice(0, first_exact));
    return read.to(at::kDouble).transpose(0, 1);
  };
  const Tensor keys = numbers(c.heads).transpose(1, 2);
  const Tensor values = numbers(c.heads + c.kv_heads);
  const Tensor weights = (at::matmul(last, keys) * AttentionCache::kScale).softmax(2);
  const Tensor score_size =
      at::matmul(last.abs(), keys.abs()).amax(2, true) * AttentionCache::kScale;
  const Tensor bound = at::matmul(weights, values.abs()) * (score_size * 2 + 1) * 3e-7;
  const Tensor error = (out.view_as(bound) - at::matmul(weights, values)).abs();
  EXPECT_LT((error / bound).max().item<double>(), 1.0);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, CudaAttentionPrecisionTest,
    testing::Values(AttentionCase{at::kFloat, 8, 1, 64, 0, 0, false, 16},
                    AttentionCase{at::kFloat, 5, 1, 96, 0, 0, false, 16, KvFormat::kFloat16},
                    AttentionCase{at::kFloat, 4, 4, 128, 0, 0, false, 16, KvFormat::kBFloat16},
                    AttentionCase{at::kFloat, 2, 1, 256, 0, 0, false, 16, KvFormat::kFp8E4m3},
                    AttentionCase{at::kFloat, 2, 1, 512, 0, 0, false, 16, KvFormat::kQ8},
                    AttentionCase{at::kFloat, 8, 2, 64, 0, 0, false, 32, KvFormat::kKivi2, 0,
                                  KvRotation::kNone, 32},
                    AttentionCase{at::kFloat, 4, 1, 256, 0, 0, false, 32, KvFormat::kKivi4, 0,
                                  KvRotation::kNone, 40}),
    ParameterName());

TEST(CudaAttentionChecksTest, RefusesShapesThatItCannotTake) {
  AttentionCache cache(AttentionCase{at::kFloat, 4, 2, 64, 0, 0, false});
  const Tensor queries = cache.extend({}, {}, cache.random_qkv(1));
  Tensor out = at::empty_like(queries);
  cuda::PagedAttentionTask task =
      cuda::attention_task(queries, cache.kv().view(0), {AttentionCache::kScale, 0, Tensor()}, out);
  const Tensor workspace = at::empty({cuda::specdec_cuda_attention_workspace(&task)});
  task.workspace = workspace.mutable_data_ptr<float>();
  EXPECT_EQ(specdec_cuda_paged_attention(&task, nullptr), 0);
  const auto is_refused = [&](const auto& change) {
    cuda::PagedAttentionTask wrong = task;
    change(wrong);
    return specdec_cuda_paged_attention(&wrong, nullptr) == cuda::kInvalidValue;
  };
  EXPECT_TRUE(is_refused([](auto& wrong) { wrong.cache.kv_heads = 3; }));
  EXPECT_TRUE(is_refused([](auto& wrong) { wrong.cache.head_dim = 514; }));
  EXPECT_TRUE(is_refused([](auto& wrong) { wrong.cache.head_dim = 63; }));
  EXPECT_TRUE(is_refused([](auto& wrong) { wrong.cache.width = 0; }));
  EXPECT_TRUE(is_refused([](auto& wrong) { wrong.chunks = 0; }));
}

}  // namespace
}  // namespace specdec
