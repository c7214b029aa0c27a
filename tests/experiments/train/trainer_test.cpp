#include "experiments/train/trainer.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/serialize.h>

#include <cmath>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/families/gemma/config.h"
#include "core/families/model.h"
#include "core/tokenizers/tokenizer.h"
#include "core/transformer/random_weights.h"
#include "core/transformer/reference.h"
#include "core/transformer/weights.h"
#include "experiments/terminal/interrupt.h"
#include "experiments/train/evaluation.h"
#include "experiments/train/unlikelihood.h"
#include "kv/paged_kv.h"
#include "tests/support/error_message.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

namespace fs = std::filesystem;

class TrainerTest : public testing::Test {
 protected:
  void SetUp() override {
    at::set_num_threads(1);
    std::ofstream text(folder_.path() / "text.txt");
    for (int i = 0; i < 400; ++i) {
      text << "The king said to the " << (i % 3 == 0 ? "duke" : "queen") << ": what news, my lord "
           << i << "?\nShe answered that the " << (i % 7) << " ships had come home.\n";
    }
    text.close();
  }

  /// A config whose model and tokenizer are given by `start`.
  TrainConfig config(const std::vector<std::string>& overrides = {},
                     const std::string& start =
                         "model: {hidden_size: 16, intermediate_size: 32, "
                         "layers: 2, heads: 2, head_dim: 8}\n"
                         "tokenizer: {vocab_size: 400}\n") const {
    const auto file = folder_.write(
        "train.yaml", start + "out: " + (folder_.path() / "model").string() +
                          "\ndata: [{kind: prose, file: " + (folder_.path() / "text.txt").string() +
                          "}]\nsequence_length: 32\nbatch_size: 4\nsteps: 30\nwarm_up_steps: 3\n"
                          "learning_rate: 0.01\nevaluate_every: 10\ncheckpoint_every: 10\n");
    return load_train_config(file, overrides);
  }

  /// Expects that the stored model is better than the one of the first evaluation.
  static void expect_learned(const fs::path& out) {
    std::ifstream lines(out / "training.jsonl");
    std::string first;
    std::getline(lines, first);
    std::ifstream stream(out / "training.json");
    const auto summary = nlohmann::json::parse(stream);
    const double before =
        nlohmann::json::parse(first)["held_out"]["prose"]["bits_per_byte"].get<double>();
    const double after = summary["held_out"]["prose"]["bits_per_byte"].get<double>();
    EXPECT_LT(after, 0.9 * before);
  }

  TemporaryFolder folder_;
};

TEST_F(TrainerTest, LearnsAndStoresACheckpoint) {
  train_model(config(), {});
  const fs::path out = folder_.path() / "model";
  expect_learned(out);
  const auto weights = load_model(out);
  EXPECT_EQ(weights->weight_dtype, at::kBFloat16);
  EXPECT_EQ(weights->config.vocab_size, load_tokenizer(out)->vocab_size());
  EXPECT_FALSE(fs::exists(out / "training.state"));
}

TEST_F(TrainerTest, ADenseGemma4IsTrainedStoredAndTrainedOn) {
  const std::string shape =
      "model: {family: gemma4, hidden_size: 16, intermediate_size: 32, layers: 3, heads: 2, "
      "head_dim: 8, sliding_window_pattern: 3, final_logit_softcapping: 30}\n"
      "tokenizer: {vocab_size: 400}\n";
  train_model(config({}, shape), {});
  const std::string first = (folder_.path() / "model").string();
  const auto weights = load_model(first);
  EXPECT_EQ(weights->config.family, "gemma4_text");
  EXPECT_EQ(weights->weight_dtype, at::kBFloat16);
  EXPECT_EQ(weights->config.final_soft_cap, 30.0);
  EXPECT_EQ(weights->plan.front().head_dim, 8);
  EXPECT_GT(weights->plan.front().window, 0);
  EXPECT_EQ(weights->plan.back().head_dim, 16);
  EXPECT_EQ(weights->plan.back().values, ValueKind::kRawKeys);
  std::ifstream stream(first + "/training.json");
  const double stored =
      nlohmann::json::parse(stream)["held_out"]["prose"]["bits_per_byte"].get<double>();
  const TextData data(config({}, shape).text, *load_tokenizer(first));
  const auto loaded = load_model_tensors(first, {.dtype = at::kFloat});
  EXPECT_DOUBLE_EQ(evaluate(*loaded, nullptr, data, 0).at("prose").bits_per_byte, stored);
  const auto second = config({"steps=3", "continuation_share=1", "sequence_length=64",
                              "out=" + (folder_.path() / "second").string()},
                             "initial: " + first + "\ntokenizer: {from: " + first + "}\n");
  train_model(second, {});
  EXPECT_NE(load_model(folder_.path() / "second")->fingerprint, weights->fingerprint);
}

