#include "core/transformer/reference.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/families/gemma/config.h"
#include "core/families/model.h"
#include "core/transformer/random_weights.h"
#include "tests/support/golden.h"
#include "tests/support/parameter_name.h"

namespace specdec {
namespace {

class ReferenceGoldenTest : public testing::TestWithParam<std::string> {
 protected:
  ReferenceResult run(const char* tokens) const {
    LoadOptions options;
    options.dtype = at::kFloat;
    return reference_forward(*load_model_tensors(golden_.folder(), options),
                             golden_.tensor(tokens).unsqueeze(0));
  }

  /// Tolerance of logits; Gemma 3n's activations are larger.
  static double tolerance() { return GetParam() == "gemma3n-a" ? 5e-4 : 1e-4; }

  Golden golden_{GetParam()};
};

TEST_P(ReferenceGoldenTest, MatchesEveryTensor) {
  const ReferenceResult result = run("tokens");
  EXPECT_LE(max_difference(result.logits[0], golden_.tensor("logits")), tolerance());
  EXPECT_LE(max_difference(result.hidden[0], golden_.tensor("hidden")), tolerance());
  EXPECT_LE(max_difference(result.hidden_pre_norm[0], golden_.tensor("hidden_pre_norm")), 5e-4);
  at::Tensor layers = golden_.tensor("layers");
  layers = layers.dim() == 4 ? layers.select(1, 0) : layers;  // AltUp's active stream
  for (int64_t layer = 0; layer < layers.size(0); ++layer) {
    EXPECT_LE(max_difference(result.layers[static_cast<size_t>(layer)][0], layers[layer]), 5e-4);
  }
}

TEST_P(ReferenceGoldenTest, MatchesSecondSequence) {
  EXPECT_LE(max_difference(run("tokens2").logits[0], golden_.tensor("logits2")), tolerance());
}

INSTANTIATE_TEST_SUITE_P(All, ReferenceGoldenTest, testing::ValuesIn(all_golden_names()),
                         ParameterName());

TEST(ReferenceTest, Float64IsCloseToFloat32) {
  const Golden golden("gemma3-a");
  LoadOptions options;
  options.dtype = at::kDouble;
  const auto result = reference_forward(*load_model_tensors(golden.folder(), options),
                                        golden.tensor("tokens").unsqueeze(0));
  EXPECT_EQ(result.logits.scalar_type(), at::kDouble);
  EXPECT_LE(max_difference(result.logits[0], golden.tensor("logits")), 1e-4);
}

TEST(ReferenceTest, BidirectionalSeesLaterTokens) {
  ModelDescription model = load_gemma_config(test_data("gemma3-a"));
  model.config.bidirectional = true;
  for (LayerPlan& layer : model.plan) {
    layer.window = layer.window > 0 ? 3 : 0;
  }
  const auto weights = random_model(model);
  const auto tokens = at::arange(8, at::kLong).unsqueeze(0);
  auto changed = tokens.clone();
  changed[0][7] = 100;
  const auto a = reference_forward(*weights, tokens).logits[0][0];
  const auto b = reference_forward(*weights, changed).logits[0][0];
  EXPECT_GT(max_difference(a, b), 1e-4);
}

TEST(ReferenceTest, GradientsReachEveryWeight) {
  const auto weights = random_model(load_gemma_config(test_data("gemma3-a")));
  std::vector<at::Tensor> leaves = {weights->embedding, weights->final_norm};
  for (const LayerTensors& layer : weights->layers) {
    leaves.insert(leaves.end(), {layer.qkv, layer.output, layer.gate_up, layer.down,
                                 layer.attention_norm, layer.attention_post_norm, layer.mlp_norm,
                                 layer.mlp_post_norm, layer.q_norm, layer.k_norm});
  }
  for (at::Tensor& leaf : leaves) {
    leaf.set_requires_grad(true);
  }
  const auto tokens = at::arange(3, 14, at::kLong).unsqueeze(0);
  reference_forward(*weights, tokens).logits.pow(2).mean().backward();
  for (const at::Tensor& leaf : leaves) {
    ASSERT_TRUE(leaf.grad().defined());
    EXPECT_GT(leaf.grad().abs().max().item<float>(), 0.0F);
  }
}

}  // namespace
}  // namespace specdec
