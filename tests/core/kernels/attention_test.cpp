#include "core/kernels/attention.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <numeric>
#include <ostream>

#include "core/error.h"
#include "core/kernels/qkv.h"
#include "kv/kv_cache.h"
#include "tests/support/parameter_name.h"

namespace specdec {
namespace {

struct AttentionCase {
  at::ScalarType dtype;
  int64_t heads, kv_heads, head_dim, window;
  double soft_cap;
  bool bias;
};

void PrintTo(const AttentionCase& one, std::ostream* out) {
  *out << one.dtype << " heads " << one.heads << " kv " << one.kv_heads << " dim " << one.head_dim
       << " window " << one.window << " cap " << one.soft_cap << (one.bias ? " bias" : "");
}

/// A cache of one layer beside a plain record of what its row holds.
class CacheWithRecord {
 public:
  explicit CacheWithRecord(const AttentionCase& c)
      : case_(c),
        cache_({{c.kv_heads, c.head_dim, c.window, -1}},
               {.dtype = c.dtype, .device = at::kCPU, .page_size = 4, .max_length = 4096}) {}

  /// New nodes with random queries, keys and values; without rotation the cache holds them as
  /// given.
  Tensor extend(std::vector<int64_t> parents) {
    const auto nodes = static_cast<int64_t>(parents.size());
    const Tensor qkv =
        at::randn({nodes, (case_.heads + 2 * case_.kv_heads) * case_.head_dim}, case_.dtype);
    return extend(std::move(parents), qkv);
  }

  Tensor extend(std::vector<int64_t> parents, const Tensor& qkv) {
    const int64_t nodes = qkv.size(0);
    cache_.extend({.tokens = at::zeros({nodes}, at::kInt), .rows = {}, .parents = parents});
    QkvOptions options;
    options.heads = case_.heads;
    options.cos = at::ones({4096, case_.head_dim / 2}, case_.dtype);
    options.sin = at::zeros({4096, case_.head_dim / 2}, case_.dtype);
    Tensor queries = at::empty({nodes, case_.heads, case_.head_dim}, case_.dtype);
    qkv_to_cache(qkv, options, cache_.view(0), queries);
    const Tensor heads = qkv.view({nodes, case_.heads + 2 * case_.kv_heads, case_.head_dim});
    for (int64_t i = 0; i < nodes; ++i) {
      const int64_t parent = parents[static_cast<size_t>(i)];
      nodes_.push_back({parent, parent < 0 ? cache_.length(0) : position(parent) + 1,
                        heads[i].narrow(0, case_.heads, case_.kv_heads).to(at::kDouble),
                        heads[i].slice(0, case_.heads + case_.kv_heads).to(at::kDouble)});
    }
    return queries;
  }

  void commit(const std::vector<int64_t>& path) {
    cache_.commit(0, path);
    for (const int64_t node : path) {
      kept_.push_back(nodes_[static_cast<size_t>(node)]);
    }
    nodes_.clear();
  }

