// Models over a cache with pages on disk, against models over one that lies in memory: every logit
// has the same bits.
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "core/families/model.h"
#include "kv/kv_cache.h"
#include "kv/paged_kv.h"
#include "tests/support/cache_pair.h"
#include "tests/support/golden.h"
#include "tests/support/tiny_gemma.h"
#include "tests/support/tiny_gemma4.h"

namespace specdec {
namespace {

constexpr int64_t kTieredVocab = 40;

KvStoreFactory tiered_kv(int64_t memory_bytes, KvFormat format = KvFormat::kNative,
                         int64_t page_size = kDefaultPageSize) {
  return [=](const std::vector<LayerKv>& layers, const KvStoreOptions& store) {
    return std::make_unique<KvCache>(layers, KvCacheOptions{.dtype = store.dtype,
                                                            .format = format,
                                                            .page_size = page_size,
                                                            .max_length = store.max_length,
                                                            .max_bytes = 64 << 20,
                                                            .memory_bytes = memory_bytes});
  };
}

std::shared_ptr<const TransformerWeights> tiered_weights(const std::string& name) {
  if (name == "gemma3") {
    return tiny_gemma(kTieredVocab, at::kFloat);
  }
  return name.find('-') == std::string::npos ? tiny_gemma4(name, kTieredVocab, at::kFloat)
                                             : load_model(test_data(name), {.dtype = at::kFloat});
}

/// Bytes of a block of the layer with the largest ones, of 4 KiB of keys at least.
int64_t block_bytes(const TransformerWeights& weights) {
  int64_t most = 0;
  for (const LayerPlan& layer : weights.plan) {
    const int64_t page = layer.kv_heads * layer.head_dim * kDefaultPageSize * 4;
    most = std::max(most, 2 * std::max<int64_t>(4096, page * std::max<int64_t>(1, 4096 / page)));
  }
  return most;
}

/// Tokens of a page that is a block in each layer of these models: each row has its own then.
constexpr int64_t kTokensOfBlock = 256;

/// Bytes of two such pages in every layer, and of a third in one.
int64_t bytes_of_two_rows(const TransformerWeights& weights, KvFormat format) {
  int64_t all = 0;
  int64_t most = 0;
  for (const LayerPlan& layer : weights.plan) {
    if (layer.kv_source < 0) {
      const int64_t width = kv_width(format, layer.head_dim);
      const int64_t block = 2 * layer.kv_heads * kTokensOfBlock * width *
                            static_cast<int64_t>(elementSize(kv_element_type(format, at::kFloat)));
      all += 2 * block;
      most = std::max(most, block);
    }
  }
  return all + most;
}

/// A golden model, or a kind of tiny_gemma4.
class TieredModelTest : public testing::TestWithParam<std::string> {};

TEST_P(TieredModelTest, RandomHistoriesHaveTheBitsOfACacheInMemory) {
  const c10::InferenceMode guard;
  at::set_num_threads(1);
  const auto weights = tiered_weights(GetParam());
  // A tree's pages, two at most, stay in every layer; a layer reads those of a row beside them.
  const int64_t blocks = 2 * std::ssize(weights->plan) + 4;
  for (const KvFormat format : {KvFormat::kNative, KvFormat::kBFloat16}) {
    CachePair pair(weights, tiered_kv(blocks * block_bytes(*weights), format), format, 11);
    for (int step = 0; step < 120 && !HasFatalFailure(); ++step) {
      pair.step();
    }
  }
}

TEST_P(TieredModelTest, RowsThatTakeTurnsInMemoryHaveTheBitsOfACacheInMemory) {
  const c10::InferenceMode guard;
  at::set_num_threads(1);
  const auto weights = tiered_weights(GetParam());
  for (const KvFormat format : {KvFormat::kNative, KvFormat::kBFloat16}) {
    const int64_t memory_bytes = bytes_of_two_rows(*weights, format);
    CachePair pair(weights, tiered_kv(memory_bytes, format, kTokensOfBlock), format, 11);
    for (int step = 0; step < 120 && !HasFatalFailure(); ++step) {
      pair.step();
      if (step % 2 == 0) {
        pair.move_pages();
      }
    }
    const KvTiers tiers = *pair.cache().statistics().tiers;
    EXPECT_GT(tiers.promotions, 0);
    EXPECT_LE(tiers.peak_memory_bytes, memory_bytes);
  }
}

INSTANTIATE_TEST_SUITE_P(All, TieredModelTest,
                         testing::Values("gemma3", "dense", "e", "3n", "gemma4-e-a", "mistral-a"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(TieredModelsTest, ACacheOfFourTimesItsMemoryHasTheSameBits) {
  const c10::InferenceMode guard;
  const auto weights = tiny_gemma(kTieredVocab, at::kFloat);
  constexpr int64_t kMemory = 32 << 10;
  TransformerModel model(weights, tiered_kv(kMemory));
  TransformerModel plain(weights, paged_kv());
  constexpr int64_t kPrompt = 240;
  std::vector<int64_t> chain(kPrompt);
  std::iota(chain.begin(), chain.end(), 0);
  const auto forward = [](TransformerModel& m, RowId row, const std::vector<Token>& tokens) {
    const std::vector<RowId> rows(tokens.size(), row);
    return m.forward({.tokens = at::tensor(tokens, at::kInt), .rows = rows}).logits;
  };
  for (RowId row = 0; row < 3; ++row) {
    std::vector<Token> prompt(kPrompt, static_cast<Token>(row + 1));
    if (row > 0) {
      ASSERT_EQ(model.open(), plain.open());
    }
    ASSERT_TRUE(at::equal(forward(model, row, prompt), forward(plain, row, prompt)));
    model.commit(chain, row);
    plain.commit(chain, row);
  }
  EXPECT_GE(model.cache().statistics().used_bytes(), 4 * kMemory);
  for (Token token = 0; token < 12; ++token) {
    const RowId row = token % 3;
    ASSERT_TRUE(at::equal(forward(model, row, {token}), forward(plain, row, {token})));
    model.commit(std::vector<int64_t>{0}, row);
    plain.commit(std::vector<int64_t>{0}, row);
  }
  const KvTiers tiers = *model.cache().statistics().tiers;
  EXPECT_LE(tiers.peak_memory_bytes, kMemory);
  EXPECT_GE(tiers.disk_bytes, 3 * kMemory);
  EXPECT_GT(tiers.promotions, 12);
  EXPECT_EQ(tiers.read_bytes, tiers.promotions * 2 * 4096);
}

/// Who asks for the key of a cache, begins a forward that is refused, or describes a layer, uses no
/// page: here two rows do not fit into memory, and the first one lies on disk.
TEST(TieredModelsTest, WhoAsksWhatACacheIsReadsNothingFromDisk) {
  const c10::InferenceMode guard;
  const auto weights = tiny_gemma(kTieredVocab, at::kFloat);
  TransformerModel model(weights, tiered_kv(32 << 10));
  const std::vector<Token> prompt(240, 3);
  (void)model.prefill_get_last_logits(prompt);
  const RowId other = model.open();
  const std::vector<RowId> rows(prompt.size(), other);
  (void)model.forward({.tokens = at::tensor(prompt, at::kInt), .rows = rows});
  const KvTiers before = *model.cache().statistics().tiers;
  EXPECT_GT(before.disk_bytes, 0);
  (void)model.snapshots()->kv_key();
  ForwardOptions upper;
  upper.kv_read = KvRead::kUpperHalf;
  EXPECT_THROW((void)model.forward({.tokens = at::tensor(prompt, at::kInt)}, upper), Error);
  for (int64_t layer = 0; layer < 3; ++layer) {
    const KvView described = model.cache().describe(layer);
    EXPECT_EQ(described.window, weights->plan[static_cast<size_t>(layer)].window);
    EXPECT_EQ(described.tables->nodes, 240);
  }
  const KvTiers after = *model.cache().statistics().tiers;
  EXPECT_EQ(after.accesses, before.accesses);
  EXPECT_EQ(after.promotions, before.promotions);
  EXPECT_EQ(after.wait_seconds, before.wait_seconds);
}

}  // namespace
}  // namespace specdec
