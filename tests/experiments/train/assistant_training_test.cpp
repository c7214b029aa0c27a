// Gemma 4's assistant in training: its forward is the drafter's, and it learns.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/families/gemma/assistant.h"
#include "core/families/model.h"
#include "core/formats/strict_json.h"
#include "core/transformer/transformer_model.h"
#include "experiments/train/head_evaluation.h"
#include "experiments/train/head_trainer.h"
#include "experiments/train/token_clusters.h"
#include "experiments/train/trainer.h"
#include "kv/paged_kv.h"
#include "tests/support/error_message.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

/// Both heads, on a target of Gemma 4 E whose window the text exceeds.
class AssistantStepsTest : public testing::TestWithParam<int64_t> {
 protected:
  AssistantStepsTest() {
    HeadShape shape;
    shape.type = HeadType::kAssistant;
    shape.hidden_size = 24;
    shape.intermediate_size = 40;
    shape.num_layers = 3;
    shape.heads = 2;
    shape.clusters = GetParam();
    shape.chosen_clusters = GetParam() / 4;
    const int64_t vocab = target_->config.vocab_size;
    training_ = make_head_training(shape, {.target = target_,
                                           .token_weights = at::arange(vocab, at::kLong),
                                           .seed = 3,
                                           .matmul_dtype = {}});
    training_->save(folder_.path());
    training_->load(folder_.path());  // as rounded
    tokens_ = (at::arange(41, at::kLong) * 37).remainder(vocab).view({1, -1});
    outputs_ = training_->forward(target_batch(*target_, tokens_, {}), kDepth);
  }

  /// Drafts with the text's tokens from an anchor, as the drafter's model does.
  std::vector<Tensor> drafted(int64_t anchor, CentroidFill fill) {
    TransformerModel model(weights_, paged_kv());
    const auto token = [&](int64_t i) { return static_cast<Token>(tokens_[0][i].item<int64_t>()); };
    std::vector<Token> context;
    context.reserve(static_cast<size_t>(anchor) + 1);
    for (int64_t i = 0; i <= anchor; ++i) {
      context.push_back(token(i));
    }
    Tensor hidden =
        model.prefill(context, {.logits = Logits::kLast, .hidden = Hidden::kScored}).final_hidden;
    hidden = hidden.narrow(0, hidden.size(0) - 1, 1).clone();
    AssistantModel assistant(load_assistant(folder_.path(), *weights_).head, {.fill = fill});
    const Internals& internals = *model.internals();
    std::vector<Tensor> logits;
    for (int64_t d = 1; d <= kDepth; ++d) {
      const Tensor embedding = internals.embed(at::tensor({token(anchor + d)}, at::kInt));
      const AssistantModel::Step step = assistant.step(embedding, hidden, internals, 0);
      logits.push_back(step.logits[0].clone());
      hidden = step.hidden.clone();
    }
    return logits;
  }

  static constexpr int64_t kDepth = 4;
  TemporaryFolder folder_;
  std::shared_ptr<const TransformerTensors> target_ =
      load_model_tensors(test_data("gemma4-e-a"), {.dtype = at::kFloat});
  std::shared_ptr<const TransformerWeights> weights_ =
      load_model(test_data("gemma4-e-a"), {.dtype = at::kFloat});
  std::unique_ptr<HeadTraining> training_;
  at::Tensor tokens_;
  std::vector<DepthOutput> outputs_;
};

