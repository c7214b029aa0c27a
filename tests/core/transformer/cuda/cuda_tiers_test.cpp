// Models on the CUDA ops whose cache lies in tiers: the device, the host's memory and a disk.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/kernels/cuda/cuda_copy_queue.h"
#include "core/row_tiers.h"
#include "core/transformer/heads/feature_model.h"
#include "core/transformer/heads/module_chains.h"
#include "kv/kv_cache.h"
#include "tests/core/transformer/cuda/emulated_model.h"
#include "tests/kv/full_disk.h"
#include "tests/support/error_message.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using testing::HasSubstr;

/// Copies of the device, which are done before ATen runs, since it runs at once here. One that
/// could overtake ops fails the test: the emulation sees no more than the address of the first
/// page, which launches are given that do not read that page.
class CheckedCopies final : public CopyQueue {
 public:
  bool ops_wait = true;  ///< false: let_ops_wait() is forgotten

  std::shared_ptr<std::byte> pinned(int64_t bytes) override { return copies_->pinned(bytes); }
  std::shared_ptr<std::byte> on_device(int64_t bytes) override { return copies_->on_device(bytes); }
  void copy(void* to, const void* from, int64_t bytes) override {
    EXPECT_TRUE(waits_for_ops_);
    copies_->wait_for_ops();
    copies_->copy(to, from, bytes);
  }
  void wait_for_ops() override { waits_for_ops_ = true; }
  void let_ops_wait() override {
    waits_for_ops_ = false;  // some may be called now
    if (ops_wait) {
      copies_->let_ops_wait();
      copies_->wait(copies_->mark());
    }
  }
  int64_t mark() override { return copies_->mark(); }
  void wait(int64_t mark) override { copies_->wait(mark); }

 private:
  std::shared_ptr<CopyQueue> copies_ = cuda_copy_queue(at::kCPU);
  std::atomic<bool> waits_for_ops_ = false;
};

constexpr int64_t kBlock = 2 * 4096;  // a page of 16 tokens, of 1 head of 64 float32

constexpr int64_t kLayers = 6;
constexpr int64_t kKept = 179;   // tokens: 12 pages
constexpr int64_t kMemory = 18;  // blocks: a layer of 12 pages, and one in each layer

/// Six layers, the first with a window.
std::shared_ptr<const TransformerWeights> deep_gemma() {
  const auto config = parse_gemma_config(
      R"({"model_type": "gemma3_text", "vocab_size": 40, "hidden_size": 16,
          "intermediate_size": 16, "num_hidden_layers": 6, "num_attention_heads": 1,
          "num_key_value_heads": 1, "head_dim": 64, "query_pre_attn_scalar": 64,
          "sliding_window": 20, "layer_types": ["sliding_attention", "full_attention",
          "full_attention", "full_attention", "full_attention", "full_attention"],
          "max_position_embeddings": 512, "eos_token_id": []})",
      "deep_gemma");
  return pack(*random_model(config, {.seed = 3, .norm_deviation = 0.3}), {.place = kEmulated});
}

/// Row 0 of such a model holds some numbers, as if it had read a text.
void restore_text(TransformerModel& model) {
  std::vector<LayerKeyValues> layers;
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    const Tensor numbers =
        at::arange(kKept * 64, at::kFloat).mul(0.37 + static_cast<double>(layer));
    layers.push_back({numbers.sin().view({1, kKept, 64}), numbers.cos().view({1, kKept, 64})});
  }
  model.snapshots()->kv_restore(KvCopies(std::move(layers), kKept), kKept, 0);
}

class CudaTiersTest : public testing::Test {
 protected:
  KvStoreFactory tiered(int64_t blocks, int64_t host_blocks, int64_t page_size = 16) {
    return [=, this](const std::vector<LayerKv>& layers, const KvStoreOptions& options) {
      return std::make_unique<KvCache>(layers, KvCacheOptions{.dtype = options.dtype,
                                                              .page_size = page_size,
                                                              .max_length = options.max_length,
                                                              .max_bytes = 8 << 20,
                                                              .memory_bytes = blocks * kBlock,
                                                              .host_bytes = host_blocks * kBlock,
                                                              .disk = folder_.path(),
                                                              .as_device = true,
                                                              .copies = copies_});
    };
  }

  TemporaryFolder folder_;
  std::shared_ptr<CheckedCopies> copies_ = std::make_shared<CheckedCopies>();
};

/// What every row's pages do before a forward.
using Move = std::function<void(RowTiers&, RowId)>;

/// Logits of chains, of trees whose path moves, of rows that begin alike and of rows that wait.
std::vector<Tensor> logits_of(TransformerModel& model, const Move& move = {}) {
  std::vector<Tensor> all;
  const auto run = [&](std::vector<Token> tokens, std::vector<RowId> rows,
                       std::vector<int64_t> parents) {
    TokenBatch batch = batch_of(tokens);
    batch.rows = std::move(rows);
    batch.parents = std::move(parents);
    for (const RowId row : move ? model.cache().rows() : std::vector<RowId>()) {
      move(*model.cache().row_tiers(), row);
    }
    all.push_back(model.forward(batch).logits.clone());
  };
  restore_text(model);
  run({3, 1}, {}, {});
  model.commit(std::vector<int64_t>{0, 1});
  run({5, 9, 2, 6, 5}, {}, {-1, 0, 0, 1, 2});
  model.commit(std::vector<int64_t>{0, 2, 4});
  const RowId other = model.fork(0, 100);
  run({1, 2, 3}, {0, 0, other}, {});
  model.commit(std::vector<int64_t>{0, 1});
  model.commit(std::vector<int64_t>{0}, other);
  for (int64_t step = 0; step < 2; ++step) {  // row 0 waits
    run({7, 8, 9}, {other, other, other}, {-1, 0, 0});
    model.commit(std::vector<int64_t>{0, 2}, other);
  }
  run({11}, {0}, {});
  model.truncate(150);
  run({13, 15}, {0, other}, {});
  return all;
}

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
  EXPECT_EQ(model.graph_counts().warm_ups, 0) << "no graph";
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

TEST_F(CudaTiersTest, NoGraphHoldsAChainOfModules) {
  const auto weights = deep_gemma();
  const auto head = random_mtp_head(*weights, 2, {.seed = 7});
  TransformerOptions options = emulated();
  options.max_length = 64;
  for (const bool is_tiered : {false, true}) {
    std::vector<std::unique_ptr<FeatureModel>> modules;
    for (size_t module = 0; module < 2; ++module) {
      modules.push_back(make_mtp_model(head, module, weights,
                                       is_tiered ? tiered(kMemory, 0) : paged_kv(), options));
    }
    EXPECT_EQ(ModuleChains({modules[0].get(), modules[1].get()}, 8).can_draw(4), !is_tiered);
  }
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
