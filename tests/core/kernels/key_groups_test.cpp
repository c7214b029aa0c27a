// Keys rounded by channel in groups of tokens and values rounded by token (KvFormat::kKivi2,
// kKivi4), beside the formula in plain float64.
#include "core/kernels/key_groups.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/kernels/attention_mass.h"
#include "tests/core/kernels/attention_case.h"
#include "tests/support/ranged_reference.h"

namespace specdec {
namespace {

constexpr KvFormat kGroupFormats[] = {KvFormat::kKivi2, KvFormat::kKivi4};

TEST(KeyGroupsTest, TakeThreeOrFiveBitsANumber) {
  EXPECT_EQ(kv_width(KvFormat::kKivi2, 64), 24);
  EXPECT_EQ(kv_width(KvFormat::kKivi4, 64), 40);
  for (const KvFormat format : kGroupFormats) {
    for (int64_t head_dim = kv_multiple(format); head_dim <= 520; head_dim += kv_multiple(format)) {
      EXPECT_EQ(kv_head_dim(format, kv_width(format, head_dim)), head_dim);
    }
    EXPECT_THROW((void)kv_width(format, 12), InternalError);
  }
}

/// Between other bytes, which stay.
TEST(KeyGroupsTest, HoldTheNumbersOfTheFormula) {
  at::manual_seed(1);
  for (const KvFormat format : kGroupFormats) {
    for (const int64_t head_dim : {8, 40, 64}) {
      const int64_t width = kv_width(format, head_dim);
      const Tensor keys =
          at::randn({head_dim, kKeyGroup}) * at::logspace(-3, 2, head_dim).view({-1, 1});
      keys[1].fill_(0.3F);
      keys[2][5] = std::numeric_limits<float>::infinity();
      keys[3].mul_(1e-9F);  // a step that float16 has not
      Tensor page = at::full({width, 2 * kKeyGroup}, 0x5A, at::kByte);
      const KeyGroup group{page.mutable_data_ptr<uint8_t>() + kKeyGroup, 2 * kKeyGroup};
      encode_key_group(format, keys.const_data_ptr<float>(), kKeyGroup, head_dim, group);
      EXPECT_TRUE((page.narrow(1, 0, kKeyGroup) == 0x5A).all().item<bool>());
      const Tensor expected = ranged_reference(format, keys).t().contiguous();
      Tensor read = at::empty({kKeyGroup, head_dim});
      const Tensor copy = page.narrow(1, kKeyGroup, kKeyGroup).t().contiguous();
      for (const KeyGroup& from : {group, KeyGroup{copy.mutable_data_ptr<uint8_t>(), 1, width}}) {
        for (int64_t token = 0; token < kKeyGroup; ++token) {
          decode_key_of_group(format, from, token, head_dim, read[token].mutable_data_ptr<float>());
        }
        EXPECT_TRUE(at::equal(read.nan_to_num(12345.0), expected.nan_to_num(12345.0))) << head_dim;
      }
      EXPECT_TRUE(read.select(1, 2).isnan().all().item<bool>()) << "its group, and no other";
      EXPECT_EQ(read.isnan().sum().item<int64_t>(), kKeyGroup);
    }
  }
}

/// The form in which a node reads a key depends on their positions alone, in prefills whose groups
/// end in the same forward too: attention has the bits of one over a float32 cache that holds the
/// numbers of the formula beside those as they are. What the formula has no number for is NaN
/// there.
TEST(KeyGroupsTest, AttentionHasTheBitsOfAFloat32CacheOfTheRoundedNumbers) {
  at::manual_seed(2);
  for (const KvFormat format : kGroupFormats) {
    using Sizes = std::pair<int64_t, int64_t>;
    for (const auto& [head_dim, page_size] :
         {Sizes{8, 32}, Sizes{40, 96}, Sizes{64, 32}, Sizes{256, 64}}) {
      const AttentionCase c{.dtype = at::kFloat,
                            .heads = 4,
                            .kv_heads = 2,
                            .head_dim = head_dim,
                            .window = 0,
                            .soft_cap = 0,
                            .bias = false,
                            .page_size = page_size,
                            .format = format,
                            .exact_recent = 40};
      AttentionCase plain = c;
      plain.format = KvFormat::kNative;
      plain.exact_recent = 0;
      AttentionCache stored(c), exact(plain), rounded(plain);
      // Of wide heads, which take most of the time, one chunk is enough.
      const int64_t nodes = head_dim > 64 ? 100 : kAttentionChunk + 90;
      const Tensor qkv = stored.random_qkv(nodes) * 3;
      Tensor same = qkv.view({nodes, c.heads + 2 * c.kv_heads, head_dim}).clone();
      const Tensor keys = same.narrow(1, c.heads, c.kv_heads);
      keys.copy_(rounded_keys(format, keys));
      const Tensor values = same.narrow(1, c.heads + c.kv_heads, c.kv_heads);
      values.copy_(rounded_values(format, values));
      const Tensor queries = stored.extend({}, {}, qkv);
      exact.extend({}, {}, qkv);
      rounded.extend({}, {}, same.view_as(qkv));
      KvView view = rounded.kv().view(0);
      const KvView recent = exact.kv().view(0);
      view.exact = {recent.keys, recent.values, 0, c.exact_recent, kKeyGroup};
      Tensor expected = at::empty_like(queries);
      paged_attention(queries, view, {AttentionCache::kScale, 0, {}}, expected);
      const Tensor out = stored.attend(queries);
      EXPECT_FALSE(out.isnan().any().item<bool>());
      EXPECT_TRUE(at::equal(out, expected)) << head_dim;
      EXPECT_FALSE(at::equal(out, exact.attend(queries))) << "something is rounded";
      // What a trace reads are the same keys.
      std::vector<double> weights, others;
      const AttentionOptions options{AttentionCache::kScale, 0, {}};
      attention_mass(queries, stored.kv().view(0), options,
                     [&](const SeenKey& key) { weights.push_back(key.weight); });
      attention_mass(queries, view, options,
                     [&](const SeenKey& key) { others.push_back(key.weight); });
      EXPECT_EQ(weights, others);
    }
  }
}

}  // namespace
}  // namespace specdec