TEST_F(TrainerTest, AMixtureOfExpertsIsTrainedAndReadByTheForward) {
  const std::string shape =
      "model: {family: gemma4, hidden_size: 16, intermediate_size: 16, layers: 2, heads: 2, "
      "head_dim: 8, experts: {count: 4, chosen: 2, intermediate_size: 16}}\n"
      "tokenizer: {vocab_size: 400}\nbalance_share: 0.01\n";
  train_model(config({}, shape), {});
  const fs::path out = folder_.path() / "model";
  expect_learned(out);
  const auto weights = load_model(out);
  EXPECT_EQ(weights->plan.front().experts,
            (ExpertsPlan{.count = 4, .chosen = 2, .intermediate_size = 16}));
  const std::vector<Token> text = {2, 9, 4, 17, 300, 255, 31, 9, 9, 120};
  const Tensor tokens = token_tensor(text);
  TransformerModel model(weights, paged_kv());
  const ReferenceResult wanted =
      reference_forward(*load_model_tensors(out, {.dtype = at::kFloat}), tokens.unsqueeze(0));
  EXPECT_EQ(wanted.router_probs.size(), 2U);
  EXPECT_TRUE(at::allclose(model.forward({.tokens = tokens}).logits, wanted.logits[0], 1e-4, 1e-4));
  // Another share of the balance trains another model, and training goes on from the stored one.
  const auto further = config(
      {"steps=3", "out=" + (folder_.path() / "further").string()},
      "initial: " + out.string() + "\ntokenizer: {from: " + out.string() + "}\nbalance_share: 1\n");
  train_model(further, {});
  EXPECT_NE(load_model(folder_.path() / "further")->fingerprint, weights->fingerprint);
}

TEST_F(TrainerTest, MistakesOfExperts) {
  const auto mistake = [&](const std::vector<std::string>& overrides) {
    return error_message<ConfigError>([&] { config(overrides); });
  };
  EXPECT_THAT(mistake({"model.family=gemma4",
                       "model.experts={count: 4, chosen: 5, intermediate_size: 16}"}),
              testing::HasSubstr("model.experts.chosen: is 5, of 4 experts"));
  EXPECT_THAT(
      mistake({"model.family=gemma4", "model.experts={count: 4}"}),
      testing::AllOf(testing::HasSubstr("chosen"), testing::HasSubstr("intermediate_size")));
  EXPECT_THAT(mistake({"balance_share=0.1"}), testing::HasSubstr("the model has no model.experts"));
  EXPECT_THAT(mistake({"model.experts={count: 4}"}), testing::HasSubstr("experts"));
}

constexpr const char* kRecurrentShape =
    "model: {family: recurrent_gemma, hidden_size: 16, intermediate_size: 32, layers: 3, heads: 2, "
    "head_dim: 8, sliding_window: 8}\ntokenizer: {vocab_size: 400}\n";

