// The device functions against the host's ops and formats.
#include <ATen/ATen.h>
#include <c10/util/Float8_e4m3fn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <vector>

#include "core/formats/gguf/gguf_blocks.h"
#include "core/kernels/device/activations.h"
#include "core/kernels/device/cache_address.h"
#include "core/kernels/device/numbers.h"
#include "core/kernels/device/online_softmax.h"
#include "core/kernels/device/philox.h"
#include "core/kernels/device/rotary.h"
#include "core/kernels/device/stored_block.h"
#include "core/kernels/gated_activation.h"
#include "core/kernels/soft_cap.h"
#include "core/randomness.h"
#include "kv/kv_cache.h"
#include "tests/support/stored_blocks.h"

namespace specdec {
namespace {

TEST(DeviceNumbersTest, RoundsToBFloat16AsTheHostDoes) {
  std::mt19937 bits(1);
  for (int i = 0; i < 100'000; ++i) {
    const float number = device::float_of(static_cast<uint32_t>(bits()));
    const device::Bfloat16Bits rounded = device::narrow(number, device::Bfloat16Bits{});
    if (std::isnan(number)) {
      EXPECT_TRUE(std::isnan(device::widen(rounded)));
      continue;
    }
    ASSERT_EQ(rounded.bits, at::BFloat16(number).x) << number;
    ASSERT_EQ(device::widen(rounded), static_cast<float>(at::BFloat16(number)));
  }
}

TEST(DeviceNumbersTest, WidensEveryHalf) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto expected =
        static_cast<float>(at::Half(static_cast<uint16_t>(bits), at::Half::from_bits()));
    const float widened = device::widen_half(bits);
    ASSERT_TRUE(widened == expected || (std::isnan(widened) && std::isnan(expected))) << bits;
    ASSERT_EQ(std::signbit(widened), std::signbit(expected)) << bits;
  }
}

TEST(DeviceNumbersTest, RoundsToHalvesAndFloat8AsTheHostDoes) {
  std::mt19937 bits(2);
  for (int i = 0; i < 200'000; ++i) {
    // Every other one of a size that eight bits hold.
    const auto random = static_cast<uint32_t>(bits());
    const float number =
        device::float_of(i % 2 == 0 ? random : (random & 0x87FFFFFFU) | 0x38000000U);
    const uint16_t half = device::narrow(number, device::HalfBits{}).bits;
    const uint8_t small = device::narrow(number, device::Float8Bits{}).bits;
    if (std::isnan(number)) {
      ASSERT_TRUE(std::isnan(device::widen(device::HalfBits{half})));
      ASSERT_TRUE(std::isnan(device::widen(device::Float8Bits{small})));
      continue;
    }
    ASSERT_EQ(half, at::Half(std::clamp(number, -65504.0F, 65504.0F)).x) << number;
    ASSERT_EQ(small, c10::Float8_e4m3fn(std::clamp(number, -448.0F, 448.0F)).x) << number;
  }
}

TEST(DeviceNumbersTest, WidensEveryFloat8) {
  for (int bits = 0; bits < 256; ++bits) {
    const auto code = static_cast<uint8_t>(bits);
    const auto expected =
        static_cast<float>(c10::Float8_e4m3fn(code, c10::Float8_e4m3fn::from_bits()));
    const float widened = device::widen(device::Float8Bits{code});
    ASSERT_TRUE(widened == expected || (std::isnan(widened) && std::isnan(expected))) << bits;
    ASSERT_EQ(std::signbit(widened), std::signbit(expected)) << bits;
  }
}

TEST(DeviceActivationsTest, EqualTheOps) {
  const Tensor gates = at::linspace(-30, 30, 601);
  const Tensor gate_up = at::cat({gates, at::ones({601})}).view({1, 1202});
  Tensor gelu = at::empty({1, 601});
  Tensor silu = at::empty({1, 601});
  Tensor capped = gates.clone().view({1, 601});
  gated_activation(gate_up, Activation::kGeluTanh, gelu);
  gated_activation(gate_up, Activation::kSilu, silu);
  soft_cap(capped, 7.0);
  for (int64_t i = 0; i < 601; ++i) {
    const auto x = gates[i].item<float>();
    const float tolerance = 1e-6F * std::max(1.0F, std::abs(x));
    EXPECT_NEAR(device::gelu_tanh(x), gelu[0][i].item<float>(), tolerance);
    EXPECT_NEAR(device::silu(x), silu[0][i].item<float>(), tolerance);
    EXPECT_NEAR(device::soft_cap(x, 7.0F), capped[0][i].item<float>(), 3e-6F);
    EXPECT_EQ(device::soft_cap(x, 0.0F), x);
  }
}

