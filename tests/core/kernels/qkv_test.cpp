#include "core/kernels/qkv.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <ostream>

#include "core/error.h"
#include "kv/kv_cache.h"
#include "tests/core/kernels/attention_case.h"
#include "tests/support/max_difference.h"
#include "tests/support/parameter_name.h"

namespace specdec {
namespace {

constexpr double kQkvEps = 1e-6;
constexpr int64_t kPositions = 64;

struct QkvCase {
  at::ScalarType dtype;
  int64_t heads, kv_heads, head_dim;
  bool norm;
  KvFormat format = KvFormat::kNative;
  KvRotation rotation = KvRotation::kNone;

  /// The case, as far as a cache knows it.
  AttentionCase cache() const {
    return {dtype, heads, kv_heads, head_dim, 0, 0, false, 4, format, 0, rotation};
  }
};

void PrintTo(const QkvCase& one, std::ostream* out) {
  *out << one.dtype << " heads " << one.heads << " kv " << one.kv_heads << " dim " << one.head_dim
       << (one.norm ? " norm" : "") << (one.format == KvFormat::kNative ? "" : " ")
       << (one.format == KvFormat::kNative ? "" : kv_format_name(one.format))
       << (one.rotation == KvRotation::kHadamard ? " hadamard" : "");
}

/// Most that rounding changes a number of a head whose largest magnitude is 1, and a number beside
/// its own magnitude.
double rounding_of(KvFormat format) {
  const std::map<KvFormat, double> units = {
      {KvFormat::kBFloat16, 0x1.001p-8},  {KvFormat::kFloat16, 0x1.01p-11},
      {KvFormat::kFp8E4m3, 0x1.001p-4},   {KvFormat::kQ8, 0x1.05p-7},
      {KvFormat::kQ4, 0x1.05p-3},         {KvFormat::kQ3, 0.5},
      {KvFormat::kHierarchical, 0x1.1p-7}};
  return units.at(format);
}

class QkvTest : public testing::TestWithParam<QkvCase> {
 protected:
  void SetUp() override {
    at::manual_seed(1);
    const QkvCase& c = GetParam();
    const auto dtype = c.dtype;
    options_.heads = c.heads;
    options_.eps = kQkvEps;
    if (c.norm) {
      options_.q_scale = at::randn({c.head_dim}, dtype);
      options_.k_scale = at::randn({c.head_dim}, dtype);
    }
    const Tensor angles = at::randn({kPositions, c.head_dim / 2}, at::kDouble);
    options_.cos = angles.cos().to(dtype);
    options_.sin = angles.sin().to(dtype);
  }

  Tensor random_qkv(int64_t nodes) const {
    const QkvCase& c = GetParam();
    return at::randn({nodes, (c.heads + 2 * c.kv_heads) * c.head_dim}, c.dtype);
  }

  /// One head [head_dim] by the formula, in float64.
  Tensor exact_head(const Tensor& head, const Tensor& scale, int64_t position) const {
    Tensor x = head.to(at::kDouble);
    if (scale.defined()) {
      x = x * at::rsqrt(x.square().mean() + kQkvEps) * scale.to(at::kDouble);
    }
    const auto halves = x.chunk(2);
    const Tensor cos = options_.cos[position].to(at::kDouble);
    const Tensor sin = options_.sin[position].to(at::kDouble);
    return at::cat({halves[0] * cos - halves[1] * sin, halves[1] * cos + halves[0] * sin});
  }

