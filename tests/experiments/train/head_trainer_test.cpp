#include "experiments/train/head_trainer.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <ostream>

#include "core/error.h"
#include "core/families/model.h"
#include "core/formats/strict_json.h"
#include "core/tokenizers/tokenizer.h"
#include "core/transformer/adapters/lora_adapter.h"
#include "core/transformer/heads/eagle_head.h"
#include "core/transformer/heads/medusa_head.h"
#include "core/transformer/heads/mtp_head.h"
#include "experiments/train/head_evaluation.h"
#include "experiments/train/head_loss.h"
#include "tests/support/error_message.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

/// One trained target for all tests: learning a head needs something to foresee.
class HeadTrainerTest : public testing::Test {
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
    shared->write("target.yaml",
                  "model: {hidden_size: 16, intermediate_size: 32, layers: 3, heads: 2, "
                  "head_dim: 8, sliding_window_pattern: 3}\ntokenizer: {vocab_size: 400}\nout: " +
                      target().string() + "\n" + data() +
                      "sequence_length: 32\nbatch_size: 4\nsteps: 150\nwarm_up_steps: 5\n"
                      "learning_rate: 0.02\nevaluate_every: 1000\n");
    train_model(load_train_config(shared->path() / "target.yaml", {}), {});
  }
  static void TearDownTestSuite() { delete shared; }

  static fs::path target() { return shared->path() / "target"; }
  static std::string data() {
    return "data: [{kind: prose, file: " + (shared->path() / "text.txt").string() + "}]\n";
  }

  /// A config that writes to `out` of this test's folder.
  HeadTrainConfig config(const std::string& head, const std::vector<std::string>& overrides = {},
                         const std::string& out = "head") const {
    const auto file = folder_.write(
        "head.yaml", "head: " + head + "\ntarget: {weights: " + target().string() +
                         "}\nout: " + (folder_.path() / out).string() + "\n" + data() +
                         "sequence_length: 32\nbatch_size: 4\nsteps: 40\nwarm_up_steps: 3\n"
                         "learning_rate: 0.01\nevaluate_every: 10\ncheckpoint_every: 10\n"
                         "evaluate_depth: 2\n");
    return load_head_train_config(file, overrides);
  }

  json summary(const std::string& out = "head") const {
    return json::parse(read_file(folder_.path() / out / "training.json"));
  }
  std::vector<json> curve() const {
    std::ifstream stream(folder_.path() / "head" / "training.jsonl");
    std::vector<json> lines;
    for (std::string line; std::getline(stream, line);) {
      lines.push_back(json::parse(line));
    }
    return lines;
  }
  static std::shared_ptr<const TransformerWeights> target_weights() {
    return load_model(target(), {.dtype = at::kFloat});
  }
  static std::string weights_of(const fs::path& folder) {
    for (const char* file : {"mtp.safetensors", "adapter_model.safetensors"}) {
      if (fs::exists(folder / file)) {
        return read_file(folder / file);
      }
    }
    return read_file(folder / "model.safetensors");
  }

  static TemporaryFolder* shared;
  TemporaryFolder folder_;
};
TemporaryFolder* HeadTrainerTest::shared = nullptr;

/// Each type, and how to load what was trained.
struct HeadCase {
  std::string name;
  std::string head;
  std::function<void(const fs::path& folder, const TransformerWeights& target)> load;
};

void PrintTo(const HeadCase& one, std::ostream* out) { *out << one.name; }

std::vector<HeadCase> heads() {
  return {
      {"medusa", "{type: medusa, num_heads: 2}",
       [](const fs::path& folder, const TransformerWeights& target) {
         load_medusa_head(folder, target);
       }},
      {"medusa_shared", "{type: medusa, num_heads: 2, num_layers: 2, share_lm_head: true}",
       [](const fs::path& folder, const TransformerWeights& target) {
         load_medusa_head(folder, target);
       }},
      {"eagle", "{type: eagle}",
       [](const fs::path& folder, const TransformerWeights& target) {
         load_eagle_head(folder, EagleVersion::kEagle, target);
       }},
      {"eagle_llama", "{type: eagle, llama_layer: true, intermediate_size: 24}",
       [](const fs::path& folder, const TransformerWeights& target) {
         load_eagle_head(folder, EagleVersion::kEagle, target);
       }},
      {"eagle3", "{type: eagle3, layers: [0, 2], draft_vocab_size: 300}",
       [](const fs::path& folder, const TransformerWeights& target) {
         load_eagle_head(folder, EagleVersion::kEagle3, target);
       }},
      {"mtp", "{type: mtp}",
       [](const fs::path& folder, const TransformerWeights& target) {
         load_mtp_head(folder, target);
       }},
      {"mtp_two", "{type: mtp, num_layers: 2}",
       [](const fs::path& folder, const TransformerWeights& target) {
         load_mtp_head(folder, target);
       }},
      {"self", "{type: self, layers: 2, rank: 4}",
       [](const fs::path& folder, const TransformerWeights& target) {
         (void)load_lora(folder, std::make_shared<TransformerWeights>(target));
       }},
  };
}

