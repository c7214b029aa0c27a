// Models on the CUDA ops with caches that round keys and values, or thin what is seen.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/kv_trace.h"
#include "decoders/drafters/self_drafter.h"
#include "decoders/shapes/draft_length.h"
#include "decoders/speculative.h"
#include "kv/compressed_store.h"
#include "kv/paged_kv.h"
#include "kv/tracing_store.h"
#include "tests/core/kernels/attention_case.h"
#include "tests/core/transformer/cuda/drawn_chain_bench.h"
#include "tests/core/transformer/cuda/emulated_model.h"
#include "tests/support/golden.h"

namespace specdec {
namespace {

/// A paged cache, whose layers with full attention see `sink` + `recent` tokens where recent > 0,
/// and means of `chunk` others where chunk > 0.
struct CudaCacheCase {
  std::string name;
  KvFormat format;
  int64_t sink = 0, recent = 0;
  double tolerance = 3e-2;  ///< of logits: a number near a border may round otherwise
  KvRotation rotation = KvRotation::kNone;
  int64_t chunk = 0;
  int64_t exact_recent = 0;
  bool codebook = false;

  KvStoreFactory factory() const {
    return [*this](std::vector<LayerKv> layers,
                   const KvStoreOptions& options) -> std::unique_ptr<KvStore> {
      for (LayerKv& layer : layers) {
        if (chunk == 0 && layer.window == 0) {
          layer.window = recent;
          layer.sink = sink;
        }
        if (codebook) {
          layer.levels = distinct_levels(layer.kv_heads);
        }
      }
      auto paged = make_cache(layers, {.dtype = options.dtype,
                                       .format = format,
                                       .rotation = rotation,
                                       .device = options.device,
                                       .page_size = 4,
                                       .max_length = options.max_length,
                                       .exact_recent = exact_recent});
      if (chunk == 0) {
        return paged;
      }
      return std::make_unique<CompressedStore>(
          std::move(paged), layers, Pooling{.chunk = chunk, .recent = recent, .sink = sink});
    };
  }
};

void PrintTo(const CudaCacheCase& one, std::ostream* out) { *out << one.name; }

class CudaCacheTest : public testing::TestWithParam<CudaCacheCase> {
 protected:
  Golden golden_{"gemma3-a"};  // windows of 5
  std::vector<Token> tokens_ = golden_.tokens("tokens");
  TransformerModel model_{load_rows(golden_.folder(), at::kFloat), GetParam().factory(),
                          emulated()};
};

TEST_P(CudaCacheTest, LogitsFollowTheCpu) {
  const auto weights = load_model(golden_.folder(), {.dtype = at::kFloat});
  TransformerModel host(weights, GetParam().factory());
  TransformerModel exact(weights, paged_kv());
  const TokenBatch batch = batch_of(std::span(tokens_).first(8));
  const Tensor unrounded = exact.forward(batch).logits;
  for (const KvRead read : {KvRead::kAll, KvRead::kUpperHalf}) {
    if (read == KvRead::kUpperHalf && GetParam().format != KvFormat::kHierarchical) {
      continue;
    }
    const ForwardOptions options{.kv_read = read};
    const Tensor logits = model_.forward(batch, options).logits;
    const Tensor difference = (logits - host.forward(batch, options).logits).abs();
    EXPECT_LE(difference.max().item<double>(), GetParam().tolerance);
    const Tensor effect = (logits - unrounded).abs();
    EXPECT_GT(effect.mean().item<double>(), difference.mean().item<double>())
        << "nothing is rounded or hidden";
    model_.truncate(0);
    host.truncate(0);
  }
}

TEST_P(CudaCacheTest, AVerifiedTokenHasTheBitsOfADecodedOne) {
  const std::span<const Token> all(tokens_);
  model_.prefill_get_last_logits(all.first(5));
  const std::vector<Tensor> alone = decoded(model_, all.subspan(5, 4));
  model_.truncate(5);
  TokenBatch tree =
      batch_of(std::vector<Token>{tokens_[5], 1, tokens_[6], 2, tokens_[7], 3, tokens_[8]});
  tree.parents = {-1, 0, 0, 1, 2, 3, 4};
  const Tensor logits = model_.forward(tree).logits;
  const std::vector<int64_t> path = {0, 2, 4, 6};
  for (size_t i = 0; i < path.size(); ++i) {
    EXPECT_TRUE(at::equal(logits[path[i]], alone[i])) << i;
  }
  model_.commit(path);
  const Tensor next = model_.forward(batch_of(all.subspan(9, 2))).logits;
  model_.truncate(9);
  EXPECT_TRUE(at::equal(next[1], decoded(model_, all.subspan(9, 2))[1])) << "moved pages";
}

INSTANTIATE_TEST_SUITE_P(
    All, CudaCacheTest,
    testing::Values(
        CudaCacheCase{"float16", KvFormat::kFloat16, 0, 0, 5e-3},
        CudaCacheCase{"fp8_e4m3", KvFormat::kFp8E4m3}, CudaCacheCase{"q8", KvFormat::kQ8},
        CudaCacheCase{"q4", KvFormat::kQ4},
        CudaCacheCase{"q3_hadamard", KvFormat::kQ3, 0, 0, 3e-2, KvRotation::kHadamard},
        CudaCacheCase{"q3_codebook", KvFormat::kQ3, 0, 0, 3e-2, KvRotation::kNone, 0, 3, true},
        CudaCacheCase{"hierarchical", KvFormat::kHierarchical},
        CudaCacheCase{"window", KvFormat::kNative, 2, 3, 1e-4},
        CudaCacheCase{"window_q8", KvFormat::kQ8, 1, 2},
        CudaCacheCase{"compressed", KvFormat::kNative, 1, 2, 1e-4, KvRotation::kNone, 2},
        CudaCacheCase{"compressed_exact", KvFormat::kQ4, 1, 4, 3e-2, KvRotation::kHadamard, 2, 3}),
    [](const auto& info) { return info.param.name; });

TEST(CudaCompressedTest, ARowWithoutMeansMayStandBesideOneWithMeans) {
  const CudaCacheCase means{"compressed", KvFormat::kNative, 1, 2, 1e-4, KvRotation::kNone, 2};
  TransformerModel model(small_gemma(), means.factory(), emulated());
  const std::vector<Token> text(40, 3);
  const std::vector<Token> first = {5, 7};
  model.prefill_get_last_logits(first);
  const Tensor alone = model.decode_get_logits(std::span(text).first(1)).clone();
  model.truncate(0);
  model.prefill_get_last_logits(text);
  std::vector<RowId> rows;
  for (int i = 0; i < 3; ++i) {  // more rows than there is room for
    rows.push_back(model.open());
  }
  TokenBatch batch = batch_of(first);
  batch.rows = {rows.back(), rows.back()};
  (void)model.forward(batch);
  model.commit(std::vector<int64_t>{0, 1}, rows.back());
  TokenBatch next = batch_of(std::span(text).first(1));
  next.rows = {rows.back()};
  EXPECT_TRUE(at::equal(model.forward(next).logits[0], alone.reshape({-1})));
}

TEST(CudaTraceTest, CountsWhatTheCpuDoes) {
  const KvStoreFactory traced = [](const std::vector<LayerKv>& layers,
                                   const KvStoreOptions& options) {
    return std::make_unique<TracingStore>(paged_kv(4)(layers, options), std::ssize(layers));
  };
  TransformerModel device(small_gemma(), traced, emulated());
  TransformerModel host(small_gemma(1, Placement()), traced);
  const std::vector<Token> prompt = {3, 1, 4, 1, 5, 9};
  for (TransformerModel* model : {&device, &host}) {
    model->prefill_get_last_logits(prompt);
    TokenBatch tree = batch_of(std::vector<Token>{2, 6, 5});
    tree.parents = {-1, 0, 0};
    (void)model->forward(tree);
    model->commit(std::vector<int64_t>{0, 2});
  }
  const KvTrace& counts = *device.cache().trace();
  const KvTrace& expected = *host.cache().trace();
  EXPECT_EQ(counts.forwards, 2);
  EXPECT_EQ(counts.pages, expected.pages);
  ASSERT_EQ(counts.layers.size(), expected.layers.size());
  for (size_t i = 0; i < expected.layers.size(); ++i) {
    EXPECT_EQ(counts.layers[i].written, expected.layers[i].written);
    EXPECT_EQ(counts.layers[i].nodes, 9);
    EXPECT_EQ(counts.layers[i].keys, expected.layers[i].keys);
    for (size_t age = 0; age < expected.layers[i].mass.size(); ++age) {
      EXPECT_NEAR(counts.layers[i].mass[age], expected.layers[i].mass[age], 1e-4);
    }
  }
}

/// Changes nothing, but chains are drawn by the host.
class NoHook final : public LayerHook {
 public:
  std::string fingerprint() const override { return ""; }
  void run(LayerPass& pass) override { pass.evaluate(); }
};

/// `self` with a cache of its own, whose chains are drawn on the device or not.
TEST(CudaCompressedCopyTest, DrawnChainsHaveTheHostsTokens) {
  const CudaCacheCase means{"", KvFormat::kQ8, 1, 2, 0, KvRotation::kNone, 2};
  const CudaCacheCase recent{"", KvFormat::kQ3, 0, 0, 0, KvRotation::kHadamard, 0, 4, true};
  const auto generate = [&](bool on_device, const SamplingParams& sampling) {
    const CudaCacheCase& cache = sampling.greedy() ? recent : means;
    TransformerOptions options = emulated();
    options.max_length = 64;
    TransformerModel target(small_gemma(), paged_kv(), options);
    if (!on_device) {
      options.hooks = {std::make_shared<NoHook>()};
    }
    auto copy = std::make_unique<TransformerModel>(small_gemma(), cache.factory(), options);
    SpeculativeDecoding strategy(
        target, std::make_unique<SelfDrafter>(target, SelfDrafterOptions{}, std::move(copy)),
        verifier_of(DeviceRule::kRejection), std::make_unique<FixedDraftLength>(3));
    return generate_chains(strategy, {3, 1, 4, 1, 5, 9, 2}, sampling, 8);
  };
  for (const double temperature : {0.0, 0.9}) {
    const Generation device = generate(true, {.temperature = temperature});
    const Generation host = generate(false, {.temperature = temperature});
    EXPECT_EQ(device.tokens, host.tokens);
    ASSERT_EQ(device.steps.size(), host.steps.size());
    int64_t accepted = 0;
    for (size_t i = 0; i < device.steps.size(); ++i) {
      accepted += device.steps[i].accepted;
      EXPECT_EQ(device.steps[i].rejected, host.steps[i].rejected);
      EXPECT_EQ(device.steps[i].draft_read_backs.count, device.steps[i].drafted > 0 ? 1 : 0);
      EXPECT_GE(host.steps[i].draft_read_backs.count, host.steps[i].drafted);
    }
    EXPECT_GT(accepted, 0);
  }
}

}  // namespace
}  // namespace specdec