TEST_F(TrainerTest, ARecurrentModelIsTrainedAndReadByTheForward) {
  train_model(config({}, kRecurrentShape), {});
  const fs::path out = folder_.path() / "model";
  expect_learned(out);
  const auto weights = load_model(out);
  ASSERT_TRUE(is_recurrent(weights->plan.front()));
  EXPECT_EQ(weights->plan.back().window, 8);
  const std::vector<Token> text = {2, 9, 4, 17, 300, 255, 31, 9, 9, 120, 9, 31};
  const Tensor tokens = token_tensor(text);
  const auto stored = load_model_tensors(out, {.dtype = at::kFloat});
  const Tensor wanted = reference_forward(*stored, tokens.unsqueeze(0)).logits[0];
  TransformerModel model(weights, paged_kv());
  EXPECT_TRUE(at::allclose(model.forward({.tokens = tokens}).logits, wanted, 1e-4, 1e-4));
  const Tensor& decay = stored->layers.front().recurrence.decay;
  EXPECT_LT(decay.max().item<double>(), 0.0);
  EXPECT_FALSE(at::allclose(decay.exp(), at::linspace(0.9, 0.999, 16), 1e-3, 1e-3)) << "it learned";
  const auto further =
      config({"steps=3", "continuation_share=1", "sequence_length=64",
              "out=" + (folder_.path() / "further").string()},
             "initial: " + out.string() + "\ntokenizer: {from: " + out.string() + "}\n");
  train_model(further, {});
  EXPECT_NE(load_model(folder_.path() / "further")->fingerprint, weights->fingerprint);
}

TEST_F(TrainerTest, MistakesOfRecurrentModels) {
  const auto mistake = [&](const std::string& override) {
    return error_message<ConfigError>([&] { config({override}, kRecurrentShape); });
  };
  EXPECT_THAT(mistake("model.heads=4"), testing::HasSubstr("model.head_dim: is 8, of 4 heads"));
  EXPECT_THAT(mistake("model.lru_width=17"), testing::HasSubstr("model.lru_width: is 17"));
  EXPECT_THAT(mistake("model.block_types=[recurrent, full]"),
              testing::HasSubstr("model.block_types: is [recurrent, full]"));
  EXPECT_THAT(mistake("model.block_types=[]"), testing::HasSubstr("model.block_types"));
  EXPECT_THAT(mistake("model.block_types=[attention]"),
              testing::HasSubstr("none of the model's layers recurrent"));
  EXPECT_THAT(mistake("model.heads=0"), testing::HasSubstr("model.heads: 0 is not between"));
  EXPECT_THAT(mistake("model.experts={count: 4}"), testing::HasSubstr("experts"));
}

TEST_F(TrainerTest, OfGemma4OnlyModelsThatCanBeStoredAreTrained) {
  EXPECT_THAT(
      error_message<ConfigError>([&] {
        config({},
               "initial: " + test_data("gemma4-e-a").string() + "\ntokenizer: {vocab_size: 400}\n");
      }),
      testing::AllOf(testing::HasSubstr("initial"), testing::HasSubstr("per-layer inputs")));
  EXPECT_THAT(error_message<ConfigError>([&] { config({"model.family=gemma5"}); }),
              testing::HasSubstr("Known: gemma3, gemma4, recurrent_gemma"));
  EXPECT_THAT(error_message<ConfigError>([&] {
                config({"model.family=gemma4", "model.global_head_dim=12"});
              }),
              testing::HasSubstr("multiple of 8"));
}

TEST_F(TrainerTest, AnInterruptedTrainingResumesToTheSameWeights) {
  train_model(config({"out=" + (folder_.path() / "whole").string()}), {});
  struct Stop {};
  TrainOptions stopping;
  stopping.log = [](const std::string& line) {
    if (line.rfind("step     20", 0) == 0) {
      throw Stop();  // after the checkpoint of step 10
    }
  };
  EXPECT_THROW(train_model(config(), stopping), Stop);
  EXPECT_TRUE(fs::exists(folder_.path() / "model" / "training.state"));
  train_model(config(), {});
  EXPECT_EQ(load_model(folder_.path() / "model")->fingerprint,
            load_model(folder_.path() / "whole")->fingerprint);
}

