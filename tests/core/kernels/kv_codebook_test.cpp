// Levels of q3 that are not kNormalLevels: found for numbers, and read by attention.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "core/kernels/attention.h"
#include "core/kernels/attention_mass.h"
#include "core/kernels/level_calibration.h"
#include "core/kernels/qkv.h"
#include "kv/kv_cache.h"

namespace specdec {
namespace {

using Levels = std::array<float, kQ3Levels>;

/// Levels whose root mean square is 1.
Levels unit_levels(Levels levels) {
  double squares = 0;
  for (const float level : levels) {
    squares += static_cast<double>(level) * level / kQ3Levels;
  }
  for (float& level : levels) {
    level = static_cast<float>(level / std::sqrt(squares));
  }
  return levels;
}

/// A group in which each level stands four times, times `scale`.
std::vector<float> group_of(const Levels& levels, float scale = 1) {
  std::vector<float> numbers;
  for (int64_t i = 0; i < kKvGroup; ++i) {
    numbers.push_back(scale * levels[static_cast<size_t>(i * 5 % kQ3Levels)]);
  }
  return numbers;
}

const Levels kSkewed = unit_levels({-1.9F, -1.1F, -0.7F, -0.3F, 0.0F, 0.5F, 1.2F, 2.0F});
const Levels kOther = unit_levels({-2.2F, -1.6F, -1.0F, -0.2F, 0.2F, 0.8F, 1.4F, 1.5F});

TEST(KvCodebookTest, CodesMeanTheLevelsOfTheirCodebook) {
  const std::vector<float> numbers = group_of(kSkewed, 3);
  std::vector<uint8_t> bytes(static_cast<size_t>(kv_width(KvFormat::kQ3, kKvGroup)));
  std::vector<float> read(kKvGroup);
  encode_kv(KvFormat::kQ3, numbers.data(), kKvGroup, {bytes.data(), 1, kSkewed.data()});
  decode_kv(KvFormat::kQ3, {bytes.data(), 1, kSkewed.data()}, kKvGroup, read.data());
  for (size_t i = 0; i < read.size(); ++i) {
    EXPECT_NEAR(read[i], numbers[i], 1e-3 * std::fabs(numbers[i]));
  }
  const std::vector<float> zeros(kKvGroup);
  encode_kv(KvFormat::kQ3, zeros.data(), kKvGroup, {bytes.data(), 1, kSkewed.data()});
  decode_kv(KvFormat::kQ3, {bytes.data(), 1, kSkewed.data()}, kKvGroup, read.data());
  EXPECT_EQ(read, zeros);
}

TEST(KvCodebookTest, AttentionReadsTheLevelsOfEachHead) {
  at::manual_seed(3);
  for (const int64_t head_dim : {64, 40}) {
    for (const int64_t page_size : {16, 5}) {
      const LayerKv layer{.kv_heads = 2, .head_dim = head_dim};
      LayerKv calibrated = layer;
      calibrated.levels = at::randn({2, 2, kQ3Levels});
      KvCacheOptions options{.page_size = page_size, .max_length = 512};
      KvCache plain({layer}, options);
      options.format = KvFormat::kQ3;
      KvCache rounded({calibrated}, options);
      KvCache fixed({layer}, options);
      constexpr int64_t kTokens = 300;  // two chunks
      QkvOptions qkv;
      qkv.heads = 4;
      qkv.cos = at::ones({kTokens, head_dim / 2});
      qkv.sin = at::zeros({kTokens, head_dim / 2});
      const Tensor tokens = at::randn({kTokens, 8 * head_dim});
      std::vector<int64_t> path(kTokens);
      std::iota(path.begin(), path.end(), 0);
      Tensor queries = at::empty({kTokens, 4, head_dim});
      for (KvCache* cache : {&rounded, &fixed}) {
        cache->extend({.count = kTokens});
        qkv_to_cache(tokens, qkv, cache->view(0), queries);
        cache->commit(0, path);
      }
      plain.append(0, kTokens, [&](int64_t) { return rounded.key_values(0, 0); });
      queries = queries.narrow(0, 0, 3);
      const auto attend = [&](const KvCache& cache, std::vector<double>& weights) {
        const BatchTables tables = cache.readers(0, 3, kTokens - 1);
        KvView view = cache.view(0);
        view.tables = &tables;
        Tensor out = at::empty_like(queries);
        paged_attention(queries, view, {0.3, 0.0, {}}, out);
        attention_mass(queries, view, {0.3, 0.0, {}},
                       [&](const SeenKey& key) { weights.push_back(key.weight); });
        return out;
      };
      std::vector<double> read, expected, unused;
      EXPECT_TRUE(at::equal(attend(rounded, read), attend(plain, expected)));
      EXPECT_EQ(read, expected);
      EXPECT_FALSE(at::equal(attend(fixed, unused), attend(plain, expected)));
    }
  }
}

TEST(LevelCalibrationTest, NumbersThatAreAtEightLevelsHaveThose) {
  LevelCalibration calibration(LevelWeights::kEqual);
  for (const float scale : {1.0F, 1e-3F, 700.0F}) {
    calibration.add(group_of(kSkewed, scale));
  }
  const Levels found = calibration.levels();
  for (size_t code = 0; code < found.size(); ++code) {
    EXPECT_NEAR(found[code], kSkewed[code], 1e-6);
  }
}

TEST(LevelCalibrationTest, ByMagnitudeLargeGroupsCount) {
  LevelCalibration equal(LevelWeights::kEqual);
  LevelCalibration by_magnitude(LevelWeights::kByMagnitude);
  for (LevelCalibration* calibration : {&equal, &by_magnitude}) {
    for (int group = 0; group < 5; ++group) {
      calibration->add(group_of(kOther));
    }
    calibration->add(group_of(kSkewed, 1e4F));
  }
  for (size_t code = 0; code < kQ3Levels; ++code) {
    EXPECT_NEAR(by_magnitude.levels()[code], kSkewed[code], 1e-5);
  }
  EXPECT_GT(std::fabs(equal.levels()[0] - kSkewed[0]), 0.05F);
}

TEST(LevelCalibrationTest, NormalNumbersComeCloseToMaxsTable) {
  LevelCalibration calibration(LevelWeights::kEqual);
  std::mt19937_64 random(2);
  std::normal_distribution<float> normal(0, 5);
  std::vector<float> head(kKvGroup);
  for (int i = 0; i < 5000; ++i) {
    for (float& number : head) {
      number = normal(random);
    }
    calibration.add(head);
  }
  Levels table = {};
  std::copy(std::begin(kNormalLevels), std::end(kNormalLevels), table.begin());
  std::sort(table.begin(), table.end());
  const Levels found = calibration.levels();
  for (size_t code = 0; code < found.size(); ++code) {
    EXPECT_NEAR(found[code], table[code], 0.1);  // the group's own scale cuts the tails
    EXPECT_NE(found[code], table[code]);
  }
}

TEST(LevelCalibrationTest, WhatHasNoScaleCountsForNothing) {
  LevelCalibration calibration(LevelWeights::kByMagnitude);
  const Levels before = calibration.levels();
  EXPECT_TRUE(std::is_sorted(before.begin(), before.end()));
  calibration.add(std::vector<float>(40, 0.0F));
  std::vector<float> damaged(40, 1.0F);
  damaged[3] = std::numeric_limits<float>::quiet_NaN();
  damaged[35] = std::numeric_limits<float>::infinity();
  calibration.add(damaged);
  EXPECT_EQ(calibration.levels(), before);
}

}  // namespace
}  // namespace specdec
