// The training of adapters for early exit: what it computes is what the drafter `self` does.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>

#include "core/error.h"
#include "core/families/model.h"
#include "core/transformer/adapters/adapter_stack.h"
#include "core/transformer/adapters/lora_config.h"
#include "core/transformer/transformer_model.h"
#include "experiments/train/head_evaluation.h"
#include "kv/paged_kv.h"
#include "tests/support/error_message.h"
#include "tests/support/golden.h"
#include "tests/support/max_difference.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

/// An adapter in training whose matrices have left zero.
class SelfTrainingTest : public testing::Test {
 protected:
  SelfTrainingTest() {
    HeadShape shape;
    shape.type = HeadType::kSelf;
    shape.lora = {.rank = 3,
                  .alpha = 5.0,
                  .layers = 2,
                  .modules = {"q_proj", "v_proj", "up_proj", "o_proj", "down_proj"}};
    training_ =
        make_head_training(shape, {.target = load_model_tensors(target_, {.dtype = at::kFloat}),
                                   .token_weights = {},
                                   .seed = 3,
                                   .matmul_dtype = {},
                                   .target_name = "my/target"});
    training_->collect(leaves_, leaves_);
    const c10::NoGradGuard changed;
    at::manual_seed(1);
    for (at::Tensor& leaf : leaves_) {
      // bfloat16, so that storing changes nothing.
      leaf.add_(0.1 * at::randn_like(leaf)).copy_(leaf.to(at::kBFloat16));
    }
  }

  fs::path target_ = test_data("gemma3-a");
  std::unique_ptr<HeadTraining> training_;
  std::vector<at::Tensor> leaves_;
  TemporaryFolder folder_;
};

TEST_F(SelfTrainingTest, EveryDepthIsWhatTheDrafterComputes) {
  training_->save(folder_.path());
  const auto weights = load_model(target_, {.dtype = at::kFloat});
  AdapterStack adapters(weights);
  adapters.push({load_lora(folder_.path(), weights)});
  const std::vector<Token> text = {2, 5, 9, 31, 7, 7, 90, 4, 18, 3, 22, 41, 5, 9};
  const TargetBatch batch{
      .tokens = at::tensor(std::vector<int64_t>(text.begin(), text.end()), at::kLong).unsqueeze(0),
      .target = {},
      .distribution = {}};
  const auto outputs = training_->forward(batch, 3);
  ASSERT_EQ(outputs.size(), 3U);
  TransformerModel model(weights, paged_kv());
  for (const int64_t anchor : {0, 4, 8}) {
    model.truncate(0);
    model.prefill_get_last_logits(TokenSpan(text).first(static_cast<size_t>(anchor + 1)));
    for (int64_t depth = 1; depth <= 3; ++depth) {
      const TokenSpan token = TokenSpan(text).subspan(static_cast<size_t>(anchor + depth), 1);
      const Tensor drafted = model
                                 .forward({.tokens = token_tensor(token)},
                                          {.layers = {0, 1}, .draft_adapters = &adapters})
                                 .logits;
      const auto places = guessed_places(batch, depth).places;
      const int64_t row = places.eq(anchor + depth).nonzero().item<int64_t>();
      EXPECT_LE(max_difference(outputs[static_cast<size_t>(depth - 1)].logits[row], drafted[0]),
                1e-4)
          << "anchor " << anchor << ", depth " << depth;
    }
  }
}

TEST_F(SelfTrainingTest, WhatIsStoredIsTakenOver) {
  training_->save(folder_.path());
  const LoraConfig config = load_lora_config(folder_.path());
  EXPECT_EQ(config.rank, 3);
  EXPECT_EQ(config.alpha, 5.0);
  EXPECT_EQ(config.base, "my/target");
  EXPECT_THAT(config.layers, ElementsAre(0, 1));
  const TargetBatch batch{
      .tokens = at::arange(2, 12, at::kLong).unsqueeze(0), .target = {}, .distribution = {}};
  const Tensor before = training_->forward(batch, 1).front().logits;
  {
    const c10::NoGradGuard changed;
    for (at::Tensor& leaf : leaves_) {
      leaf.zero_();
    }
  }
  EXPECT_GT(max_difference(training_->forward(batch, 1).front().logits, before), 1e-3);
  training_->load(folder_.path());
  EXPECT_LE(max_difference(training_->forward(batch, 1).front().logits, before), 1e-5);
}

TEST_F(SelfTrainingTest, GradientsReachEveryMatrixAndNoWeightOfTheTarget) {
  const TargetBatch batch{
      .tokens = at::arange(2, 12, at::kLong).unsqueeze(0), .target = {}, .distribution = {}};
  training_->forward(batch, 2)[1].logits.log_softmax(-1).select(1, 3).mean().backward();
  EXPECT_EQ(leaves_.size(), 2U * 2U * 5U);
  for (const at::Tensor& leaf : leaves_) {
    ASSERT_TRUE(leaf.grad().defined());
    EXPECT_GT(leaf.grad().abs().max().item<double>(), 0.0);
  }
}

TEST(SelfTrainingConfigTest, MistakesComeTogether) {
  const TemporaryFolder folder;
  const auto message = [&](const std::string& target, const std::string& head) {
    const auto file = folder.write(
        "c.yaml", "out: x\ntarget: {weights: " + test_data(target).string() + "}\nhead: " + head +
                      "\ndata: [{kind: prose, file: " SPECDEC_SOURCE_DIR "/README.md}]\n");
    return error_message<ConfigError>([&] { (void)load_head_train_config(file, {}); });
  };
  EXPECT_EQ(message("gemma3-a", "{type: self, layers: 2}"), "no error");
  EXPECT_THAT(message("gemma3-a", "{type: self}"), HasSubstr("layers"));
  EXPECT_THAT(message("gemma3-a", "{type: self, layers: 99, target_modules: [q_prj]}"),
              testing::AllOf(HasSubstr("head.layers: is 99"), HasSubstr("did you mean 'q_proj'")));
  EXPECT_THAT(message("gemma4-e-a", "{type: self, layers: 1}"), HasSubstr("plain layers"));
}

}  // namespace
}  // namespace specdec
