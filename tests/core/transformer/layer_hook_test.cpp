#include "core/transformer/layer_hook.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <utility>

#include "core/error.h"
#include "core/transformer/transformer_model.h"
#include "kv/paged_kv.h"
#include "tests/support/tiny_gemma.h"
#include "tests/support/tiny_gemma4.h"

namespace specdec {
namespace {

/// Adds a vector after a layer.
class Steering final : public LayerHook {
 public:
  Steering(int64_t layer, double size) : layer_(layer), size_(size) {}
  std::string fingerprint() const override { return fmt::format("add {} after {}", size_, layer_); }
  void run(LayerPass& pass) override {
    pass.evaluate();
    if (pass.layer() == layer_) {
      const Tensor ramp = at::arange(pass.residual().size(1), at::kDouble);
      pass.set_residual(pass.residual() + (size_ * ramp).to(pass.residual().scalar_type()));
    }
  }

 private:
  int64_t layer_;
  double size_;
};

/// Keeps what goes into every layer and comes out of it.
class Recorder final : public LayerHook {
 public:
  std::string fingerprint() const override { return ""; }
  void run(LayerPass& pass) override {
    inputs.push_back(pass.residual().clone());
    pass.evaluate();
    outputs.push_back(pass.residual().clone());
    positions = pass.positions().clone();
    parents = pass.batch().parents;
  }

  std::vector<Tensor> inputs, outputs;
  Tensor positions;
  std::vector<int64_t> parents;
};

/// Stands in a layer's place, or fails there.
class Replacement final : public LayerHook {
 public:
  explicit Replacement(int64_t layer) : layer_(layer) {}
  std::string fingerprint() const override { return "identity"; }
  void run(LayerPass& pass) override {
    if (fails && pass.layer() == layer_) {
      throw Error("the stage failed");
    }
    if (resizes) {
      pass.set_residual(at::zeros({1, 3}));
    }
    if (pass.layer() != layer_) {
      pass.evaluate();
    }
  }

  bool fails = false, resizes = false;

 private:
  int64_t layer_;
};

const std::vector<Token> kPrompt = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3};

class LayerHookTest : public testing::Test {
 protected:
  TransformerModel model(LayerHooks hooks = {}) const {
    return TransformerModel(weights_, paged_kv(), {.hooks = std::move(hooks)});
  }
  static Draft tree() {
    Draft draft = Draft::root(7);
    draft.add(8, 0);
    draft.add(2, 0);
    draft.add(4, 1);
    return draft;
  }

