// The weights of attention_mass are those that paged_attention mixes values with.
#include "core/kernels/attention_mass.h"

#include <gtest/gtest.h>

#include "tests/core/kernels/attention_case.h"

namespace specdec {
namespace {

constexpr int64_t kKept = 21;

class AttentionMassTest : public testing::TestWithParam<AttentionCase> {
 protected:
  /// The first kKept tokens, then a tree. Returns the tree's queries.
  Tensor fill() {
    (void)cache_.extend({}, {}, take(cache_.random_qkv(kKept)));
    std::vector<int64_t> path(kKept);
    for (int64_t i = 0; i < kKept; ++i) {
      path[static_cast<size_t>(i)] = i;
    }
    cache_.kv().commit(0, path);
    return cache_.extend({}, parents_, take(cache_.random_qkv(std::ssize(parents_))));
  }

  /// Value [head_dim] of the key that a node sees at a position, as it reads it.
  Tensor value(int64_t node, int64_t position) const {
    const auto& values = GetParam().reads_exact(kKept + depth(node) - position) ? exact_ : stored_;
    if (position < kKept) {
      return values[0][position];
    }
    while (kKept + depth(node) > position) {
      node = parents_[static_cast<size_t>(node)];
    }
    return values[1][node];
  }

  int64_t depth(int64_t node) const {
    const int64_t parent = parents_[static_cast<size_t>(node)];
    return parent < 0 ? 0 : depth(parent) + 1;
  }

  AttentionCache cache_{GetParam()};
  const std::vector<int64_t> parents_ = {-1, 0, 0, 2, 1, -1};

 private:
  Tensor take(const Tensor& qkv) {
    const AttentionCase& c = GetParam();
    const Tensor heads = qkv.view({qkv.size(0), c.heads + 2, c.head_dim});
    exact_.push_back(heads.select(1, c.heads + 1).to(at::kDouble));
    stored_.push_back(rounded_to(c, heads.select(1, c.heads + 1)).to(at::kDouble));
    return qkv;
  }

  std::vector<Tensor> stored_, exact_;  // of the kept tokens, and of the tree
};

TEST_P(AttentionMassTest, TheWeightedValuesAreAttentionsOutput) {
  at::manual_seed(4);
  const AttentionCase& c = GetParam();
  const Tensor queries = fill();
  const int64_t nodes = queries.size(0);
  const Tensor bias = c.bias ? at::randn({nodes, kKept + 3}, at::kFloat) : Tensor();
  const Tensor expected = cache_.attend(queries, bias).to(at::kDouble).mean(1);
  const Tensor mixed = at::zeros({nodes, c.head_dim}, at::kDouble);
  const KvView view = cache_.kv().view(0);
  std::vector<double> sums(static_cast<size_t>(nodes));
  attention_mass(queries, view, {AttentionCache::kScale, c.soft_cap, bias},
                 [&](const SeenKey& key) {
                   EXPECT_EQ(key.position + key.age, kKept + depth(key.node));
                   sums[static_cast<size_t>(key.node)] += key.weight;
                   mixed[key.node].add_(value(key.node, key.position), key.weight);
                 });
  const double tolerance = c.dtype == at::kDouble ? 1e-13 : 1e-5;
  EXPECT_LT((mixed - expected).abs().max().item<double>(), tolerance);
  for (const double sum : sums) {
    EXPECT_NEAR(sum, 1.0, 1e-12);
  }
}

/// What is copied from a device has all that is read.
TEST_P(AttentionMassTest, CopiedKeysHaveTheSameWeights) {
  const Tensor queries = fill();
  KvView view = cache_.kv().view(0);
  const AttentionOptions options{AttentionCache::kScale, GetParam().soft_cap, {}};
  const auto weights = [&] {
    std::vector<double> all;
    attention_mass(queries, view, options, [&](const SeenKey& key) { all.push_back(key.weight); });
    return all;
  };
  const std::vector<double> there = weights();
  view.keys = copy_read_keys(view, *view.tables);
  EXPECT_FALSE(view.keys.is_alias_of(cache_.kv().view(0).keys));
  EXPECT_EQ(weights(), there);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, AttentionMassTest,
    testing::Values(AttentionCase{at::kDouble, 2, 1, 8, 0, 0.0, false},
                    AttentionCase{at::kDouble, 3, 1, 8, 5, 2.0, false},
                    AttentionCase{at::kDouble, 2, 1, 8, 0, 0.0, true, 16},
                    AttentionCase{at::kDouble, 2, 1, 8, 4, 0.0, false, 4, KvFormat::kNative, 3},
                    AttentionCase{at::kFloat, 2, 1, 32, 0, 0.0, false},
                    AttentionCase{at::kFloat, 2, 1, 32, 7, 0.0, false, 4, KvFormat::kBFloat16},
                    AttentionCase{at::kFloat, 2, 1, 32, 0, 0.0, false, 4, KvFormat::kQ4},
                    AttentionCase{at::kFloat, 2, 1, 32, 0, 0.0, true, 4, KvFormat::kQ4, 0,
                                  KvRotation::kNone, 3}));

}  // namespace
}  // namespace specdec