TEST_F(TrainerTest, CtrlCWritesAStateThatTheSameCommandResumes) {
  train_model(config({"out=" + (folder_.path() / "whole").string()}), {});
  const InterruptGuard guard;
  TrainOptions stopping;
  stopping.log = [](const std::string& line) {
    if (line.rfind("step     20/30  loss", 0) == 0) {
      (void)std::raise(SIGINT);
    }
  };
  // No checkpoint falls due before the end.
  EXPECT_THROW(train_model(config({"checkpoint_every=1000"}), stopping), Interrupted);
  EXPECT_TRUE(fs::exists(folder_.path() / "model" / "training.state"));
  EXPECT_FALSE(fs::exists(folder_.path() / "model" / "model.safetensors"));
  const InterruptGuard again;
  std::string log;
  TrainOptions logging;
  logging.log = [&](const std::string& line) { log += line + "\n"; };
  train_model(config({"checkpoint_every=1000"}), logging);
  EXPECT_THAT(log, testing::HasSubstr("steps 20 to 30"));
  EXPECT_EQ(load_model(folder_.path() / "model")->fingerprint,
            load_model(folder_.path() / "whole")->fingerprint);
}

TEST_F(TrainerTest, CtrlCEndsTheLastEvaluation) {
  const InterruptGuard guard;
  bool is_evaluated = false;
  TrainOptions stopping;
  stopping.log = [&](const std::string& line) {
    if (line.rfind("step     10/10  loss", 0) == 0) {
      (void)std::raise(SIGINT);
    }
    is_evaluated = is_evaluated || line.rfind("stored weights", 0) == 0;
  };
  EXPECT_THROW(train_model(config({"steps=10"}), stopping), Interrupted);
  EXPECT_FALSE(is_evaluated);
  EXPECT_TRUE(fs::exists(folder_.path() / "model" / "training.state"));
}

TEST_F(TrainerTest, ATrainingStoppedInItsLastEvaluationResumes) {
  train_model(config({"steps=10"}), {});
  const auto fingerprint = load_model(folder_.path() / "model")->fingerprint;
  fs::remove_all(folder_.path() / "model");
  struct Stop {};
  TrainOptions stopping;
  stopping.log = [](const std::string& line) {
    if (line.rfind("stored weights", 0) == 0) {
      throw Stop();
    }
  };
  EXPECT_THROW(train_model(config({"steps=10", "checkpoint_every=4"}), stopping), Stop);
  EXPECT_TRUE(fs::exists(folder_.path() / "model" / "model.safetensors"));
  train_model(config({"steps=10", "checkpoint_every=4"}), {});
  EXPECT_EQ(load_model(folder_.path() / "model")->fingerprint, fingerprint);
  EXPECT_THROW(train_model(config({"steps=10"}), {}), Error) << "now it is finished";
  std::filesystem::rename(config({}).out / "model.safetensors",
                          config({}).out / "pytorch_model.bin");
  EXPECT_THROW(train_model(config({"steps=10"}), {}), Error) << "a model in another file";
}

TEST_F(TrainerTest, RefusesWhatItWouldSpoil) {
  train_model(config({"steps=10"}), {});
  EXPECT_THROW(train_model(config(), {}), Error);
}

TEST_F(TrainerTest, RefusesTheStateOfAnotherTraining) {
  struct Stop {};
  TrainOptions stopping;
  stopping.log = [](const std::string& line) {
    if (line.rfind("step     20", 0) == 0) {
      throw Stop();
    }
  };
  EXPECT_THROW(train_model(config(), stopping), Stop);
  EXPECT_THROW(train_model(config({"learning_rate=0.02"}), {}), Error);
}