  std::shared_ptr<TransformerWeights> weights_ = tiny_gemma(12);
};

TEST_F(LayerHookTest, ARecorderSeesChainsAndTreesAndChangesNothing) {
  const auto recorder = std::make_shared<Recorder>();
  TransformerModel hooked = model({recorder});
  TransformerModel plain = model();
  const ForwardOptions options{.capture_layers = {0, 1, 2}};
  const ForwardResult wanted = plain.prefill(kPrompt, options);
  EXPECT_TRUE(at::equal(hooked.prefill(kPrompt, options).logits, wanted.logits));
  ASSERT_EQ(recorder->outputs.size(), 3U);
  for (size_t layer = 0; layer < 3; ++layer) {
    EXPECT_TRUE(at::equal(recorder->outputs[layer], wanted.captured[layer])) << layer;
  }
  EXPECT_TRUE(at::equal(recorder->inputs[1], recorder->outputs[0]));
  EXPECT_TRUE(at::equal(hooked.verify_get_logits(tree()), plain.verify_get_logits(tree())));
  EXPECT_TRUE(at::equal(recorder->positions, at::tensor({10, 11, 11, 12}, at::kInt)));
  EXPECT_THAT(recorder->parents, testing::ElementsAre(-1, 0, 0, 1));
}

TEST_F(LayerHookTest, ASteeringVectorIsAddedToEveryNodeOfTreesToo) {
  TransformerModel steered = model({std::make_shared<Steering>(1, 0.25)});
  const ForwardResult plain = model().prefill(kPrompt, {.capture_layers = {1}});
  const ForwardResult result = steered.prefill(kPrompt, {.capture_layers = {1}});
  const Tensor added = result.captured[0] - plain.captured[0];
  EXPECT_LT((added - 0.25 * at::arange(16, at::kDouble)).abs().max().item<double>(), 1e-12);
  EXPECT_FALSE(at::allclose(result.logits, plain.logits));
  const Tensor branch = steered.verify_get_logits(tree());
  steered.truncate(std::ssize(kPrompt));
  const std::vector<Token> path = {7, 8, 4};
  EXPECT_TRUE(at::allclose(steered.extend_get_last_logits(path), branch[3], 1e-9, 1e-9));
}

TEST_F(LayerHookTest, HooksNestAndRunInOrder) {
  const auto outer = std::make_shared<Recorder>();
  const auto inner = std::make_shared<Recorder>();
  TransformerModel hooked = model({outer, std::make_shared<Steering>(2, 1.0), inner});
  hooked.prefill_get_last_logits(kPrompt);
  EXPECT_TRUE(at::equal(outer->outputs[1], inner->outputs[1]));
  EXPECT_FALSE(at::equal(outer->outputs[2], inner->outputs[2])) << "the vector lies between them";
}

TEST_F(LayerHookTest, AReplacedLayerIsLeftOut) {
  TransformerModel replaced = model({std::make_shared<Replacement>(1)});
  TransformerModel plain = model();
  const ForwardOptions two{.layers = {0, 2}};
  const TokenBatch batch{.tokens = token_tensor(kPrompt)};
  EXPECT_TRUE(at::equal(replaced.forward(batch).logits, plain.forward(batch, two).logits));
  std::vector<int64_t> path(kPrompt.size());
  std::iota(path.begin(), path.end(), 0);
  replaced.commit(path);
  const TokenBatch next{.tokens = token_tensor(std::vector<Token>{7, 8})};
  EXPECT_TRUE(at::equal(replaced.forward(next).logits, plain.forward(next, two).logits));
}

TEST_F(LayerHookTest, AHookThatThrowsLeavesTheModelAsItWas) {
  const auto stage = std::make_shared<Replacement>(1);
  TransformerModel hooked = model({stage});
  TransformerModel other = model({std::make_shared<Replacement>(1)});
  hooked.prefill_get_last_logits(kPrompt);
  other.prefill_get_last_logits(kPrompt);
  stage->fails = true;
  EXPECT_THROW((void)hooked.verify_get_logits(tree()), Error);
  stage->fails = false;
  stage->resizes = true;
  EXPECT_THROW((void)hooked.verify_get_logits(tree()), InternalError);
  stage->resizes = false;
  EXPECT_EQ(hooked.length(), std::ssize(kPrompt));
  EXPECT_EQ(hooked.pending(), 0);
  EXPECT_TRUE(at::equal(hooked.verify_get_logits(tree()), other.verify_get_logits(tree())));
}

TEST_F(LayerHookTest, KeysOfCachesContainWhatChangesNumbers) {
  const auto key = [&](LayerHooks hooks) { return model(std::move(hooks)).snapshots()->kv_key(); };
  const std::string plain = key({});
  EXPECT_EQ(key({std::make_shared<Recorder>()}), plain);
  const std::string steered = key({std::make_shared<Steering>(1, 0.5)});
  EXPECT_NE(steered, plain);
  EXPECT_NE(key({std::make_shared<Steering>(2, 0.5)}), steered);
  EXPECT_EQ(key({std::make_shared<Recorder>(), std::make_shared<Steering>(1, 0.5)}), steered);
}

/// Families whose stream is more than a sum, and whose layers share keys.
class FamilyHookTest : public testing::TestWithParam<std::string> {
 protected:
  std::shared_ptr<TransformerWeights> weights_ = tiny_gemma4(GetParam(), 12);
};

TEST_P(FamilyHookTest, HooksReachTheStreamThatLayersRead) {
  TransformerModel plain(weights_, paged_kv());
  TransformerModel same(weights_, paged_kv(), {.hooks = {std::make_shared<Steering>(0, 0.0)}});
  TransformerModel steered(weights_, paged_kv(), {.hooks = {std::make_shared<Steering>(0, 0.5)}});
  const Tensor wanted = plain.prefill_get_last_logits(kPrompt);
  EXPECT_TRUE(at::equal(same.prefill_get_last_logits(kPrompt), wanted));
  EXPECT_FALSE(at::allclose(steered.prefill_get_last_logits(kPrompt), wanted));
}

TEST_P(FamilyHookTest, LayersWhoseKeysOthersReadCannotBeReplaced) {
  TransformerModel unread(weights_, paged_kv(), {.hooks = {std::make_shared<Replacement>(3)}});
  EXPECT_NO_THROW((void)unread.prefill_get_last_logits(kPrompt));
  for (int64_t layer = 0; layer < 4; ++layer) {
    const auto reads = [&](const LayerPlan& plan) { return plan.kv_source == layer; };
    if (std::any_of(weights_->plan.begin(), weights_->plan.end(), reads)) {
      TransformerModel read(weights_, paged_kv(),
                            {.hooks = {std::make_shared<Replacement>(layer)}});
      EXPECT_THROW((void)read.prefill_get_last_logits(kPrompt), Error) << layer;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, FamilyHookTest, testing::Values("e", "3n"),
                         [](const auto& info) { return "gemma_" + info.param; });

}  // namespace
}  // namespace specdec