TEST(DeviceRotaryTest, RotatesByTheAngle) {
  const auto turned = device::rotate({3.0F, 4.0F}, std::cos(0.5F), std::sin(0.5F));
  EXPECT_NEAR(turned.low, 3 * std::cos(0.5) - 4 * std::sin(0.5), 1e-6);
  EXPECT_NEAR(turned.high, 4 * std::cos(0.5) + 3 * std::sin(0.5), 1e-6);
}

TEST(DeviceCacheAddressTest, AWindowHoldsItsNumberOfPositions) {
  EXPECT_EQ(device::first_seen(9, 0), 0);
  EXPECT_EQ(device::first_seen(2, 3), 0);
  EXPECT_EQ(device::first_seen(3, 3), 1);
  for (const int32_t window : {1, 3}) {
    for (int32_t key = 0; key < 20; ++key) {
      EXPECT_EQ(device::sees(10, key, window, 4), key <= 10 && (key < 4 || 10 - key < window))
          << key;
    }
  }
  EXPECT_FALSE(device::sees(2, 3, 1, 4)) << "a later position of the sink";
  for (const int32_t window : {0, 1, 3, 100}) {
    int seen = 0;
    for (int32_t key = 0; key < 20; ++key) {
      const bool visible = device::sees(10, key, window, 0);
      EXPECT_EQ(visible, key <= 10 && (window == 0 || 10 - key < window)) << key;
      seen += visible ? 1 : 0;
    }
    EXPECT_EQ(seen, window == 0 ? 11 : std::min(window, 11));
  }
}

TEST(DeviceCacheAddressTest, ADraftsNodesSeeTheirAncestors) {
  KvCache cache({{1, 4, 0, -1}},
                {.dtype = at::kFloat, .device = at::kCPU, .page_size = 4, .max_length = 64});
  cache.extend({.count = 3});
  cache.commit(0, std::vector<int64_t>{0, 1, 2});
  // 0 -> {1, 2}, 2 -> 3
  const std::vector<int64_t> parents{-1, 0, 0, 2};
  cache.extend({.count = 4, .parents = parents});
  const BatchTables& tables = *cache.view(0).tables;
  const int32_t position = tables.positions[3].item<int32_t>();
  EXPECT_EQ(position, 5);
  std::vector<int32_t> slots;
  for (int32_t p = 0; p <= position; ++p) {
    slots.push_back(device::slot_at(p, tables.lengths[0].item<int32_t>(),
                                    tables.path_starts[3].item<int32_t>(),
                                    tables.paths.const_data_ptr<int32_t>()));
  }
  EXPECT_EQ(slots, (std::vector<int32_t>{0, 1, 2, 3, 5, 6}));
}

TEST(DeviceCacheAddressTest, AddressesAreThoseOfThePages) {
  const Tensor keys = at::empty({3, 2, 8, 4});
  const Tensor values = at::empty({3, 2, 4, 8});
  EXPECT_EQ(device::key_offset({2, 8, 4}, 2, 1, 3),
            keys[2][1][0][3].const_data_ptr<float>() - keys.const_data_ptr<float>());
  EXPECT_EQ(device::value_offset({2, 8, 4}, 2, 1, 3),
            values[2][1][3][0].const_data_ptr<float>() - values.const_data_ptr<float>());
}

