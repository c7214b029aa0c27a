// Whole models on the ops of Metal, whose kernels run on the CPU: the golden sets, and the bits of
// verified tokens.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "core/families/model.h"
#include "core/transformer/transformer_model.h"
#include "kv/paged_kv.h"
#include "tests/core/kernels/metal/emulated_queue.h"
#include "tests/support/golden.h"
#include "tests/support/parameter_name.h"
#include "tests/support/slack_pair.h"

namespace specdec {
namespace {

TokenBatch metal_batch(std::span<const Token> tokens) {
  return {.tokens = at::tensor(c10::ArrayRef<Token>(tokens.data(), tokens.size()), at::kInt)};
}

TransformerModel emulated_metal_model(const std::filesystem::path& folder,
                                      KvFormat format = KvFormat::kNative) {
  const Placement rows{at::kCPU, WeightLayout::kRows};
  return {load_model(folder, {.dtype = at::kFloat, .place = rows}),
          paged_kv(16, format),
          {.ops = mps::emulated_metal_ops()}};
}

class MetalGoldenTest : public testing::TestWithParam<std::string> {
 protected:
  Golden golden_{GetParam()};
  TransformerModel model_ = emulated_metal_model(golden_.folder());
};

TEST_P(MetalGoldenTest, ChunksMatch) {
  const auto tokens = golden_.tokens("tokens");
  const at::Tensor wanted = golden_.tensor("logits");
  size_t begin = 0;
  for (const size_t chunk : {size_t{9}, size_t{1}}) {
    const size_t size = std::min(chunk, tokens.size() - begin);
    const Tensor logits =
        model_.forward(metal_batch(std::span(tokens).subspan(begin, size))).logits;
    std::vector<int64_t> path(size);
    std::iota(path.begin(), path.end(), 0);
    model_.commit(path);
    const Tensor rows = wanted.narrow(0, static_cast<int64_t>(begin), static_cast<int64_t>(size));
    ASSERT_LE(max_difference(logits, rows), GetParam() == "gemma3n-a" ? 5e-4 : 1e-4) << begin;
    begin += size;
  }
}

TEST_P(MetalGoldenTest, GreedyIsExact) {
  const auto wanted = golden_.tokens("greedy");
  Tensor logits = model_.prefill_get_last_logits(golden_.tokens("prompt"));
  for (size_t i = 0; i < 2; ++i) {
    const auto token = static_cast<Token>(logits.argmax().item<int64_t>());
    ASSERT_EQ(token, wanted[i]) << i;
    logits = model_.decode_get_logits({&token, 1})[0];
  }
}

INSTANTIATE_TEST_SUITE_P(All, MetalGoldenTest, testing::ValuesIn(all_golden_names()),
                         ParameterName());

TEST(MetalWindowSlackTest, NoKernelReadsWhatWasGivenBack) {
  const Golden golden("gemma3-a");  // windows of 5
  const Placement rows{at::kCPU, WeightLayout::kRows};
  const auto weights = load_model(golden.folder(), {.dtype = at::kFloat, .place = rows});
  TransformerModel model(weights, paged_kv(2, KvFormat::kNative, 0, 2),
                         {.ops = mps::emulated_metal_ops()});
  TransformerModel plain(weights, paged_kv(2), {.ops = mps::emulated_metal_ops()});
  const auto tokens = golden.tokens("tokens");
  const std::vector<int64_t> parents = {-1, 0, 0};
  std::vector<Tensor> logits;
  for (TransformerModel* each : {&model, &plain}) {
    each->forward(metal_batch(std::span(tokens).first(14)));
    std::vector<int64_t> path(14);
    std::iota(path.begin(), path.end(), 0);
    each->commit(path);
    poison_unused_pages(*each);
    TokenBatch tree = metal_batch(std::span(tokens).subspan(14, 3));
    tree.parents = parents;
    logits.push_back(each->forward(tree).logits.clone());
  }
  EXPECT_EQ(model.cache().statistics().free_pages, 1) << "three, of which the tree has taken two";
  EXPECT_FALSE(logits[0].isnan().any().item<bool>());
  EXPECT_TRUE(at::equal(logits[0], logits[1]));
}

/// Golden sets on an Apple GPU, where there is one.
class MpsGoldenTest : public testing::TestWithParam<std::string> {};

TEST_P(MpsGoldenTest, LogitsMatch) {
  const Golden golden(GetParam());
  TransformerModel model(
      load_model(golden.folder(), {.dtype = at::kFloat, .place = placement_on(at::kMPS)}),
      paged_kv());
  const Tensor wanted = golden.tensor("logits");
  const Tensor logits = model.forward(metal_batch(golden.tokens("tokens"))).logits;
  EXPECT_LE(max_difference(logits.cpu(), wanted), GetParam() == "gemma3n-a" ? 5e-4 : 1e-4);
}

INSTANTIATE_TEST_SUITE_P(All, MpsGoldenTest,
                         testing::ValuesIn(at::hasMPS() ? all_golden_names()
                                                        : std::vector<std::string>()),
                         ParameterName());
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(MpsGoldenTest);

/// Caches of Gemma 3 in a format.
class MetalModelTest : public testing::TestWithParam<KvFormat> {};

TEST_P(MetalModelTest, AVerifiedTokenHasTheBitsOfADecodedOne) {
  const Golden golden("gemma3-a");
  const auto tokens = golden.tokens("tokens");
  TransformerModel model = emulated_metal_model(golden.folder(), GetParam());
  const std::span<const Token> all(tokens);
  model.prefill_get_last_logits(all.first(5));
  std::vector<Tensor> alone;
  for (const Token& token : all.subspan(5, 3)) {
    alone.push_back(model.decode_get_logits({&token, 1})[0]);
  }
  model.truncate(5);
  TokenBatch tree = metal_batch(std::vector<Token>{tokens[5], 1, tokens[6], 2, 3, tokens[7]});
  tree.parents = {-1, 0, 0, 1, 2, 2};
  const Tensor logits = model.forward(tree).logits;
  const std::vector<int64_t> path = {0, 2, 5};
  for (size_t i = 0; i < path.size(); ++i) {
    EXPECT_TRUE(at::equal(logits[path[i]], alone[i])) << i;
  }
}

TEST(MetalReadBackTest, AGreedyStepReadsTwelveBytesANode) {
  const Golden golden("gemma3-a");
  const auto tokens = golden.tokens("tokens");
  TransformerModel model = emulated_metal_model(golden.folder());
  const TokenBatch batch = metal_batch(std::span(tokens).first(5));
  const ForwardResult result = model.forward(batch, {.logits_use = LogitsUse::kBest});
  EXPECT_FALSE(result.logits.defined());
  EXPECT_EQ(result.read_backs.count, 1);
  EXPECT_EQ(result.read_backs.bytes, 5 * 12);
  const Tensor logits = emulated_metal_model(golden.folder()).forward(batch).logits.clone();
  for (int64_t node = 0; node < 5; ++node) {
    EXPECT_EQ(result.best.at(static_cast<size_t>(node)).token, logits[node].argmax().item<Token>());
  }
}

/// A number at a border of the format is rounded to either side of it: a step of the format.
TEST_P(MetalModelTest, FollowsTheCpu) {
  const Golden golden("gemma3-a");
  TransformerModel device = emulated_metal_model(golden.folder(), GetParam());
  TransformerModel host(load_model(golden.folder(), {.dtype = at::kFloat}),
                        paged_kv(16, GetParam()));
  const auto tokens = golden.tokens("tokens");
  const TokenBatch batch = metal_batch(std::span(tokens).first(10));
  const bool is_coarse = GetParam() == KvFormat::kQ4 || GetParam() == KvFormat::kFp8E4m3;
  EXPECT_LE(max_difference(device.forward(batch).logits, host.forward(batch).logits),
            is_coarse ? 0.1 : 1e-2);
}

INSTANTIATE_TEST_SUITE_P(Formats, MetalModelTest,
                         testing::Values(KvFormat::kNative, KvFormat::kBFloat16, KvFormat::kFloat16,
                                         KvFormat::kFp8E4m3, KvFormat::kQ8, KvFormat::kQ4,
                                         KvFormat::kHierarchical),
                         [](const auto& info) { return kv_format_name(info.param); });

}  // namespace
}  // namespace specdec