  QkvOptions options_;
};

TEST_P(QkvTest, SplitsNormsRotatesAndWrites) {
  const QkvCase& c = GetParam();
  const double tolerance = c.dtype == at::kFloat ? 3e-6 : 1e-14;
  KvCache cache({{c.kv_heads, c.head_dim, 0, -1}}, {.dtype = c.dtype,
                                                    .format = c.format,
                                                    .rotation = c.rotation,
                                                    .device = at::kCPU,
                                                    .page_size = 4,
                                                    .max_length = kPositions});
  const std::vector<int64_t> sizes = {6, 5};
  std::vector<Tensor> keys, values;
  for (const int64_t nodes : sizes) {
    cache.extend({.count = nodes});
    const Tensor qkv = random_qkv(nodes);
    Tensor queries = at::empty({nodes, c.heads, c.head_dim}, c.dtype);
    qkv_to_cache(qkv, options_, cache.view(0), queries);
    const Tensor heads = qkv.view({nodes, c.heads + 2 * c.kv_heads, c.head_dim});
    for (int64_t node = 0; node < nodes; ++node) {
      const int64_t position = cache.length(0) + node;
      for (int64_t h = 0; h < c.heads; ++h) {
        const Tensor exact = exact_head(heads[node][h], options_.q_scale, position);
        EXPECT_LT(max_difference(queries[node][h], rotated_as<double>(c.cache(), exact)),
                  tolerance);
      }
      for (int64_t h = 0; h < c.kv_heads; ++h) {
        keys.push_back(exact_head(heads[node][c.heads + h], options_.k_scale, position));
        values.push_back(heads[node][c.heads + c.kv_heads + h].to(at::kDouble));
      }
    }
    std::vector<int64_t> path(static_cast<size_t>(nodes));
    std::iota(path.begin(), path.end(), 0);
    cache.commit(0, path);
  }
  const auto stored = cache.key_values(0, 0);
  const std::vector<int64_t> by_token = {11, c.kv_heads, c.head_dim};
  const Tensor exact_keys = at::cat(keys).view(by_token).transpose(0, 1);
  Tensor exact_values = at::cat(values).view(by_token).transpose(0, 1);
  if (c.format != KvFormat::kNative) {
    const Tensor largest = std::get<0>(exact_keys.abs().max(-1, true));
    EXPECT_LE(((stored.first - exact_keys) / largest).abs().max().item<double>(),
              rounding_of(c.format) * (c.rotation == KvRotation::kHadamard ? 2 : 1))
        << "the rotation back adds up errors of other dimensions";
    exact_values = rotated_as<float>(c.cache(), rounded_to(c.cache(), exact_values.to(at::kFloat)))
                       .to(at::kDouble);
  } else {
    EXPECT_LT(max_difference(stored.first, exact_keys), tolerance);
  }
  EXPECT_EQ(max_difference(stored.second, exact_values), 0);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, QkvTest,
    testing::Values(QkvCase{at::kFloat, 4, 1, 64, true}, QkvCase{at::kFloat, 4, 2, 16, false},
                    QkvCase{at::kFloat, 3, 3, 24, true}, QkvCase{at::kFloat, 1, 1, 2, true},
                    QkvCase{at::kFloat, 4, 2, 40, true, KvFormat::kBFloat16},
                    QkvCase{at::kFloat, 4, 2, 40, true, KvFormat::kFloat16},
                    QkvCase{at::kFloat, 4, 2, 40, true, KvFormat::kFp8E4m3},
                    QkvCase{at::kFloat, 4, 2, 40, true, KvFormat::kQ8},
                    QkvCase{at::kFloat, 3, 1, 64, false, KvFormat::kQ4},
                    QkvCase{at::kFloat, 4, 2, 70, true, KvFormat::kQ4},
                    QkvCase{at::kFloat, 4, 2, 40, true, KvFormat::kQ3},
                    QkvCase{at::kFloat, 4, 2, 70, true, KvFormat::kHierarchical},
                    QkvCase{at::kFloat, 4, 2, 64, true, KvFormat::kQ8, KvRotation::kHadamard},
                    QkvCase{at::kFloat, 3, 1, 40, false, KvFormat::kHierarchical,
                            KvRotation::kHadamard},
                    QkvCase{at::kDouble, 4, 2, 24, true}, QkvCase{at::kDouble, 2, 1, 6, false}),
    ParameterName());

class KvProjectionsTest : public testing::TestWithParam<at::ScalarType> {
 protected:
  static constexpr int64_t kHeads = 4, kKvHeads = 2, kHeadDim = 24, kNodes = 5;

  KvProjectionsTest() {
    at::manual_seed(2);
    const Tensor angles = at::randn({kPositions, kHeadDim / 2}, at::kDouble);
    options_.heads = kHeads;
    options_.eps = kQkvEps;
    options_.q_scale = at::randn({kHeadDim}, GetParam());
    options_.k_scale = at::randn({kHeadDim}, GetParam());
    options_.cos = angles.cos().to(GetParam());
    options_.sin = angles.sin().to(GetParam());
    extend();
  }

  double tolerance() const { return GetParam() == at::kFloat ? 3e-6 : 1e-14; }

  void extend() { cache_.extend({.count = kNodes}); }

  struct Result {
    Tensor queries, keys, values;  ///< [nodes, heads, head_dim]
  };
  /// Result of a fused projection with as many heads of keys and values as the options say.
  Result run(const Tensor& heads) {
    Tensor queries = at::empty({kNodes, kHeads, kHeadDim}, GetParam());
    qkv_to_cache(heads.reshape({kNodes, -1}).contiguous(), options_, cache_.view(0), queries);
    cache_.commit(0, std::vector<int64_t>{0, 1, 2, 3, 4});
    const auto stored = cache_.key_values(0, 0);
    Result result{queries, stored.first.transpose(0, 1).clone(),
                  stored.second.transpose(0, 1).clone()};
    cache_.truncate(0, 0);
    extend();
    return result;
  }

  static Tensor normed(const Tensor& heads) {
    const Tensor x = heads.to(at::kDouble);
    return x * at::rsqrt(x.square().mean(-1, true) + kQkvEps);
  }