  /// Attention of pending node `node` with query [heads, head_dim], in float64 by the definition.
  Tensor exact(int64_t node, const Tensor& query, const Tensor& bias) const {
    std::vector<Tensor> keys, values, biases;
    const auto add = [&](const Node& seen, int64_t column) {
      if (case_.window > 0 && position(node) - seen.position >= case_.window) {
        return;
      }
      keys.push_back(seen.key);
      values.push_back(seen.value);
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
    Tensor scores = at::matmul(k, query.to(at::kDouble).unsqueeze(-1)).squeeze(-1) * kScale;
    if (case_.soft_cap > 0) {
      scores = at::tanh(scores / case_.soft_cap) * case_.soft_cap;
    }
    const Tensor weights = at::softmax(scores + at::stack(biases), -1);
    return at::matmul(weights.unsqueeze(1), v).squeeze(1);
  }

  std::vector<int64_t> path_to(int64_t node) const {
    std::vector<int64_t> path;
    for (; node >= 0; node = nodes_[static_cast<size_t>(node)].parent) {
      path.insert(path.begin(), node);
    }
    return path;
  }

  KvView view() const { return cache_.view(0); }
  int64_t pending() const { return static_cast<int64_t>(nodes_.size()); }
  int64_t length() const { return cache_.length(0); }

  static constexpr double kScale = 0.3;

 private:
  struct Node {
    int64_t parent, position;
    Tensor key, value;  // [kv_heads, head_dim]
  };
  int64_t position(int64_t node) const { return nodes_[static_cast<size_t>(node)].position; }

  AttentionCase case_;
  KvCache cache_;
  std::vector<Node> kept_, nodes_;
};

Tensor attend(const CacheWithRecord& cache, const AttentionCase& c, const Tensor& queries,
              const Tensor& bias = {}) {
  Tensor out = at::full_like(queries, 99);
  paged_attention(queries, cache.view(), {CacheWithRecord::kScale, c.soft_cap, bias}, out);
  return out;
}

std::vector<int64_t> chain(int64_t count) {
  std::vector<int64_t> parents(static_cast<size_t>(count));
  std::iota(parents.begin(), parents.end(), -1);
  return parents;
}

class AttentionTest : public testing::TestWithParam<AttentionCase> {
 protected:
  void check(const CacheWithRecord& cache, int64_t first, const Tensor& queries) {
    const double tolerance = GetParam().dtype == at::kFloat ? 1e-5 : 1e-13;
    Tensor bias;
    if (GetParam().bias) {  // some columns are missing, and one key is hidden
      bias = at::randn({queries.size(0), cache.length() + 3}, at::kFloat);
      bias.select(1, 1).fill_(-std::numeric_limits<float>::infinity());
    }
    const Tensor out = attend(cache, GetParam(), queries, bias);
    for (int64_t i = 0; i < queries.size(0); ++i) {
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

TEST_P(AttentionTest, ChainInOneForwardEqualsOneByOneBitForBit) {
  at::manual_seed(2);
  const AttentionCase& c = GetParam();
  CacheWithRecord wide(c), narrow(c);
  const Tensor qkv = at::randn({23, (c.heads + 2 * c.kv_heads) * c.head_dim}, c.dtype);
  const Tensor together = attend(wide, c, wide.extend(chain(23), qkv));
  for (int64_t i = 0; i < 23; ++i) {
    const Tensor one = attend(narrow, c, narrow.extend({-1}, qkv.narrow(0, i, 1)));
    EXPECT_TRUE(at::equal(one[0], together[i])) << i;
    narrow.commit({0});
  }
}

TEST_P(AttentionTest, TreePathEqualsItsChainBitForBit) {
  at::manual_seed(3);
  const AttentionCase& c = GetParam();
  CacheWithRecord tree(c), alone(c);
  const Tensor prompt = at::randn({9, (c.heads + 2 * c.kv_heads) * c.head_dim}, c.dtype);
  for (CacheWithRecord* cache : {&tree, &alone}) {
    cache->extend(chain(9), prompt);
    cache->commit(cache->path_to(8));
  }
  const Tensor qkv = at::randn({6, prompt.size(1)}, c.dtype);
  const Tensor all = attend(tree, c, tree.extend({-1, 0, 0, 1, 2, 4}, qkv));
  const Tensor path = at::tensor({0, 2, 4, 5}, at::kLong);
  const Tensor chained = attend(alone, c, alone.extend(chain(4), qkv.index_select(0, path)));
  EXPECT_TRUE(at::equal(all.index_select(0, path), chained));
}

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionTest,
                         testing::Values(AttentionCase{at::kFloat, 4, 1, 64, 0, 0, false},
                                         AttentionCase{at::kFloat, 4, 1, 64, 6, 0, true},
                                         AttentionCase{at::kFloat, 8, 1, 256, 0, 0, false},
                                         AttentionCase{at::kFloat, 6, 2, 16, 5, 50, false},
                                         AttentionCase{at::kFloat, 7, 1, 24, 0, 2, true},
                                         AttentionCase{at::kFloat, 3, 3, 6, 3, 0, false},
                                         AttentionCase{at::kDouble, 4, 2, 24, 4, 1.5, true},
                                         AttentionCase{at::kDouble, 5, 1, 64, 0, 0, false}),
                         ParameterName());

TEST(AttentionThreadsTest, ResultDoesNotDependOnThreads) {
  at::manual_seed(4);
  const AttentionCase c{at::kFloat, 4, 1, 64, 0, 0, false};
  CacheWithRecord cache(c);
  const Tensor queries = cache.extend(chain(150));
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const Tensor serial = attend(cache, c, queries);
  at::set_num_threads(2);
  const Tensor parallel = attend(cache, c, queries);
  at::set_num_threads(threads);
  EXPECT_TRUE(at::equal(serial, parallel));
}

TEST(AttentionChecksTest, RefusesOperandsThatDoNotFit) {
  const AttentionCase c{at::kFloat, 4, 2, 8, 0, 0, false};
  CacheWithRecord cache(c);
  const Tensor queries = cache.extend(chain(3));
  const auto run = [&](const Tensor& q, Tensor out, const Tensor& bias = {}) {
    paged_attention(q, cache.view(), {1.0, 0.0, bias}, out);
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
