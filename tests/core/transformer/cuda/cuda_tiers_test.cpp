// Models on the CUDA ops whose cache lies in tiers: the device, the host's memory and a disk.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "core/error.h"
#include "kv/paged_kv.h"
#include "tests/core/kernels/cuda/machine.h"
#include "tests/core/transformer/cuda/tiered_device.h"
#include "tests/kv/full_disk.h"
#include "tests/support/error_message.h"
#include "tests/support/golden.h"

namespace specdec {
namespace {

using testing::HasSubstr;

using CudaTiersTest = TieredDeviceTest;

TEST_F(CudaTiersTest, ChainsTreesAndRowsHaveTheBitsOfAnUntieredCache) {
  const auto weights = deep_gemma();
  TransformerModel plain(weights, paged_kv(), emulated());
  const std::vector<Tensor> expected = logits_of(plain);
  TransformerModel model(weights, tiered(kMemory, 0), emulated());
  int64_t moves = 0;
  int64_t left = 0;
  const std::vector<Tensor> logits = logits_of(model, [&](RowTiers& tiers, RowId row) {
    const int64_t before = tiers.bytes(row).memory;
    int64_t came = 0;
    switch (moves++ % 4) {
      case 0:
        return;
      case 1:
        left += tiers.demote(row);
        EXPECT_LE(tiers.bytes(row).memory, before);
        return;
      case 2:
        came = tiers.promote(row);
        EXPECT_GE(came, tiers.bytes(row).memory - before);
        return;
      default:
        tiers.prefetch_async(row);
    }
  });
  EXPECT_GT(left, kMemory * kBlock);
  ASSERT_EQ(logits.size(), expected.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    EXPECT_TRUE(at::equal(logits[i], expected[i])) << i;
  }
  const KvStatistics statistics = model.cache().statistics();
  const KvTiers& tiers = *statistics.tiers;
  EXPECT_GE(statistics.allocated_bytes(), 4 * kMemory * kBlock);
  EXPECT_LE(tiers.peak_memory_bytes, kMemory * kBlock);
  EXPECT_GT(tiers.promotions, 100);
  EXPECT_GT(tiers.host_bytes, 0);
  EXPECT_GT(tiers.disk_bytes, 0);
  EXPECT_EQ(model.graph_counts().warm_ups, 0) << "no forward fits at once";
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    EXPECT_TRUE(at::equal(model.internals()->key_values(layer, 0).first,
                          plain.internals()->key_values(layer, 0).first));
  }
}

TEST_F(CudaTiersTest, LayersThatShareKeysAndReadersFindThem) {
  const Golden golden("gemma4-e-a");
  const auto weights = load_rows(golden.folder(), at::kFloat);
  const std::vector<Token> tokens = golden.tokens("tokens");
  TransformerModel plain(weights, paged_kv(4), emulated());
  TransformerModel model(weights, tiered(2, 0, 4), emulated());
  const std::span<const Token> prompt = std::span(tokens).first(7);
  for (TransformerModel* each : {&plain, &model}) {
    each->prefill_get_last_logits(prompt);
  }
  for (const Token& token : std::span(tokens).subspan(7, 2)) {
    const Tensor expected = plain.decode_get_logits({&token, 1}).clone();
    ASSERT_TRUE(at::equal(model.decode_get_logits({&token, 1}), expected));
  }
  const auto read = [&](TransformerModel& each, int64_t layer) {
    const BatchTables tables = each.internals()->readers(0, 1, 9);
    const KvView view = each.internals()->read_keys(layer, tables);
    return at::cat({view.keys[view.page_table()[0]], view.keys[view.page_table()[1]]});
  };
  for (const int64_t layer : {int64_t{0}, model.internals()->num_layers() - 1}) {
    EXPECT_TRUE(at::equal(read(model, layer), read(plain, layer))) << layer;
  }
  EXPECT_TRUE(plain.internals()->keys_may_be_recorded());
  EXPECT_FALSE(model.internals()->keys_may_be_recorded()) << "pages move";
  EXPECT_GT(model.cache().statistics().tiers->promotions, 5);
}

TEST_F(CudaTiersTest, AFullDiskIsAnErrorThatLosesNothing) {
  const auto weights = deep_gemma();
  const Token next = 5;
  TransformerModel plain(weights, paged_kv(), emulated());
  TransformerModel model(weights, tiered(kMemory, 0), emulated());
  {
    const FullDisk full;
    EXPECT_THAT(error_message<Error>([&] { restore_text(model); }),
                HasSubstr("(pages of a cache): cannot be written"));
  }
  EXPECT_EQ(model.length(), 0);
  restore_text(plain);
  restore_text(model);
  {
    const FullDisk full;
    EXPECT_THAT(error_message<Error>([&] {
                  (void)model.decode_get_logits({&next, 1});
                }),
                HasSubstr("cannot be written"));
  }
  EXPECT_EQ(model.length(), kKept);
  EXPECT_TRUE(at::equal(model.decode_get_logits({&next, 1}), plain.decode_get_logits({&next, 1})));
}

TEST_F(CudaTiersTest, WhatTheHostHasRoomForNeedsNoDisk) {
  const auto weights = deep_gemma();
  const Token next = 5;
  TransformerModel plain(weights, paged_kv(), emulated());
  TransformerModel model(weights, tiered(kMemory, 100), emulated());
  restore_text(plain);
  {
    const FullDisk full;
    restore_text(model);
    EXPECT_TRUE(
        at::equal(model.decode_get_logits({&next, 1}), plain.decode_get_logits({&next, 1})));
  }
  const KvTiers tiers = *model.cache().statistics().tiers;
  EXPECT_EQ(tiers.host_bytes, (kLayers * 12 - kMemory) * kBlock);
  EXPECT_EQ(tiers.disk_bytes + tiers.written_bytes + tiers.read_bytes, 0);
}

TEST_F(CudaTiersTest, AForgottenWaitIsFound) {
  if (cuda::runs_on_a_gpu()) {
    GTEST_SKIP() << "its copies may be done at once";
  }
  const auto weights = deep_gemma();
  const Token next = 5;
  TransformerModel plain(weights, paged_kv(), emulated());
  TransformerModel model(weights, tiered(kMemory, 0), emulated());
  restore_text(plain);
  restore_text(model);
  copies_->ops_wait = false;
  EXPECT_FALSE(at::equal(model.decode_get_logits({&next, 1}), plain.decode_get_logits({&next, 1})));
}

}  // namespace
}  // namespace specdec