class EveryHeadTest : public HeadTrainerTest, public testing::WithParamInterface<HeadCase> {};

TEST_P(EveryHeadTest, LearnsToForeseeItsTarget) {
  const auto before = read_file(target() / "model.safetensors");
  train_head(config(GetParam().head, {"steps=120", "evaluate_every=1"}), {});
  const std::vector<json> lines = curve();
  ASSERT_EQ(lines.size(), 120U);
  EXPECT_LT(lines.back()["loss"].get<double>(), 0.8 * lines.front()["loss"].get<double>());
  const json first = lines.front()["held_out"]["prose"];
  const json last = summary()["held_out"]["prose"];
  for (size_t depth = 0; depth < 2; ++depth) {
    EXPECT_GT(last["overlap"][depth].get<double>(), first["overlap"][depth].get<double>() + 0.1)
        << depth;
    EXPECT_GT(last["agreement"][depth].get<double>(), 0.3) << depth;
  }
  GetParam().load(folder_.path() / "head", *target_weights());
  EXPECT_EQ(read_file(target() / "model.safetensors"), before) << "the target is frozen";
  EXPECT_FALSE(fs::exists(folder_.path() / "head" / "training.state"));
}

TEST_P(EveryHeadTest, AnInterruptedTrainingResumesToTheSameBits) {
  const std::vector<std::string> own = {"self_distillation={share: 0.5, sequences: 4}"};
  train_head(config(GetParam().head, own, "whole"), {});
  struct Stop {};
  TrainOptions stopping;
  stopping.log = [](const std::string& line) {
    if (line.rfind("step     30", 0) == 0) {
      throw Stop();  // after the checkpoint of step 20
    }
  };
  const HeadTrainConfig second = config(GetParam().head, own);
  EXPECT_THROW(train_head(second, stopping), Stop);
  EXPECT_TRUE(fs::exists(second.out / "training.state"));
  EXPECT_THAT(error_message<Error>([&] {
                train_head(config(GetParam().head, {own[0], "loss.decay=0.5"}), {});
              }),
              HasSubstr("another config"));
  train_head(second, {});
  EXPECT_EQ(weights_of(second.out), weights_of(folder_.path() / "whole"));
  EXPECT_EQ(summary(), summary("whole"));
  EXPECT_THAT(error_message<Error>([&] { train_head(second, {}); }), HasSubstr("already"));
}

TEST_P(EveryHeadTest, NothingIsTrainedBesideAHeadOfAnotherKind) {
  for (const char* file : {"model.safetensors", "mtp.safetensors", "adapter_model.safetensors"}) {
    const TemporaryFolder folder;
    folder.write("training.jsonl", "{}");
    folder.write(file, "mine");
    EXPECT_THAT(error_message<Error>([&] {
                  train_head(config(GetParam().head, {"out=" + folder.path().string()}), {});
                }),
                HasSubstr(file));
    EXPECT_EQ(read_file(folder.path() / "training.jsonl"), "{}");
  }
}

TEST_P(EveryHeadTest, NothingIsTrainedBesideAModel) {
  fs::copy(target(), folder_.path() / "head", fs::copy_options::recursive);
  const auto before = read_file(folder_.path() / "head" / "training.jsonl");
  EXPECT_THROW(train_head(config(GetParam().head), {}), Error);
  EXPECT_EQ(read_file(folder_.path() / "head" / "training.jsonl"), before);
  EXPECT_FALSE(fs::exists(folder_.path() / "head" / "so_far"));
}

INSTANTIATE_TEST_SUITE_P(All, EveryHeadTest, testing::ValuesIn(heads()),
                         [](const auto& info) { return info.param.name; });

