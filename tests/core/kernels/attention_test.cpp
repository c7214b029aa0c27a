#include "core/kernels/attention.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "tests/core/kernels/attention_case.h"
#include "tests/support/parameter_name.h"

namespace specdec {
namespace {

/// A cache beside a plain record of what its row holds.
class CacheWithRecord {
 public:
  explicit CacheWithRecord(const AttentionCase& c) : case_(c), cache_(c) {}

  /// New nodes with random queries, keys and values; returns the queries.
  Tensor extend(std::vector<int64_t> parents) {
    const auto nodes = static_cast<int64_t>(parents.size());
    return extend(std::move(parents), cache_.random_qkv(nodes));
  }

  Tensor extend(std::vector<int64_t> parents, const Tensor& qkv) {
    const int64_t nodes = qkv.size(0);
    Tensor queries = cache_.extend({}, parents, qkv);
    const Tensor heads = qkv.view({nodes, case_.heads + 2 * case_.kv_heads, case_.head_dim});
    const Tensor stored = rounded_to(case_, heads).to(at::kDouble);
    const Tensor exact =
        (case_.dtype == at::kFloat ? rotated_as<float>(case_, heads) : heads).to(at::kDouble);
    const auto keys_of = [&](const Tensor& all) {
      return all.narrow(0, case_.heads, case_.kv_heads);
    };
    const auto values_of = [&](const Tensor& all) {
      return all.slice(0, case_.heads + case_.kv_heads);
    };
    for (int64_t i = 0; i < nodes; ++i) {
      const int64_t parent = parents[static_cast<size_t>(i)];
      nodes_.push_back({parent,
                        parent < 0 ? length() : position(parent) + 1,
                        {keys_of(stored[i]), values_of(stored[i])},
                        {keys_of(exact[i]), values_of(exact[i])}});
    }
    return queries;
  }

  void commit(const std::vector<int64_t>& path) {
    cache_.kv().commit(0, path);
    for (const int64_t node : path) {
      kept_.push_back(nodes_[static_cast<size_t>(node)]);
    }
    nodes_.clear();
  }

  /// Attention of pending node `node` with query [heads, head_dim], in float64 by the definition.
  Tensor exact(int64_t node, const Tensor& query, const Tensor& bias) const {
    std::vector<Tensor> keys, values, biases;
    const auto add = [&](const Node& seen, int64_t column) {
      if (case_.window > 0 && position(node) - seen.position >= case_.window &&
          seen.position >= case_.sink) {
        return;
      }
      const auto& [key, value] =
          case_.reads_exact(position(node) - seen.position) ? seen.exact : seen.stored;
      keys.push_back(key);
      values.push_back(value);
      const bool biased = bias.defined() && column < bias.size(0);
      biases.push_back(biased ? bias[column].to(at::kDouble) : at::zeros({}, at::kDouble));
    };
    for (size_t i = 0; i < kept_.size(); ++i) {
      add(kept_[i], static_cast<int64_t>(i));
    }
    for (const int64_t above : path_to(node)) {
      add(nodes_[static_cast<size_t>(above)], static_cast<int64_t>(kept_.size()) + above);
    }
    const int64_t group = case_.heads / case_.kv_heads;
    const Tensor k = at::stack(keys, 1).repeat_interleave(group, 0);  // [heads, seen, dim]
    const Tensor v = at::stack(values, 1).repeat_interleave(group, 0);
    Tensor scores =
        at::matmul(k, query.to(at::kDouble).unsqueeze(-1)).squeeze(-1) * AttentionCache::kScale;
    if (case_.soft_cap > 0) {
      scores = at::tanh(scores / case_.soft_cap) * case_.soft_cap;
    }
    const Tensor weights = at::softmax(scores + at::stack(biases), -1);
    return rotated_as<double>(case_, at::matmul(weights.unsqueeze(1), v).squeeze(1));
  }

  std::vector<int64_t> path_to(int64_t node) const {
    std::vector<int64_t> path;
    for (; node >= 0; node = nodes_[static_cast<size_t>(node)].parent) {
      path.insert(path.begin(), node);
    }
    return path;
  }

  const AttentionCache& cache() const { return cache_; }
  int64_t length() const { return cache_.kv().length(0); }

