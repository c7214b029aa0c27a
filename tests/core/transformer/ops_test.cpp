// The forward is a list of ops made from the plan: any device that has them runs it.
#include "core/kernels/ops.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/families/gemma/config.h"
#include "core/families/model.h"
#include "core/transformer/heads/feature_model.h"
#include "core/transformer/random_weights.h"
#include "core/transformer/transformer_model.h"
#include "kv/paged_kv.h"
#include "tests/support/recording_ops.h"
#include "tests/support/tiny_gemma.h"

namespace specdec {
namespace {

std::shared_ptr<const TransformerWeights> tiny_family(const std::string& family) {
  const auto text = fmt::format(
      R"({{"model_type": "{}", "vocab_size": 40, "hidden_size": 12, "intermediate_size": 20,
           "num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 1,
           "head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 6,
           "layer_types": ["sliding_attention", "full_attention"], "max_position_embeddings": 64,
           "attn_logit_softcapping": null}})",
      family);
  return pack(*random_model(parse_gemma_config(text, family), {.seed = 3}));
}

using Calls = std::vector<std::string>;

/// What a layer's plan and weights say.
void expect_layer(const LayerPlan& plan, const LayerWeights& w, int64_t n, Calls& calls) {
  const auto call = [&](const char* name, const auto& input, const auto& out) {
    calls.push_back(
        fmt::format("{} [{}] -> [{}]", name, fmt::join(input, ", "), fmt::join(out, ", ")));
  };
  using Sizes = std::vector<int64_t>;
  const int64_t hidden = w.down.out();
  const Sizes stream = {n, hidden};
  const Sizes heads = {n, plan.heads, plan.head_dim};
  if (w.attention_norm.defined()) {
    call("rms_norm", stream, stream);
  }
  if (plan.joined_inputs) {
    call("concat", stream, Sizes{n, 2 * hidden});
  }
  const Sizes qkv = {n, (plan.heads + 2 * plan.kv_heads) * plan.head_dim};
  call("linear", Sizes{n, plan.joined_inputs ? 2 * hidden : hidden}, qkv);
  call("qkv_to_cache", qkv, heads);
  call("paged_attention", heads, heads);
  call("linear", Sizes{n, plan.heads * plan.head_dim}, stream);
  call(plan.post_norms ? "add_rms_norm" : "add", stream, stream);
  call("rms_norm", stream, stream);
  call("linear", stream, Sizes{n, 2 * plan.intermediate_size});
  call("gated_activation", Sizes{n, 2 * plan.intermediate_size}, Sizes{n, plan.intermediate_size});
  call("linear", Sizes{n, plan.intermediate_size}, stream);
  call(plan.post_norms ? "add_rms_norm" : "add", stream, stream);
}

class OpsTest : public testing::TestWithParam<const char*> {};

TEST_P(OpsTest, AForwardIsTheListThatThePlanSays) {
  const auto weights = tiny_family(GetParam());
  const auto ops = std::make_shared<RecordingOps>();
  TransformerModel model(weights, paged_kv(), {.ops = ops});
  model.forward({.tokens = at::tensor({1, 2, 3}, at::kInt)});
  Calls expected = {"embed_rows [3] -> [3, 12]"};
  for (size_t layer = 0; layer < weights->plan.size(); ++layer) {
    expect_layer(weights->plan[layer], weights->layers[layer], 3, expected);
  }
  expected.push_back("rms_norm [3, 12] -> [3, 12]");
  expected.push_back("linear [3, 12] -> [3, 40]");
  if (weights->config.final_soft_cap > 0.0) {
    expected.push_back("soft_cap [3, 40] -> [3, 40]");
  }
  expected.push_back("forbid [3, 40] -> [3, 40]");
  EXPECT_EQ(ops->take_calls(), expected);
}

TEST_P(OpsTest, AnotherDevicesOpsGiveTheSameBits) {
  const auto weights = tiny_family(GetParam());
  TransformerModel plain(weights, paged_kv());
  TransformerModel recorded(weights, paged_kv(), {.ops = std::make_shared<RecordingOps>()});
  const std::vector<Token> prompt = {5, 6, 7, 8, 9, 1, 2, 3};
  EXPECT_TRUE(
      at::equal(recorded.prefill_get_last_logits(prompt), plain.prefill_get_last_logits(prompt)));
}

INSTANTIATE_TEST_SUITE_P(Families, OpsTest, testing::Values("gemma", "gemma2", "gemma3_text"),
                         [](const auto& test) { return std::string(test.param); });

TEST(OpsHookTest, SeesTheResidualStreamBetweenOps) {
  const auto weights = tiny_gemma(40, at::kFloat);
  std::vector<Tensor> residuals;
  const auto after = [&](const std::string& name, const Tensor& out) {
    if (name == "add_rms_norm") {
      residuals.push_back(out.clone());
    }
  };
  TransformerModel model(weights, paged_kv(),
                         {.ops = std::make_shared<RecordingOps>(cpu_ops(), after)});
  const ForwardResult result =
      model.forward({.tokens = at::tensor({1, 2, 3}, at::kInt)}, {.capture_layers = {0, 1, 2}});
  ASSERT_EQ(residuals.size(), 6U);  // after attention and MLP
  for (size_t layer = 0; layer < 3; ++layer) {
    EXPECT_TRUE(at::equal(result.captured[layer], residuals[2 * layer + 1])) << layer;
  }
}

TEST(OpsHookTest, MayChangeWhatAnOpWrote) {
  const auto weights = tiny_gemma(40, at::kFloat);
  const auto silence = [&](const std::string& name, const Tensor& out) {
    if (name == "paged_attention") {
      Tensor(out).zero_();
    }
  };
  TransformerModel plain(weights, paged_kv());
  TransformerModel deaf(weights, paged_kv(),
                        {.ops = std::make_shared<RecordingOps>(cpu_ops(), silence)});
  const auto last = [](TransformerModel& model, Token first) {
    return model.prefill_get_last_logits(std::vector<Token>{first, 7});
  };
  EXPECT_FALSE(at::equal(last(plain, 1), last(plain, 2)));
  EXPECT_TRUE(at::equal(last(deaf, 1), last(deaf, 2)));
}

TEST(OpsHeadsTest, AHeadRunsOnTheOpsItIsGiven) {
  const auto target = tiny_gemma(40, at::kFloat);
  const auto ops = std::make_shared<RecordingOps>();
  const auto model =
      make_mtp_model(random_mtp_head(*target, 1), 0, target, paged_kv(), {.ops = ops});
  model->forward({.tokens = at::tensor({1, 2}, at::kInt)});
  const Calls calls = ops->take_calls();
  const Calls first(calls.begin(), calls.begin() + 6);
  EXPECT_EQ(first, (Calls{"embed_rows [2] -> [2, 16]", "rms_norm [2, 16] -> [2, 16]",
                          "rms_norm [2, 16] -> [2, 16]", "concat [2, 16] -> [2, 32]",
                          "linear [2, 32] -> [2, 16]", "copy [2, 16] -> [2, 16]"}));
  EXPECT_THAT(calls, testing::IsSupersetOf({"linear [2, 16] -> [2, 40]"}));
}

TEST(DeviceOpsTest, OtherDevicesAreAnError) {
  EXPECT_NE(device_ops(at::kCPU), nullptr);
  EXPECT_THROW(device_ops(at::kMeta), Error);
}

}  // namespace
}  // namespace specdec
