#include "core/transformer/adapters/merge.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "core/error.h"
#include "core/families/model.h"
#include "core/transformer/transformer_model.h"
#include "kv/paged_kv.h"
#include "tests/support/error_message.h"
#include "tests/support/golden.h"
#include "tests/support/lora_folder.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using WeightsPointer = std::shared_ptr<const TransformerWeights>;

const void* memory_of(const Linear& matrix) {
  return matrix.parts().front().packed.const_data_ptr();
}

class MergeTest : public testing::Test {
 protected:
  Tensor logits(const WeightsPointer& weights) const {
    const auto tokens = golden_.tokens("tokens2");
    TransformerModel model(weights, paged_kv());
    return model.forward({.tokens = at::tensor(tokens, at::kInt)}).logits.clone();
  }
  static AdapterStack stack_of(const WeightsPointer& base, double scale = 1.0) {
    AdapterStack stack(base);
    stack.push({load_lora(test_data("gemma3-lora-a"), base), scale});
    return stack;
  }

  Golden golden_{"gemma3-lora-a"};
};

TEST_F(MergeTest, MergedIsTheGoldenModel) {
  const auto base = load_model(test_data("gemma3-a"));
  EXPECT_LE(max_difference(logits(merge_adapters(stack_of(base))), golden_.tensor("logits2")),
            1e-4);
}

TEST_F(MergeTest, MergedIsAppliedInFloat64) {
  const auto base = load_model(test_data("gemma3-a"), {.dtype = at::kDouble});
  AdapterStack stack = stack_of(base, 0.75);
  stack.push({stack.adapters().front().adapter, -0.5});
  TransformerModel applied(base, paged_kv());
  for (const ScaledAdapter& adapter : stack.adapters()) {
    applied.push_adapter(adapter);
  }
  const auto tokens = golden_.tokens("tokens2");
  const Tensor wanted = applied.forward({.tokens = at::tensor(tokens, at::kInt)}).logits;
  EXPECT_LE(max_difference(logits(merge_adapters(stack)), wanted), 1e-10);
}

TEST_F(MergeTest, TheBaseKeepsItsBits) {
  const auto base = load_model(test_data("gemma3-a"));
  const Tensor before = logits(base);
  const auto merged = merge_adapters(stack_of(base));
  EXPECT_GT(max_difference(logits(merged), before), 0.1);
  EXPECT_TRUE(at::equal(logits(base), before));
}

TEST_F(MergeTest, OnlyChangedMatricesAreCopied) {
  const auto base = load_model(test_data("gemma3-a"));
  const auto merged = merge_adapters(stack_of(base));
  for (size_t i = 0; i < base->layers.size(); ++i) {
    const LayerWeights& from = base->layers[i];
    const LayerWeights& to = merged->layers[i];
    EXPECT_NE(memory_of(to.qkv), memory_of(from.qkv));
    EXPECT_NE(memory_of(to.down), memory_of(from.down));
    EXPECT_EQ(memory_of(to.output), memory_of(from.output));
    EXPECT_EQ(memory_of(to.gate_up), memory_of(from.gate_up));
  }
  EXPECT_EQ(memory_of(merged->head), memory_of(base->head));
}

TEST_F(MergeTest, FingerprintsAreTheStacks) {
  const auto base = load_model(test_data("gemma3-a"));
  const AdapterStack stack = stack_of(base, 0.5);
  EXPECT_EQ(merge_adapters(stack)->fingerprint, stack.fingerprint());
  EXPECT_EQ(merge_adapters(AdapterStack(base))->fingerprint, base->fingerprint);
}

TEST_F(MergeTest, ATiedHeadIsMergedWithoutTheEmbedding) {
  const auto base = load_model(test_data("gemma3-a"), {.dtype = at::kDouble});
  ASSERT_TRUE(base->config.tie_word_embeddings);
  const TemporaryFolder folder;
  const Tensor a = at::ones({1, base->head.in()}), b = at::ones({base->head.out(), 1});
  write_lora(folder.path(), R"("r": 1, "lora_alpha": 1, "target_modules": ["lm_head"])",
             {{"lm_head", a, b}});
  AdapterStack stack(base);
  stack.push({load_lora(folder.path(), base)});
  const auto merged = merge_adapters(stack);
  EXPECT_FALSE(merged->config.tie_word_embeddings);
  EXPECT_TRUE(at::equal(merged->head.unpack(), base->head.unpack() + 1.0));
  EXPECT_TRUE(at::equal(unpack(*merged).embedding, unpack(*base).embedding));
}

TEST_F(MergeTest, BlocksAreRefused) {
  const auto base = load_model(test_data("gemma3-a"), {.dtype = at::kChar});
  const AdapterStack stack = stack_of(base);
  EXPECT_THAT(error_message<Error>([&] { (void)merge_adapters(stack); }),
              AllOf(HasSubstr("gemma3-lora-a cannot be merged"), HasSubstr("int8"),
                    HasSubstr("dtype bfloat16 or float32")));
}

}  // namespace
}  // namespace specdec