TEST(DeviceOnlineSoftmaxTest, PartsAddUpToTheSoftmax) {
  at::manual_seed(2);
  const Tensor scores = at::randn({50}, at::kDouble) * 5;
  const Tensor values = at::randn({50}, at::kDouble);
  device::SoftmaxPart all = device::nothing_seen();
  float mixed = std::numeric_limits<float>::quiet_NaN();
  for (int64_t first = 0; first < 50; first += 10) {
    device::SoftmaxPart part = device::nothing_seen();
    float part_mixed = std::numeric_limits<float>::quiet_NaN();
    for (int64_t i = first; i < first + 10; ++i) {
      const auto added = device::update(part, scores[i].item<float>());
      part_mixed = device::merge_mixed(added, part_mixed, values[i].item<float>());
      part = added.part;
    }
    const auto merged = device::merge(all, part);
    mixed = device::merge_mixed(merged, mixed, part_mixed);
    all = device::merge(merged.part, device::nothing_seen()).part;
  }
  EXPECT_NEAR(mixed / all.total, (scores.softmax(0) * values).sum().item<double>(), 1e-6);
  EXPECT_EQ(device::merge(device::nothing_seen(), device::nothing_seen()).part.largest,
            -std::numeric_limits<float>::infinity());
}

using Weight = float (*)(const unsigned char*, int);

void expect_weights_of(WeightFormat format, Weight weight) {
  const StoredRows rows = random_stored_rows(format, 3, 512, 5);
  const DType dtype = stored_dtype(format);
  const auto each = static_cast<int>(block_values(dtype));
  for (const std::vector<std::byte>& row : rows.bytes) {
    std::vector<float> expected(512);
    dequantize(dtype, row.data(), 512, expected.data());
    for (int i = 0; i < 512; ++i) {
      const auto* block = reinterpret_cast<const unsigned char*>(row.data()) +
                          i / each * static_cast<int>(dtype_bytes(dtype));
      ASSERT_EQ(weight(block, i % each), expected[static_cast<size_t>(i)]) << i;
    }
  }
}

TEST(DeviceStoredBlockTest, EqualsTheReader) {
  expect_weights_of(WeightFormat::kInt8, device::q8_0_weight<const unsigned char*>);
  expect_weights_of(WeightFormat::kQ40, device::q4_0_weight<const unsigned char*>);
  expect_weights_of(WeightFormat::kQ41, device::q4_1_weight<const unsigned char*>);
  expect_weights_of(WeightFormat::kQ50, device::q5_0_weight<const unsigned char*>);
  expect_weights_of(WeightFormat::kQ51, device::q5_1_weight<const unsigned char*>);
  expect_weights_of(WeightFormat::kQ2K, device::q2_k_weight<const unsigned char*>);
  expect_weights_of(WeightFormat::kQ3K, device::q3_k_weight<const unsigned char*>);
  expect_weights_of(WeightFormat::kQ4K, device::q4_k_weight<const unsigned char*>);
  expect_weights_of(WeightFormat::kQ5K, device::q5_k_weight<const unsigned char*>);
  expect_weights_of(WeightFormat::kQ6K, device::q6_k_weight<const unsigned char*>);
}

TEST(DevicePhiloxTest, GivesTheHostsNumbers) {
  std::mt19937 bits(3);
  const auto word = [&] { return static_cast<uint32_t>(bits()); };
  for (int i = 0; i < 1000; ++i) {
    const std::array<uint32_t, 4> counter = {word(), word(), word(), word()};
    const std::array<uint32_t, 2> key = {word(), word()};
    const std::array<uint32_t, 4> host = philox4x32(counter, key);
    const auto block =
        device::philox({{counter[0], counter[1], counter[2], counter[3]}}, key[0], key[1]);
    ASSERT_TRUE(std::equal(host.begin(), host.end(), block.words));
  }
}

TEST(DevicePhiloxTest, ChoosesAsCounterRandomness) {
  constexpr uint64_t kSeed = 0x123456789ABCDEFULL;
  const std::array<uint32_t, 4> key =
      philox4x32({4, 5, 0, 0}, {static_cast<uint32_t>(kSeed), static_cast<uint32_t>(kSeed >> 32U)});
  CounterRandomness host(kSeed, 4, 5);
  host.seek(77, Purpose::kVerify);
  for (uint32_t choice = 0; choice < 100; choice += 2) {
    const auto uniform = [&](uint32_t c) {
      return device::uniform(key[0], key[1], 77, static_cast<uint32_t>(Purpose::kVerify), c);
    };
    const double exact = uniform(choice);
    EXPECT_FALSE(host.bernoulli(exact));  // u < p, and u = p here
    EXPECT_TRUE(host.bernoulli(std::nextafter(uniform(choice + 1), 1.0)));
  }
}

}  // namespace
}  // namespace specdec