 private:
  struct Node {
    int64_t parent, position;
    std::pair<Tensor, Tensor> stored, exact;  // key and value, each [kv_heads, head_dim]
  };
  int64_t position(int64_t node) const { return nodes_[static_cast<size_t>(node)].position; }

  AttentionCase case_;
  AttentionCache cache_;
  std::vector<Node> kept_, nodes_;
};

std::vector<int64_t> chain(int64_t count) {
  std::vector<int64_t> parents(static_cast<size_t>(count));
  std::iota(parents.begin(), parents.end(), -1);
  return parents;
}

class AttentionTest : public testing::TestWithParam<AttentionCase> {
 protected:
  /// `checked`: how many of the last nodes are compared at most.
  void check(const CacheWithRecord& cache, int64_t first, const Tensor& queries,
             int64_t checked = std::numeric_limits<int64_t>::max()) {
    const double tolerance = GetParam().dtype == at::kFloat ? 3e-5 : 1e-13;
    Tensor bias;
    if (GetParam().bias) {  // some columns are missing, and one key is hidden
      bias = at::randn({queries.size(0), cache.length() + 3}, at::kFloat);
      bias.select(1, 1).fill_(-std::numeric_limits<float>::infinity());
    }
    const Tensor out = cache.cache().attend(queries, bias);
    const int64_t step = queries.size(0) < 30 ? 1 : 13;
    for (int64_t i = std::max<int64_t>(0, queries.size(0) - checked); i < queries.size(0);
         i += step) {
      const Tensor exact = cache.exact(first + i, queries[i], bias.defined() ? bias[i] : Tensor());
      EXPECT_LT((out[i].to(at::kDouble) - exact).abs().max().item<double>(), tolerance)
          << "node " << first + i;
    }
  }
};

TEST_P(AttentionTest, EqualsTheDefinitionOverTreesGrownInTwoForwards) {
  at::manual_seed(1);
  CacheWithRecord cache(GetParam());
  check(cache, 0, cache.extend(chain(19)));
  cache.commit(cache.path_to(18));
  check(cache, 0, cache.extend({-1, 0, 0, 1, 1, 2, -1}));
  check(cache, 7, cache.extend({3, 7, 6, 3, 8}));
  cache.commit(cache.path_to(11));
  check(cache, 0, cache.extend({-1}));
}

TEST_P(AttentionTest, EqualsTheDefinitionOverSeveralChunks) {
  at::manual_seed(2);
  CacheWithRecord cache(GetParam());
  const int64_t prompt = kAttentionChunk + 9;
  check(cache, 0, cache.extend(chain(prompt)));
  cache.commit(cache.path_to(prompt - 1));
  // The time of a definition goes by the number of nodes and by what they see.
  check(cache, 0, cache.extend(chain(kAttentionChunk)), 3);
  cache.commit(cache.path_to(kAttentionChunk - 1));
  check(cache, 0, cache.extend({-1, 0, 0, 1, 3, 2}));
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, AttentionTest,
    testing::Values(AttentionCase{at::kFloat, 4, 1, 64, 0, 0, false},
                    AttentionCase{at::kFloat, 4, 1, 64, 6, 0, true},
                    AttentionCase{at::kFloat, 8, 1, 256, 0, 0, false},
                    AttentionCase{at::kFloat, 6, 2, 16, 5, 50, false},
                    AttentionCase{at::kFloat, 7, 1, 24, 0, 2, true},
                    AttentionCase{at::kFloat, 3, 3, 6, 3, 0, false},
                    AttentionCase{at::kDouble, 4, 2, 24, 4, 1.5, true},
                    AttentionCase{at::kDouble, 5, 1, 64, 0, 0, false},
                    AttentionCase{at::kFloat, 4, 1, 64, 0, 0, false, 16},
                    AttentionCase{at::kFloat, 9, 1, 80, 130, 9, true, 20},
                    AttentionCase{at::kDouble, 4, 2, 10, 40, 0, false, 16},
                    AttentionCase{at::kFloat, 4, 2, 64, 0, 0, false, 16, KvFormat::kBFloat16},
                    AttentionCase{at::kFloat, 6, 2, 22, 140, 3, true, 4, KvFormat::kBFloat16},
                    AttentionCase{at::kFloat, 6, 2, 22, 140, 3, true, 4, KvFormat::kFloat16},
                    AttentionCase{at::kFloat, 4, 2, 64, 0, 0, false, 16, KvFormat::kFp8E4m3},
                    AttentionCase{at::kFloat, 7, 1, 70, 21, 50, true, 20, KvFormat::kFp8E4m3},
                    AttentionCase{at::kFloat, 4, 2, 64, 0, 0, false, 16, KvFormat::kQ8},
                    AttentionCase{at::kFloat, 7, 1, 70, 21, 50, true, 20, KvFormat::kQ8},
                    AttentionCase{at::kFloat, 4, 2, 64, 0, 0, false, 16, KvFormat::kQ4},
                    AttentionCase{at::kFloat, 7, 1, 70, 21, 50, true, 20, KvFormat::kQ4},
                    AttentionCase{at::kFloat, 4, 2, 64, 0, 0, false, 16, KvFormat::kHierarchical},
                    AttentionCase{at::kFloat, 7, 1, 70, 21, 50, true, 20, KvFormat::kHierarchical,
                                  0, KvRotation::kHadamard},
                    AttentionCase{at::kFloat, 4, 2, 64, 0, 0, false, 16, KvFormat::kQ3},
                    AttentionCase{at::kFloat, 7, 1, 72, 21, 50, true, 20, KvFormat::kQ3, 0,
                                  KvRotation::kHadamard},
                    AttentionCase{at::kFloat, 6, 2, 64, 140, 3, true, 4, KvFormat::kQ4, 0,
                                  KvRotation::kHadamard},
                    AttentionCase{at::kFloat, 4, 1, 64, 6, 0, false, 16, KvFormat::kNative, 4},
                    AttentionCase{at::kFloat, 6, 2, 22, 140, 3, true, 4, KvFormat::kQ8, 130},
                    AttentionCase{at::kDouble, 5, 1, 24, 1, 0, true, 5, KvFormat::kNative, 3},
                    AttentionCase{at::kFloat, 4, 2, 64, 0, 0, true, 4, KvFormat::kQ4, 0,
                                  KvRotation::kNone, 3},
                    AttentionCase{at::kFloat, 6, 2, 64, 140, 3, false, 16, KvFormat::kQ3, 0,
                                  KvRotation::kHadamard, 40},
                    AttentionCase{at::kFloat, 3, 1, 38, 6, 0, false, 5, KvFormat::kBFloat16, 2,
                                  KvRotation::kNone, 300}),
    ParameterName());

std::vector<PageFormatCase> page_format_cases() {
  std::vector<PageFormatCase> all;
  for (const KvFormat format : kKvFormats) {
    all.push_back({format});
    if (has_scales(format)) {
      all.push_back({format, KvRotation::kHadamard});
    }
  }
  all.push_back({KvFormat::kHierarchical, KvRotation::kNone, KvRead::kUpperHalf});
  all.push_back({KvFormat::kHierarchical, KvRotation::kHadamard, KvRead::kUpperHalf});
  return all;
}

class AttentionFormatTest : public testing::TestWithParam<PageFormatCase> {};

/// Reading a format widens its numbers and rounds nothing: a float32 cache that holds the same
/// numbers gives the same bits. Narrow heads have several chunks; with wide ones these would take
/// most of the time.
TEST_P(AttentionFormatTest, HasTheBitsOfAFloat32CacheOfTheRoundedNumbers) {
  at::manual_seed(4);
  const auto [format, rotation, read] = GetParam();
  using Sizes = std::pair<int64_t, int64_t>;
  for (const auto& [head_dim, page_size] :
       {Sizes{2, 7}, Sizes{22, 16}, Sizes{64, 16}, Sizes{70, 7}, Sizes{72, 16}, Sizes{256, 7}}) {
    if (head_dim % kv_multiple(format) != 0) {
      continue;
    }
    const AttentionCase c{at::kFloat, 4, 2, head_dim, 0, 0, false, page_size, format, 0, rotation};
    const AttentionCase plain{at::kFloat, 4, 2, head_dim, 0, 0, false, page_size};
    AttentionCache stored(c);
    AttentionCache rounded(plain);
    const int64_t nodes = head_dim > 70 ? 60 : kAttentionChunk + 30;
    const Tensor qkv = stored.random_qkv(nodes) * 3;
    const Tensor heads = qkv.view({-1, c.heads + 2 * c.kv_heads, head_dim});
    Tensor same = heads.clone();
    same.slice(1, c.heads).copy_(rounded_to(c, heads.slice(1, c.heads), read));
    const Tensor queries = stored.extend({}, {}, qkv);
    rounded.extend({}, {}, same.view_as(qkv));
    EXPECT_TRUE(
        at::equal(stored.attend(queries, {}, read), rotated_as<float>(c, rounded.attend(queries))))
        << head_dim;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, AttentionFormatTest, testing::ValuesIn(page_format_cases()),
                         page_format_name);

TEST(AttentionRotationTest, AProductOfRotatedHeadsIsThatOfThePlainOnes) {
  at::manual_seed(5);
  for (const int64_t head_dim : {2, 24, 64, 96, 256}) {
    const AttentionCase c{at::kFloat,           1, 1, head_dim, 0, 0, false, 16, KvFormat::kQ8, 0,
                          KvRotation::kHadamard};
    const Tensor rows = at::randn({2, head_dim}, at::kDouble);
    const Tensor rotated = rotated_as<double>(c, rows);
    EXPECT_NEAR(at::dot(rotated[0], rotated[1]).item<double>(),
                at::dot(rows[0], rows[1]).item<double>(), 1e-12);
    EXPECT_LT((rotated_as<double>(c, rotated) - rows).abs().max().item<double>(), 1e-13)
        << "its own inverse";
    Tensor one = at::zeros({1, head_dim}, at::kDouble);
    one[0][0] = 1;
    const double block = static_cast<double>(head_dim & -head_dim);
    EXPECT_NEAR(rotated_as<double>(c, one).abs().max().item<double>(), 1 / std::sqrt(block), 1e-15)
        << "one number is spread over its block";
  }
}

TEST(AttentionUpperHalfTest, OtherFormatsHaveNone) {
  AttentionCache cache({at::kFloat, 2, 1, 64, 0, 0, false, 16, KvFormat::kQ8});
  const Tensor queries = cache.extend({}, {}, cache.random_qkv(3));
  EXPECT_THROW((void)cache.attend(queries, {}, KvRead::kUpperHalf), InternalError);
}

TEST(AttentionBiasTest, AChunkHiddenByTheBiasCountsForNothing) {
  at::manual_seed(3);
  const AttentionCase c{at::kFloat, 4, 1, 64, 0, 0, false, 16};
  CacheWithRecord cache(c);
  cache.extend(chain(2 * kAttentionChunk));
  cache.commit(cache.path_to(2 * kAttentionChunk - 1));
  const Tensor queries = cache.extend({-1, 0, -1});
  for (const int64_t hidden : {int64_t{0}, kAttentionChunk}) {
    const Tensor bias = at::zeros({3, 2 * kAttentionChunk});
    bias.narrow(1, hidden, kAttentionChunk).fill_(-std::numeric_limits<float>::infinity());
    const Tensor out = cache.cache().attend(queries, bias);
    for (int64_t i = 0; i < 3; ++i) {
      const Tensor exact = cache.exact(i, queries[i], bias[i]);
      EXPECT_LT((out[i].to(at::kDouble) - exact).abs().max().item<double>(), 1e-5);
    }
  }
}

TEST(AttentionChecksTest, RefusesOperandsThatDoNotFit) {
  const AttentionCase c{at::kFloat, 4, 2, 8, 0, 0, false};
  CacheWithRecord cache(c);
  const Tensor queries = cache.extend(chain(3));
  const auto run = [&](const Tensor& q, Tensor out, const Tensor& bias = {}) {
    paged_attention(q, cache.cache().kv().view(0), {1.0, 0.0, bias}, out);
  };
  EXPECT_NO_THROW(run(queries, at::empty_like(queries)));
  EXPECT_THROW(run(queries.narrow(0, 0, 2), at::empty({2, 4, 8})), InternalError);
  EXPECT_THROW(run(queries, at::empty({3, 4, 9})), InternalError);
  EXPECT_THROW(run(queries.to(at::kDouble), at::empty({3, 4, 8}, at::kDouble)), InternalError);
  EXPECT_THROW(run(at::zeros({3, 3, 8}), at::empty({3, 3, 8})), InternalError);
  EXPECT_THROW(run(queries, at::empty_like(queries), at::zeros({2, 3})), InternalError);
}

}  // namespace
}  // namespace specdec