TEST_F(HeadTrainerTest, TheTargetAsItsOwnHeadWouldBePerfect) {
  // A fake head whose depth d repeats the target's logits at a + d.
  class Oracle final : public HeadTraining {
   public:
    void collect(std::vector<at::Tensor>&, std::vector<at::Tensor>&) override {}
    std::vector<DepthOutput> forward(const TargetBatch& batch, int64_t depth) const override {
      std::vector<DepthOutput> out;
      for (int64_t d = 1; d <= depth; ++d) {
        const auto places = guessed_places(batch, d).places;
        out.push_back({batch.target.logits.flatten(0, 1).index_select(0, places), {}});
      }
      return out;
    }
    void save(const fs::path&) const override {}
    void load(const fs::path&) override {}
  };
  const TransformerTensors target = unpack(*target_weights());
  const HeadTrainConfig plan = config("{type: medusa}");
  const TextData data(plan.text, *load_tokenizer(HeadTrainerTest::target()));
  const auto prose = evaluate_head(Oracle(), target, data, {}, plan, 0).at("prose");
  ASSERT_EQ(prose.size(), 2U);
  for (const DepthAccuracy& depth : prose) {
    EXPECT_DOUBLE_EQ(depth.agreement, 1.0);
    EXPECT_NEAR(depth.overlap, 1.0, 1e-5);
  }
  EXPECT_GT(prose[0].tokens, prose[1].tokens);
  // The oracle's loss is the entropy of the target's distributions, the least that there is.
  const auto batch = target_batch(target, data.batch(0), {});
  const HeadLoss distribution{.distribution = 1.0, .depth = 1};
  const auto p = batch.distribution.narrow(1, 1, batch.distribution.size(1) - 1);
  EXPECT_NEAR(head_loss(Oracle(), batch, distribution, target).item<double>(),
              -(p * p.log()).sum(-1).mean().item<double>(), 1e-4);
}

TEST_F(HeadTrainerTest, SelfGeneratedTokensHaveTheTargetsDistribution) {
  const auto target = target_weights();
  const auto tokenizer = load_tokenizer(HeadTrainerTest::target());
  const std::vector<Token> text = tokenizer->encode("The king said to the");
  constexpr int64_t kRows = 3000;
  std::vector<int64_t> prompt = {2};
  prompt.insert(prompt.end(), text.begin(), text.end());
  const auto prompts = at::tensor(prompt).unsqueeze(0).expand({kRows, -1}).contiguous();
  const auto length = static_cast<int64_t>(prompt.size());
  const auto rows =
      continue_by_distribution(target, prompts, length + 1, std::vector<double>(kRows, 1.5), 7, 0);
  const auto logits =
      reference_forward(unpack(*target), prompts.narrow(0, 0, 1)).logits[0][length - 1];
  const auto distribution = at::softmax(logits.to(at::kDouble) / 1.5, -1);
  const auto counts =
      at::bincount(rows.select(1, length), {}, distribution.size(0)).to(at::kDouble);
  // Pearson's test over tokens that are expected often enough, the others together.
  const auto expected = distribution * static_cast<double>(kRows);
  const auto often = expected.ge(5.0);
  const auto terms = ((counts - expected).pow(2) / expected).masked_select(often).sum();
  const auto rest = (expected.masked_select(often.logical_not())).sum().item<double>();
  const auto rest_counts = counts.masked_select(often.logical_not()).sum().item<double>();
  const double statistic =
      terms.item<double>() + (rest > 0.0 ? std::pow(rest_counts - rest, 2) / rest : 0.0);
  const double degrees = often.sum().item<double>();
  EXPECT_GT(degrees, 3.0);
  EXPECT_LT(statistic, degrees + 4.0 * std::sqrt(2.0 * degrees));
}

TEST_F(HeadTrainerTest, GreedyRowsAreTheTargetsOwnText) {
  const auto target = target_weights();
  const auto prompts = at::tensor({2, 40, 41, 2, 50, 60}, at::kLong).view({2, 3});
  const auto rows = continue_by_distribution(target, prompts, 8, {0.0, 0.0}, 1, 0);
  const auto logits = reference_forward(unpack(*target), rows).logits;
  EXPECT_TRUE(at::equal(logits.narrow(1, 2, 5).argmax(-1), rows.narrow(1, 3, 5)));
}

TEST_F(HeadTrainerTest, TheTargetWritesNoTokensThatItSuppresses) {
  const auto prompts = at::tensor({2, 40, 41}, at::kLong).view({1, 3});
  const auto target = std::make_shared<TransformerWeights>(*target_weights());
  const auto first = [&] {
    return continue_by_distribution(target, prompts, 4, {0.0}, 1, 0)[0][3].item<int64_t>();
  };
  const int64_t usual = first();
  target->config.suppressed_ids = {static_cast<Token>(usual)};
  EXPECT_NE(first(), usual);
}

TEST_F(HeadTrainerTest, GeneratedTextIsKeptForTheNextTraining) {
  const std::string file = (folder_.path() / "generated.safetensors").string();
  const std::string own = "self_distillation={share: 1.0, sequences: 4, file: " + file + "}";
  train_head(config("{type: medusa, num_heads: 2}", {"steps=2", own}), {});
  const std::string kept = read_file(file);
  train_head(config("{type: eagle}", {"steps=2", own}, "second"), {});
  EXPECT_EQ(read_file(file), kept);
  const auto other = config("{type: eagle}", {"steps=2", own, "seed=9"}, "third");
  train_head(other, {});
  EXPECT_NE(read_file(file), kept) << "it belonged to another seed";
  EXPECT_TRUE(summary()["held_out"].contains("prose, by the target"));
}