TEST_P(AssistantStepsTest, EachStepIsTheDrafters) {
  const at::InferenceMode inference;
  for (const int64_t anchor : {0, 3, 5, 6, 7, 20, 35}) {
    const std::vector<Tensor> wanted = drafted(anchor, CentroidFill::kNothing);
    for (size_t d = 0; d < wanted.size(); ++d) {
      const Tensor scored = wanted[d].isfinite();
      const Tensor own = outputs_[d].logits[anchor];
      EXPECT_LE(max_difference(own.masked_select(scored), wanted[d].masked_select(scored)), 2e-4)
          << "anchor " << anchor << ", depth " << d + 1;
      if (GetParam() == 0) {
        EXPECT_TRUE(scored.all().item<bool>());
        continue;
      }
      const TokenGroups groups = training_->groups();
      const Tensor chosen = std::get<1>(outputs_[d].groups[anchor].topk(groups.chosen));
      const Tensor tokens = groups.tokens.index_select(0, chosen).flatten();
      EXPECT_TRUE(scored.index_select(0, tokens).all().item<bool>());
      EXPECT_EQ(scored.sum().item<int64_t>(), tokens.numel());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(DenseAndOrdered, AssistantStepsTest, testing::Values(0, 16));

/// A tiny Gemma 4 that was trained a little.
class AssistantTrainerTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    at::set_num_threads(1);
    shared = new TemporaryFolder();
    std::ofstream text(shared->path() / "text.txt");
    for (int i = 0; i < 400; ++i) {
      text << "The king said to the " << (i % 3 == 0 ? "duke" : "queen") << ": what news, my lord "
           << i << "?\nShe answered that the " << (i % 7) << " ships had come home.\n";
    }
    text.close();
    for (const char* family : {"gemma4", "gemma3"}) {
      const auto file = shared->write(
          "target.yaml", "model: {family: " + std::string(family) +
                             ", hidden_size: 16, intermediate_size: 32, layers: 3, heads: 2, "
                             "head_dim: 8, sliding_window: 12, sliding_window_pattern: 3}\n"
                             "tokenizer: {vocab_size: 400}\nout: " +
                             (shared->path() / family).string() + "\n" + rest() +
                             (family == std::string("gemma4") ? "steps: 150\n" : "steps: 2\n"));
      train_model(load_train_config(file, {}), {});
    }
  }
  static void TearDownTestSuite() { delete shared; }

  static std::string rest() {
    return "data: [{kind: prose, file: " + (shared->path() / "text.txt").string() +
           "}]\nsequence_length: 32\nbatch_size: 4\nwarm_up_steps: 5\nlearning_rate: 0.02\n"
           "evaluate_every: 1000\n";
  }

  HeadTrainConfig config(const std::string& head, const std::vector<std::string>& overrides = {},
                         const std::string& target = "gemma4") const {
    const auto file = folder_.write(
        "head.yaml", "head: " + head + "\ntarget: {weights: " + (shared->path() / target).string() +
                         "}\nout: " + (folder_.path() / "head").string() + "\n" + rest() +
                         "steps: 100\nevaluate_depth: 4\n");
    return load_head_train_config(file, overrides);
  }

  static constexpr const char* kOrdered =
      "{type: gemma4_assistant, hidden_size: 12, intermediate_size: 16, num_layers: 2, clusters: "
      "40, chosen_clusters: 10}";
  static TemporaryFolder* shared;
  TemporaryFolder folder_;
};
TemporaryFolder* AssistantTrainerTest::shared = nullptr;

TEST_F(AssistantTrainerTest, LearnsAtEachDepthAndFindsItsClusters) {
  train_head(config(kOrdered, {"evaluate_every=1"}), {});
  std::ifstream stream(folder_.path() / "head/training.jsonl");
  std::string line;
  std::getline(stream, line);
  const json first = json::parse(line);
  const json last = json::parse(read_file(folder_.path() / "head/training.json"));
  const json& prose = last["held_out"]["prose"];
  for (size_t depth = 0; depth < 4; ++depth) {
    EXPECT_GT(prose["overlap"][depth].get<double>(),
              first["held_out"]["prose"]["overlap"][depth].get<double>() + 0.1)
        << depth;
    EXPECT_GT(prose["recall"][depth].get<double>(), 0.8) << depth;
  }
  EXPECT_LE(prose["coverage"].get<double>(), 1.0);
  const auto target = load_model(shared->path() / "gemma4", {.dtype = at::kFloat});
  const LoadedAssistant loaded = load_assistant(folder_.path() / "head", *target);
  EXPECT_EQ(loaded.note, "");
  EXPECT_EQ(loaded.head->ordered.ordering.size(0), 40);
}

TEST_F(AssistantTrainerTest, MistakesNameTheirKeys) {
  EXPECT_THAT(error_message<ConfigError>([&] { config(kOrdered, {}, "gemma3"); }),
              AllOf(HasSubstr("head.type"), HasSubstr("'gemma3_text'")));
  EXPECT_THAT(error_message<ConfigError>([&] { config(kOrdered, {"head.clusters=37"}); }),
              AllOf(HasSubstr("head.clusters"), HasSubstr("400")));
  EXPECT_THAT(
      error_message<ConfigError>([&] { config("{type: gemma4_assistant}", {"loss.features=1"}); }),
      AllOf(HasSubstr("'hidden_size' is missing"), HasSubstr("'intermediate_size' is missing"),
            HasSubstr("loss.features")));
  EXPECT_THAT(error_message<ConfigError>([&] { config(kOrdered, {"head.chosen_clusters=41"}); }),
              HasSubstr("head.chosen_clusters"));
  EXPECT_THAT(error_message<ConfigError>([&] { config(kOrdered, {"answers={folder: nowhere}"}); }),
              HasSubstr("keys and values"));
}

TEST(TokenClustersTest, HaveEqualSizesAndNearRows) {
  const auto rows =
      at::tensor({1.0, 0.0, 0.9, 0.1, 0.0, 1.0, 0.1, 0.9, -1.0, 0.1, -2.0, 0.0}).view({6, 2});
  const auto weights = at::tensor({6, 1, 5, 1, 4, 1}, at::kLong);
  const auto clusters = equal_clusters(rows, weights, 3);
  EXPECT_TRUE(at::equal(clusters, at::tensor({0, 1, 2, 3, 4, 5}, at::kLong).view({3, 2})));
  const auto generated = at::arange(200, at::kFloat).mul(0.7).sin().view({40, 5});
  const auto all = equal_clusters(generated, at::arange(40, at::kLong), 8);
  EXPECT_TRUE(at::equal(std::get<0>(all.flatten().sort()), at::arange(40, at::kLong)));
}

}  // namespace
}  // namespace specdec
