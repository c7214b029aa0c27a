#pragma once
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "core/drawn_chain.h"
#include "core/error.h"
#include "core/kernels/cuda/cuda_copy_queue.h"
#include "core/row_tiers.h"
#include "kv/forwarding_store.h"
#include "kv/kv_cache.h"
#include "tests/core/transformer/cuda/emulated_model.h"
#include "tests/support/temporary_folder.h"

/// What tests share of models on the CUDA ops whose cache lies in tiers.
namespace specdec {

/// Copies of the device, which are done before ATen runs, since it runs at once here. One that
/// could overtake ops fails the test: the emulation sees no more than the address of the first
/// page, which launches are given that do not read that page.
class CheckedCopies final : public CopyQueue {
 public:
  bool ops_wait = true;             ///< false: let_ops_wait() is forgotten
  std::atomic<int64_t> copied = 0;  ///< calls of copy()

  std::shared_ptr<std::byte> pinned(int64_t bytes) override { return copies_->pinned(bytes); }
  std::shared_ptr<std::byte> on_device(int64_t bytes) override { return copies_->on_device(bytes); }
  void copy(void* to, const void* from, int64_t bytes) override {
    EXPECT_TRUE(waits_for_ops_);
    ++copied;
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
inline std::shared_ptr<const TransformerWeights> deep_gemma() {
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

/// A row of such a model holds some numbers, as if it had read a text.
inline void restore_text(TransformerModel& model, RowId row = 0) {
  std::vector<LayerKeyValues> layers;
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    const Tensor numbers =
        at::arange(kKept * 64, at::kFloat).mul(0.37 + static_cast<double>(layer));
    layers.push_back({numbers.sin().view({1, kKept, 64}), numbers.cos().view({1, kKept, 64})});
  }
  model.snapshots()->kv_restore(KvCopies(std::move(layers), kKept), kKept, row);
}

class TieredDeviceTest : public testing::Test {
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

/// Notes how often pages are to be resident, and fails to bring them where it is told.
class NotedPages final : public ForwardingStore {
 public:
  struct Notes {
    int64_t calls = 0;
    bool fails = false;
  };
  NotedPages(std::unique_ptr<KvStore> store, Notes& notes)
      : ForwardingStore(std::move(store)), notes_(notes) {}
  bool make_resident(std::span<const int64_t> layers) override {
    ++notes_.calls;
    if (notes_.fails) {
      throw Error("the disk is full");
    }
    return ForwardingStore::make_resident(layers);
  }

 private:
  Notes& notes_;
};

inline KvStoreFactory noted(KvStoreFactory store, NotedPages::Notes& notes) {
  return [store = std::move(store), &notes](const std::vector<LayerKv>& layers,
                                            const KvStoreOptions& options) {
    return std::make_unique<NotedPages>(store(layers, options), notes);
  };
}

/// Chains with the same tokens and distributions.
inline void expect_equal_chains(const DrawnChain& chain, const DrawnChain& wanted) {
  EXPECT_EQ(chain.tokens, wanted.tokens);
  ASSERT_EQ(chain.probs.defined(), wanted.probs.defined());
  EXPECT_TRUE(!wanted.probs.defined() || at::equal(chain.probs, wanted.probs));
}

inline TransformerOptions tier_options(int64_t graphs = 32) {
  return {.ops = cuda_ops(at::kCPU), .graphs = graphs};
}

/// What every row's pages do before a forward.
using Move = std::function<void(RowTiers&, RowId)>;

/// Logits of chains, of trees whose path moves, of rows that begin alike and of rows that wait.
inline std::vector<Tensor> logits_of(TransformerModel& model, const Move& move = {}) {
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
  model.close(other);
  return all;
}

}  // namespace specdec