TEST_F(HeadTrainerTest, TheDraftVocabularyHoldsTheMostFrequentTokens) {
  const HeadTrainConfig plan =
      config("{type: eagle3, layers: [0, 1, 2], draft_vocab_size: 50}", {"steps=2"});
  train_head(plan, {});
  const auto head = load_eagle_head(plan.out, EagleVersion::kEagle3, *target_weights());
  const TextData data(plan.text, *load_tokenizer(HeadTrainerTest::target()));
  const auto counts = data.frequencies(400);
  const auto inside = counts.index_select(0, head->target_ids);
  const auto outside = counts.index_fill(0, head->target_ids, 0);
  EXPECT_GE(inside.min().item<int64_t>(), outside.max().item<int64_t>());
}

TEST(HeadLossTest, MassOutsideTheDraftVocabularyIsNotMadeUpFor) {
  const auto distribution = at::tensor({0.5, 0.1, 0.3, 0.1, 0.1, 0.6, 0.2, 0.1}).view({1, 2, 4});
  const TargetBatch batch{.tokens = at::tensor({0, 1, 2}, at::kLong).view({1, 3}),
                          .target = {},
                          .distribution = distribution};
  const auto draft = guessed_distribution(batch, guessed_places(batch, 1),
                                          at::tensor({0, 2}, at::kLong), TransformerTensors());
  EXPECT_TRUE(at::equal(
      draft, distribution[0].narrow(0, 1, 1).index_select(1, at::tensor({0, 2}, at::kLong))));
}

TEST(HeadLossTest, PlacesAreThoseOfAnswersThatTheDepthReaches) {
  const TargetBatch whole{.tokens = at::zeros({2, 5}, at::kLong), .target = {}, .distribution = {}};
  const GuessedPlaces all = guessed_places(whole, 3);
  EXPECT_TRUE(at::equal(all.places, at::tensor({3, 7}, at::kLong)));
  EXPECT_TRUE(at::equal(all.anchors, at::tensor({0, 3}, at::kLong))) << "the rows' first columns";
  TargetBatch answers = whole;
  answers.places = at::tensor({1, 2, 7}, at::kLong);
  const GuessedPlaces some = guessed_places(answers, 2);
  EXPECT_TRUE(at::equal(some.places, at::tensor({2, 7}, at::kLong)));
  EXPECT_TRUE(at::equal(some.among, at::tensor({1, 2}, at::kLong)));
  EXPECT_TRUE(at::equal(some.anchors, at::tensor({0, 4}, at::kLong)));
}

/// Published EAGLE layers have no input norm, and a feature after the final norm no stream's scale.
TEST(EagleTrainingTest, ALayerWithoutInputNormBeginsByPassingItsFeatureOn) {
  const auto target = load_model_tensors(test_data("mistral-a"), {.dtype = at::kFloat});
  HeadShape shape;
  shape.type = HeadType::kEagle;
  const auto head = make_head_training(
      shape, {.target = target, .token_weights = {}, .seed = 1, .matmul_dtype = {}});
  const auto tokens = at::arange(1, 10, at::kLong).view({1, 9});
  const TargetBatch batch = target_batch(*target, tokens, {});
  const auto fed = head->wanted_features(batch).flatten(0, 1);
  for (const DepthOutput& output : head->forward(batch, 2)) {
    const int64_t count = output.features.size(0);
    EXPECT_TRUE(at::allclose(output.features, fed.narrow(0, 0, count), 1e-5, 1e-5));
    EXPECT_TRUE(
        at::allclose(output.logits, batch.target.logits[0].narrow(0, 0, count), 1e-4, 1e-4));
  }
}

TEST_F(HeadTrainerTest, ConfigMistakesComeTogether) {
  const std::string message = error_message<ConfigError>([&] {
    config(
        "{type: eagle3, layers: [7], draft_vocab_size: 9999, num_heads: 2}",
        {"steps=none", "self_distillation={prompt_tokens: 4000, file: /tmp}", "loss.features=1"});
  });
  for (const char* part :
       {"steps", "layer 7", "9999", "num_heads", "4000", "features", "no file"}) {
    EXPECT_THAT(message, HasSubstr(part));
  }
  EXPECT_THAT(error_message<ConfigError>([&] { config("{type: eagel}"); }), HasSubstr("eagle3"));
  EXPECT_THAT(error_message<ConfigError>([&] { config("{type: medusa}", {"loss={tokens: 0.0}"}); }),
              HasSubstr("nothing to learn"));
}

}  // namespace
}  // namespace specdec