TEST_F(TrainerTest, RefusesAStateThatIsAnotherArchive) {
  fs::create_directories(folder_.path() / "model");
  torch::serialize::OutputArchive archive;
  archive.write("weight", at::zeros({2}));
  archive.save_to((folder_.path() / "model" / "training.state").string());
  EXPECT_THAT(error_message<Error>([&] { train_model(config(), {}); }),
              testing::HasSubstr("damaged, or no state of a training"));
}

TEST_F(TrainerTest, ConfigsNameTokenizersAndTeachersThatCannotBeUsed) {
  fs::create_directories(folder_.path() / "empty");
  const std::string empty = (folder_.path() / "empty").string();
  EXPECT_THAT(error_message<ConfigError>([&] { config({"tokenizer={from: " + empty + "}"}); }),
              testing::AllOf(testing::HasSubstr("tokenizer.from"), testing::HasSubstr(empty)));
  EXPECT_THAT(error_message<ConfigError>([&] { config({"teacher={weights: " + empty + "}"}); }),
              testing::AllOf(testing::HasSubstr("teacher.weights"), testing::HasSubstr(empty)));
}

TEST_F(TrainerTest, ATeacherEqualToTheModelAgreesWholly) {
  train_model(config({"steps=10"}), {});
  const auto tokenizer = load_tokenizer(folder_.path() / "model");
  const TextData data(config().text, *tokenizer);
  LoadOptions load;
  load.dtype = at::kFloat;
  const auto weights = load_model_tensors(folder_.path() / "model", load);
  const auto prose = evaluate(*weights, weights.get(), data, 0).at("prose");
  EXPECT_DOUBLE_EQ(*prose.agreement, 1.0);
  EXPECT_NEAR(*prose.overlap, 1.0, 1e-5);
}

TEST_F(TrainerTest, ContinuationsAndTeachersTrain) {
  train_model(config({"steps=10"}), {});
  const std::string first = (folder_.path() / "model").string();
  const auto second = config({"steps=3", "continuation_share=1", "sequence_length=64",
                              "repetition_share=0.1", "out=" + (folder_.path() / "second").string(),
                              "teacher={weights: " + first + ", share: 0.5}"},
                             "initial: " + first + "\ntokenizer: {from: " + first + "}\n");
  train_model(second, {});
  EXPECT_NE(load_model(folder_.path() / "second")->fingerprint, load_model(first)->fingerprint);
}

TEST_F(TrainerTest, FoldersThatCannotBeWrittenAreErrors) {
  folder_.write("file", "");
  for (const auto& out : {folder_.path() / "file", folder_.path() / "file/below"}) {
    EXPECT_THAT([&] { train_model(config({"out=" + out.string()}), {}); },
                testing::ThrowsMessage<Error>(testing::HasSubstr("cannot be made or written")));
  }
}

TEST_F(TrainerTest, ATokenizerThatLiesThereIsNotOverwritten) {
  std::filesystem::create_directory(folder_.path() / "mine");
  folder_.write("mine/tokenizer.json", "mine");
  const auto out = folder_.path() / "mine";
  EXPECT_THAT([&] { train_model(config({"out=" + out.string()}), {}); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("other files ('tokenizer.json')")));
  EXPECT_EQ(read_file(out / "tokenizer.json"), "mine");
}

TEST_F(TrainerTest, AFolderWithOtherFilesStaysAsItIs) {
  std::filesystem::create_directory(folder_.path() / "other");
  folder_.write("other/notes.txt", "mine");
  const auto out = folder_.path() / "other";
  EXPECT_THAT([&] { train_model(config({"out=" + out.string()}), {}); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("holds other files ('notes.txt')")));
  EXPECT_FALSE(std::filesystem::exists(out / "tokenizer.json"));
  EXPECT_TRUE(std::filesystem::exists(out / "notes.txt"));
}

TEST_F(TrainerTest, AnInitialModelThatIsMissingIsAMistakeOfItsKey) {
  EXPECT_THAT(
      [&] { (void)config({}, "initial: nowhere\ntokenizer: {vocab_size: 400}\n"); },
      testing::ThrowsMessage<ConfigError>(testing::HasSubstr("initial: 'nowhere' does not exist")));
}

