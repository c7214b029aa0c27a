// Models on the CUDA ops with caches that round keys and values, or thin what is seen.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "kv/kv_cache.h"
#include "tests/core/transformer/cuda/emulated_model.h"
#include "tests/support/golden.h"

namespace specdec {
namespace {

/// A paged cache, whose layers with full attention see `sink` + `recent` tokens where recent > 0.
struct CudaCacheCase {
  std::string name;
  KvFormat format;
  int64_t sink = 0, recent = 0;
  double tolerance = 3e-2;  ///< of logits: a number near a border may round otherwise
  KvRotation rotation = KvRotation::kNone;

  KvStoreFactory factory() const {
    return [*this](std::vector<LayerKv> layers, const KvStoreOptions& options) {
      for (LayerKv& layer : layers) {
        if (layer.window == 0) {
          layer.window = recent;
          layer.sink = sink;
        }
      }
      return paged_kv(4, format, 0, 0, rotation)(layers, options);
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
    testing::Values(CudaCacheCase{"float16", KvFormat::kFloat16, 0, 0, 5e-3},
                    CudaCacheCase{"fp8_e4m3", KvFormat::kFp8E4m3},
                    CudaCacheCase{"q8", KvFormat::kQ8}, CudaCacheCase{"q4", KvFormat::kQ4},
                    CudaCacheCase{"q3_hadamard", KvFormat::kQ3, 0, 0, 3e-2, KvRotation::kHadamard},
                    CudaCacheCase{"hierarchical", KvFormat::kHierarchical},
                    CudaCacheCase{"window", KvFormat::kNative, 2, 3, 1e-4},
                    CudaCacheCase{"window_q8", KvFormat::kQ8, 1, 2}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace specdec