  Tensor random_heads(int64_t heads) const {
    return at::randn({kNodes, heads, kHeadDim}, GetParam());
  }

  QkvOptions options_;
  KvCache cache_{
      {{kKvHeads, kHeadDim, 0, -1}},
      {.dtype = GetParam(), .device = at::kCPU, .page_size = 4, .max_length = kPositions}};
};

TEST_P(KvProjectionsTest, ValuesAreNormedWithoutAScale) {
  const Tensor heads = random_heads(kHeads + 2 * kKvHeads);
  options_.value_norm = true;
  const Result result = run(heads);
  EXPECT_LT(max_difference(result.values, normed(heads.narrow(1, kHeads + kKvHeads, kKvHeads))),
            tolerance());
}

TEST_P(KvProjectionsTest, RawKeysAreTheValues) {
  for (const bool norm : {false, true}) {
    const Tensor heads = random_heads(kHeads + 2 * kKvHeads);
    const Tensor raw = heads.narrow(1, kHeads, kKvHeads);
    options_.kv_projections = 1;
    options_.value_norm = norm;
    const Result shared = run(heads.narrow(1, 0, kHeads + kKvHeads));
    options_.kv_projections = 2;
    const Result apart = run(at::cat({heads.narrow(1, 0, kHeads + kKvHeads), raw}, 1));
    EXPECT_TRUE(at::equal(shared.queries, apart.queries));
    EXPECT_TRUE(at::equal(shared.keys, apart.keys));
    EXPECT_TRUE(at::equal(shared.values, apart.values));
    EXPECT_LT(max_difference(shared.values, norm ? normed(raw) : raw.to(at::kDouble)), tolerance());
  }
}

TEST_P(KvProjectionsTest, WithoutProjectionsTheCacheStays) {
  const Tensor heads = random_heads(kHeads + 2 * kKvHeads);
  Tensor queries = at::empty({kNodes, kHeads, kHeadDim}, GetParam());
  qkv_to_cache(heads.reshape({kNodes, -1}).contiguous(), options_, cache_.view(0), queries);
  const Tensor keys = cache_.view(0).keys.clone();
  const Tensor values = cache_.view(0).values.clone();
  options_.kv_projections = 0;
  Tensor alone = at::empty_like(queries);
  qkv_to_cache(heads.narrow(1, 0, kHeads).reshape({kNodes, -1}).contiguous(), options_,
               cache_.view(0), alone);
  EXPECT_TRUE(at::equal(alone, queries));
  // Slots that nobody wrote may hold NaN, which equals nothing.
  EXPECT_TRUE(at::equal(cache_.view(0).keys.nan_to_num(), keys.nan_to_num()));
  EXPECT_TRUE(at::equal(cache_.view(0).values.nan_to_num(), values.nan_to_num()));
}

TEST_P(KvProjectionsTest, RefusesAnotherWidth) {
  Tensor queries = at::empty({kNodes, kHeads, kHeadDim}, GetParam());
  for (const int64_t projections : {0, 1, 2}) {
    options_.kv_projections = projections;
    for (const int64_t other : {0, 1, 2}) {
      const Tensor heads = random_heads(kHeads + other * kKvHeads).reshape({kNodes, -1});
      const auto call = [&] { qkv_to_cache(heads, options_, cache_.view(0), queries); };
      if (other == projections) {
        EXPECT_NO_THROW(call());
      } else {
        EXPECT_THROW(call(), InternalError);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, KvProjectionsTest, testing::Values(at::kFloat, at::kDouble),
                         ParameterName());

TEST(QkvChecksTest, RefusesAPositionOutsideTheRotaryTable) {
  KvCache cache({{1, 4, 0, -1}},
                {.dtype = at::kFloat, .device = at::kCPU, .page_size = 4, .max_length = 64});
  cache.extend({.count = 5});
  QkvOptions options;
  options.heads = 1;
  options.cos = at::ones({4, 2});
  options.sin = at::zeros({4, 2});
  Tensor queries = at::empty({5, 1, 4});
  EXPECT_THROW(qkv_to_cache(at::zeros({5, 12}), options, cache.view(0), queries), InternalError);
  options.cos = at::ones({5, 2});
  EXPECT_THROW(qkv_to_cache(at::zeros({5, 12}), options, cache.view(0), queries), InternalError);
  options.sin = at::zeros({5, 2});
  EXPECT_NO_THROW(qkv_to_cache(at::zeros({5, 12}), options, cache.view(0), queries));
  EXPECT_THROW(qkv_to_cache(at::zeros({4, 12}), options, cache.view(0), queries), InternalError);
  EXPECT_THROW(qkv_to_cache(at::zeros({5, 16}), options, cache.view(0), queries), InternalError);
}

}  // namespace
}  // namespace specdec