TEST_F(TrainerTest, AnInitialModelHasTheTokenizersTokens) {
  const std::string initial = "initial: " + test_data("recurrentgemma-a").string() + "\n";
  for (const char* tokenizer : {"tokenizer: {vocab_size: 400}\n",
                                "tokenizer: {from: " SPECDEC_SOURCE_DIR "/models/target}\n"}) {
    EXPECT_THAT(error_message<ConfigError>([&] { config({}, initial + tokenizer); }),
                testing::AllOf(testing::HasSubstr("tokenizer."), testing::HasSubstr("'initial'")));
  }
}

TEST_F(TrainerTest, ConfigMistakesComeTogether) {
  try {
    config({"steps=none", "stepz=3", "model.heads=3", "model.kv_heads=2"});
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("steps"));
    EXPECT_THAT(error.what(), testing::HasSubstr("stepz"));
    EXPECT_THAT(error.what(), testing::HasSubstr("kv_heads"));
  }
}

TEST(UnlikelihoodTest, MarksTokensThatCompleteARepeatedNgram) {
  const auto sequence = at::tensor({5, 6, 7, 8, 9, 5, 6, 7, 8, 5}, at::kLong).unsqueeze(0);
  const auto marks = SequenceUnlikelihood::repeated(sequence, 0);
  for (int64_t i = 0; i < 10; ++i) {
    EXPECT_EQ(marks[0][i].item<bool>(), i == 8) << i;
  }
  EXPECT_FALSE(SequenceUnlikelihood::repeated(sequence, 9).any().item<bool>());
}

TEST(UnlikelihoodTest, TokenLossIsTheSumOverTheContext) {
  // One row, two positions, vocabulary of four; inputs 1, 2; targets 2, 1.
  const auto probs = at::tensor({0.1, 0.2, 0.3, 0.4, 0.4, 0.3, 0.2, 0.1}).view({1, 2, 4});
  const auto inputs = at::tensor({1, 2}, at::kLong).unsqueeze(0);
  const auto targets = at::tensor({2, 1}, at::kLong).unsqueeze(0);
  // Position 0: candidate 1. Position 1: candidates 1 (the target: left out) and 2. Id 0 collects
  // what is left out.
  const double wanted = (-std::log(0.8) - std::log(0.9) - std::log(0.8) - std::log(0.6)) / 2.0;
  EXPECT_NEAR(token_unlikelihood(probs.log(), inputs, targets).item<double>(), wanted, 1e-6);
}

TEST(UnlikelihoodTest, ContinuesAsGreedyDecodingDoes) {
  const char* text = R"({
      "model_type": "gemma3_text", "vocab_size": 64, "hidden_size": 16, "intermediate_size": 32,
      "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8,
      "query_pre_attn_scalar": 8, "sliding_window": 8,
      "layer_types": ["sliding_attention", "full_attention"]})";
  const std::shared_ptr<const TransformerTensors> weights =
      random_model(parse_gemma_config(text, "tiny"));
  const auto prompts = at::tensor({2, 9, 4, 2, 7, 7}, at::kLong).view({2, 3});
  const auto together = SequenceUnlikelihood(weights).continue_greedily(prompts, 6);
  TransformerModel model(pack(*weights), paged_kv());
  for (int64_t row = 0; row < 2; ++row) {
    std::vector<Token> fed;
    for (int64_t i = 0; i < 3; ++i) {
      fed.push_back(static_cast<Token>(prompts[row][i].item<int64_t>()));
    }
    Tensor logits = model.prefill_get_last_logits(fed);
    for (int64_t i = 3; i < 9; ++i) {
      const auto token = static_cast<Token>(logits.argmax().item<int64_t>());
      EXPECT_EQ(together[row][i].item<int64_t>(), token);
      logits = model.decode_get_logits({&token, 1})[0];
    }
  }
}

}  // namespace
}  // namespace specdec
