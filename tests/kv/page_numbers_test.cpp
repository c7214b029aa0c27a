#include "kv/page_numbers.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace specdec {
namespace {

constexpr int64_t kNumberHeads = 2;
constexpr int64_t kNumbers = 64;  // of a head

Tensor some_numbers() {
  const c10::InferenceMode inference;
  return at::linspace(-3, 3, kNumberHeads * 5 * kNumbers, at::kFloat)
      .sin()
      .view({kNumberHeads, 5, kNumbers});
}

/// Levels of each head's keys and values, in that order: multiples of the normal ones.
LayerKv layer_with_levels() {
  const Tensor levels = at::empty({2, kNumberHeads, kQ3Levels}, at::kFloat);
  auto* level = levels.mutable_data_ptr<float>();
  for (int64_t i = 0; i < 2 * kNumberHeads * kQ3Levels; ++i) {
    level[i] = kNormalLevels[i % kQ3Levels] * static_cast<float>(1 + i / kQ3Levels);
  }
  return {.kv_heads = kNumberHeads, .head_dim = kNumbers, .levels = levels};
}

TEST(PageNumbersTest, NativePagesHoldTheNumbersThemselves) {
  const Tensor numbers = some_numbers();
  const Tensor stored = rounded_numbers({}, numbers, {});
  EXPECT_TRUE(at::equal(stored, numbers));
  EXPECT_TRUE(at::equal(widened_numbers({}, stored, {}), numbers));
}

TEST(PageNumbersTest, RoundingWhatWasRoundedChangesNothing) {
  for (const KvFormat format : {KvFormat::kBFloat16, KvFormat::kFloat16}) {
    const PageForm form{.format = format};
    const Tensor stored = rounded_numbers(form, some_numbers(), {});
    const Tensor widened = widened_numbers(form, stored, {});
    EXPECT_EQ(widened.scalar_type(), at::kFloat);
    EXPECT_LT((widened - some_numbers()).abs().max().item<float>(), 0.02F);
    EXPECT_TRUE(at::equal(rounded_numbers(form, widened, {}), stored)) << kv_format_name(format);
  }
}

TEST(PageNumbersTest, ARotationIsUndoneByWidening) {
  const PageForm rotated{.format = KvFormat::kQ8, .rotation = KvRotation::kHadamard};
  const Tensor numbers = some_numbers();
  const Tensor stored = rounded_numbers(rotated, numbers, {});
  EXPECT_FALSE(at::equal(stored, rounded_numbers({.format = KvFormat::kQ8}, numbers, {})));
  EXPECT_LT((widened_numbers(rotated, stored, {}) - numbers).abs().max().item<float>(), 0.05F);
}

TEST(PageNumbersTest, EachHeadHasItsOwnLevels) {
  const LayerKv layer = layer_with_levels();
  EXPECT_EQ(key_levels(layer).of(0), layer.levels.const_data_ptr<float>());
  EXPECT_EQ(key_levels(layer).of(1)[0], 2 * kNormalLevels[0]);
  EXPECT_EQ(value_levels(layer).of(0)[0], 3 * kNormalLevels[0]);
  EXPECT_EQ(value_levels(layer).of(1)[0], 4 * kNormalLevels[0]);
  EXPECT_EQ(value_levels({.kv_heads = 2, .head_dim = kNumbers}).of(1)[0], kNormalLevels[0]);
  const PageForm form{.format = KvFormat::kQ3};
  const Tensor stored = rounded_numbers(form, some_numbers(), {});
  const Tensor normal = widened_numbers(form, stored, {});
  const Tensor scaled = widened_numbers(form, stored, key_levels(layer));
  EXPECT_TRUE(at::equal(scaled[0], normal[0]));
  EXPECT_TRUE(at::allclose(scaled[1], 2 * normal[1])) << "head 1 has twice the normal levels";
}

TEST(PageNumbersTest, AbsentKeysBecomeZerosAndOthersStay) {
  const Tensor keys = some_numbers().clone();
  const c10::InferenceMode inference;
  keys.select(1, 2).fill_(std::numeric_limits<float>::quiet_NaN());
  const Tensor present = present_keys(keys);
  EXPECT_EQ(present.select(1, 2).abs().sum().item<float>(), 0.0F);
  EXPECT_TRUE(at::equal(present.narrow(1, 0, 2), keys.narrow(1, 0, 2)));
  EXPECT_TRUE(at::equal(present.narrow(1, 3, 2), keys.narrow(1, 3, 2)));
}

}  // namespace
}  // namespace specdec
