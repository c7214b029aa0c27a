#include "experiments/train/answers.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "core/error.h"
#include "core/families/model.h"
#include "core/formats/strict_json.h"
#include "core/transformer/heads/eagle_head.h"
#include "core/transformer/heads/medusa_head.h"
#include "experiments/train/answer_prompts.h"
#include "experiments/train/answer_set.h"
#include "experiments/train/head_loss.h"
#include "experiments/train/head_trainer.h"
#include "experiments/train/tokenizer_training.h"
#include "experiments/train/train_check.h"
#include "tests/support/error_message.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_llama.h"

namespace specdec {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

constexpr int64_t kAnswerVocab = 340;

/// A random Llama with a chat tokenizer, and a text.
class AnswersTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    at::set_num_threads(1);
    shared = new TemporaryFolder();
    std::string text;
    for (int i = 0; i < 300; ++i) {
      text += "The king said to the queen: what news of ship " + std::to_string(i) + "?\n";
    }
    std::ofstream(shared->path() / "text.txt") << text;
    write_tiny_llama(target(), kAnswerVocab);
    train_tokenizer({.texts = {text}, .vocab_size = kAnswerVocab}, target());
  }
  static void TearDownTestSuite() { delete shared; }

  static fs::path target() { return shared->path() / "llama"; }

  AnswerPlan plan(const std::string& out, const std::vector<std::string>& overrides = {}) const {
    const auto file =
        folder_.write("answers.yaml", "out: " + (folder_.path() / out).string() +
                                          "\ntarget: {weights: " + target().string() +
                                          "}\nlayers: [0, 1]\nprompts: 12\nrows: 4\ntexts: [" +
                                          (shared->path() / "text.txt").string() +
                                          "]\ntext_tokens: [10, 20]\nmax_user_tokens: 200\n"
                                          "max_answer_tokens: 12\nmax_length: 256\n");
    return load_answer_plan(file, overrides);
  }

  HeadTrainConfig head(const std::string& type, const std::vector<std::string>& overrides = {},
                       const std::string& out = "head") const {
    const auto file = folder_.write(
        "head.yaml", "head: " + type + "\ntarget: {weights: " + target().string() +
                         "}\nout: " + (folder_.path() / out).string() +
                         "\nanswers: {folder: " + (folder_.path() / "answers").string() +
                         "}\nheld_out: 0.25\nbatch_size: 2\nsteps: 30\nwarm_up_steps: 2\n"
                         "learning_rate: 0.02\nevaluate_every: 1\ncheckpoint_every: 5\n"
                         "evaluate_depth: 2\n");
    return load_head_train_config(file, overrides);
  }

  AnswerSet answer_set(const TransformerTensors& target) const {
    const fs::path answers = folder_.path() / "answers";
    return AnswerSet(answers, require_answers({.folder = answers}, {}), target, 0.25);
  }

  /// Mean loss of the first ten steps, and of the last ten: each is of other answers.
  std::pair<double, double> losses(const std::string& out) const {
    std::ifstream stream(folder_.path() / out / "training.jsonl");
    std::vector<double> all;
    for (std::string line; std::getline(stream, line);) {
      all.push_back(json::parse(line)["loss"].get<double>());
    }
    EXPECT_GE(all.size(), 20U);
    return {std::accumulate(all.begin(), all.begin() + 10, 0.0) / 10,
            std::accumulate(all.end() - 10, all.end(), 0.0) / 10};
  }

  static TemporaryFolder* shared;
  TemporaryFolder folder_;
};
TemporaryFolder* AnswersTest::shared = nullptr;

/// Everything of an answer but where its features lie.
std::vector<json> comparable(const fs::path& folder) {
  std::vector<json> out;
  for (const AnswerRecord& record : read_answer_records(folder)) {
    out.push_back({record.number, record.own, record.temperature, record.end, record.tokens,
                   record.answer, record.log_sums});
  }
  return out;
}

TEST_F(AnswersTest, AreWhatTheTargetSays) {
  const AnswerPlan made = plan("answers");
  make_answers(made, {});
  const auto records = read_answer_records(made.out);
  ASSERT_EQ(records.size(), 12U);
  const auto weights = load_model_tensors(target(), {.dtype = at::kFloat});
  const auto features = map_answer_features(made.out, int64_t{3} * 32);
  int64_t greedy = 0;
  for (const AnswerRecord& record : records) {
    if (record.tokens.empty()) {
      continue;
    }
    const auto fed = static_cast<int64_t>(record.tokens.size()) - 1;
    const std::vector<int64_t> tokens(record.tokens.begin(), record.tokens.end());
    const auto wanted =
        reference_forward(*weights, at::tensor(tokens).narrow(0, 0, fed).unsqueeze(0));
    const auto rows = features.narrow(0, record.first_row, fed).to(at::kFloat);
    EXPECT_TRUE(at::allclose(rows.narrow(1, 32, 32), wanted.layers[1][0], 0.01, 0.01));
    EXPECT_TRUE(at::allclose(rows.narrow(1, 64, 32), wanted.hidden[0], 0.01, 0.01));
    const auto logits = wanted.logits[0].narrow(0, record.answer - 1, fed + 1 - record.answer);
    EXPECT_TRUE(at::allclose(at::tensor(record.log_sums), logits.logsumexp(-1), 1e-4, 1e-4));
    if (record.temperature == 0.0) {
      ++greedy;
      EXPECT_TRUE(at::equal(logits.argmax(-1),
                            at::tensor(tokens).narrow(0, record.answer, logits.size(0))));
    }
  }
  EXPECT_GT(greedy, 0);
}

TEST_F(AnswersTest, OwnPromptsBeginWithTheOpenings) {
  const AnswerPlan made = plan("answers", {"own_prompts=1", "openings=[The king, What news]"});
  make_answers(made, {});
  const auto tokenizer = load_tokenizer(target());
  const auto frame = static_cast<int64_t>(chat_frame(*tokenizer).opening.size());
  std::map<std::string, int64_t> beginnings;
  for (const AnswerRecord& record : read_answer_records(made.out)) {
    if (!record.tokens.empty()) {
      const TokenSpan user = TokenSpan(record.tokens).subspan(static_cast<size_t>(frame));
      ++beginnings[tokenizer->decode(user).substr(0, 8)];
    }
  }
  EXPECT_THAT(beginnings,
              testing::UnorderedElementsAre(testing::Key("The king"), testing::Key("What new")));
}

TEST_F(AnswersTest, ABaseModelContinuesPiecesOfTheTexts) {
  const AnswerPlan made = plan("answers", {"chat=false"});
  make_answers(made);
  const auto tokenizer = load_tokenizer(target());
  const std::string text = read_file(shared->path() / "text.txt");
  const auto records = read_answer_records(made.out);
  ASSERT_EQ(records.size(), 12U);
  for (const AnswerRecord& record : records) {
    const TokenSpan prompt = TokenSpan(record.tokens).first(static_cast<size_t>(record.answer));
    EXPECT_EQ(prompt.front(), tokenizer->bos());
    EXPECT_THAT(text, HasSubstr(tokenizer->decode(prompt.subspan(1))));
    EXPECT_GT(prompt.size(), 5U);
  }
  EXPECT_THAT(error_message<ConfigError>([&] {
                plan("a", {"chat=false", "own_prompts=0.5", "max_length=5000"});
              }),
              testing::AllOf(HasSubstr("writes no user turns"), HasSubstr("takes (512)")));
}

TEST_F(AnswersTest, AnInterruptedRunGoesOnToTheSameBits) {
  make_answers(plan("whole"), {});
  const AnswerPlan made = plan("answers", {"prompts=5", "rows=2"});
  make_answers(made, {});
  // A kill leaves half a line, and features that belong to no line.
  std::ofstream(made.out / "answers.jsonl", std::ios::app) << R"({"prompt": 5, "own")";
  std::ofstream(made.out / "features.bf16", std::ios::app) << "rest of an answer";
  make_answers(plan("answers"), {});
  EXPECT_EQ(comparable(made.out), comparable(folder_.path() / "whole"));
  EXPECT_THAT(error_message<Error>([&] { make_answers(plan("answers", {"seed=2"}), {}); }),
              HasSubstr("other settings"));
}

TEST_F(AnswersTest, ASecondWriterIsRefused) {
  const AnswerPlan made = plan("answers", {"prompts=1"});
  make_answers(made, {});
  const AnswerWriter writer(made.out, read_answer_identity(made.out), int64_t{3} * 32);
  EXPECT_THAT(error_message<Error>([&] { make_answers(made, {}); }),
              HasSubstr("another process is writing"));
}

TEST_F(AnswersTest, SuppressedTokensHaveNoMass) {
  const std::vector<int64_t> never = {7, 300};
  fs::copy(target(), folder_.path() / "llama");
  folder_.write("llama/generation_config.json", R"({"suppress_tokens": [7, 300]})");
  make_answers(plan("answers", {"target.weights=" + (folder_.path() / "llama").string()}), {});
  const auto weights = load_model_tensors(folder_.path() / "llama", {.dtype = at::kFloat});
  const AnswerSet answers = answer_set(*weights);
  const TargetBatch batch = answers.batch({&answers.train().front()});
  const auto all = guessed_distribution(batch, guessed_places(batch, 1), {}, *weights);
  const auto columns = at::tensor(never, at::kLong);
  EXPECT_EQ(all.index_select(1, columns).max().item<double>(), 0.0);
  EXPECT_GT(all.index_fill(1, columns, 1.0).min().item<double>(), 0.0);
  EXPECT_TRUE(at::allclose(all.sum(-1), at::ones({all.size(0)}), 0.05, 0.05));
  const auto some = at::tensor({6, 7, 8}, at::kLong);
  EXPECT_TRUE(at::allclose(guessed_distribution(batch, guessed_places(batch, 1), some, *weights),
                           all.index_select(1, some)));
  EXPECT_EQ(answers.masses().index_select(0, columns).max().item<double>(), 0.0);
  const auto others = load_model_tensors(target(), {.dtype = at::kFloat});
  EXPECT_THAT(error_message<Error>([&] { answer_set(*others); }), HasSubstr("other tokens"));
}

TEST_F(AnswersTest, OnlyAnswersCountInTheLoss) {
  make_answers(plan("answers"), {});
  const auto weights = load_model_tensors(target(), {.dtype = at::kFloat});
  const AnswerSet answers = answer_set(*weights);
  const AnswerRecord& record = answers.train().front();
  const TargetBatch batch = answers.batch({&record});
  EXPECT_EQ(batch.places.min().item<int64_t>(), record.answer - 1);
  EXPECT_EQ(batch.places.numel(), static_cast<int64_t>(record.log_sums.size()));
  const auto all = guessed_distribution(batch, guessed_places(batch, 1), {}, *weights);
  EXPECT_TRUE(at::allclose(all.sum(-1), at::ones({all.size(0)}), 0.05, 0.05));
  const auto some = at::arange(0, kAnswerVocab, 3);
  EXPECT_TRUE(at::allclose(guessed_distribution(batch, guessed_places(batch, 1), some, *weights),
                           all.index_select(1, some)));
  EXPECT_TRUE(at::allclose(
      answers.masses().sum(),
      at::scalar_tensor(static_cast<double>(answers.train_tokens()), at::kDouble), 1e-4));
}

TEST_F(AnswersTest, AnEpochShowsEveryAnswerOnce) {
  make_answers(plan("answers"), {});
  const auto weights = load_model_tensors(target(), {.dtype = at::kFloat});
  const AnswerSet answers = answer_set(*weights);
  const auto count = static_cast<int64_t>(answers.train().size());
  int64_t tokens = 0;
  for (int64_t step = 0; step < (count + 1) / 2; ++step) {
    tokens += answers.batch(step, 2, 1).places.numel();
    EXPECT_TRUE(at::equal(answers.batch(step, 2, 1).tokens, answers.batch(step, 2, 1).tokens));
  }
  EXPECT_EQ(tokens, answers.train_tokens());
  EXPECT_THAT(answers.text(), HasSubstr("held out"));
}

TEST_F(AnswersTest, HeadsLearnFromThemAndResume) {
  make_answers(plan("answers"), {});
  const auto weights = load_model(target(), {.dtype = at::kFloat});
  for (const std::string type :
       {"{type: eagle3, layers: [0, 1], draft_vocab_size: 320, stored: int8}",
        "{type: eagle, draft_vocab_size: 320, stored: int8}",
        "{type: medusa, num_heads: 2, share_lm_head: true, draft_vocab_size: 320, stored: int8}"}) {
    const std::string out = type.substr(7, type.find(',') - 7);
    const std::string loss = "loss={distribution: 1.0, tokens: 0.0, depth: 2}";
    const HeadTrainConfig config = head(type, {loss}, out);
    struct Stop {};
    TrainOptions stopping;
    stopping.log = [](const std::string& line) {
      if (line.rfind("step     18", 0) == 0) {
        throw Stop();
      }
    };
    EXPECT_THROW(train_head(config, stopping), Stop);
    EXPECT_TRUE(fs::exists(config.out / "so_far" / "model.safetensors")) << "usable already";
    train_head(config, {});
    train_head(head(type, {loss}, out + "_whole"), {});
    EXPECT_EQ(read_file(config.out / "model.safetensors"),
              read_file(folder_.path() / (out + "_whole") / "model.safetensors"));
    const auto [first, last] = losses(out);
    EXPECT_LT(last, first) << out;
    EXPECT_FALSE(fs::exists(config.out / "so_far"));
    const json figures = json::parse(read_file(config.out / "training.json"))["held_out"];
    for (const auto& [kind, one] : figures.items()) {
      EXPECT_GT(one["coverage"].get<double>(), 0.9) << kind;
      EXPECT_LT(one["coverage"].get<double>(), 1.0) << kind;
    }
  }
  EXPECT_EQ(load_medusa_head(folder_.path() / "medusa", *weights).target_ids.numel(), 320);
  EXPECT_EQ(
      load_eagle_head(folder_.path() / "eagle", EagleVersion::kEagle, *weights)->target_ids.numel(),
      320);
}

TEST_F(AnswersTest, ATrainingThatIsCutInItsLastEvaluationFinishesAgain) {
  make_answers(plan("answers"), {});
  const std::vector<std::string> short_one = {"steps=3", "loss.depth=2"};  // without a checkpoint
  const HeadTrainConfig config =
      head("{type: eagle3, layers: [0, 1], draft_vocab_size: 320}", short_one);
  const auto masses = [&] {
    const fs::directory_iterator files(config.out);
    return std::count_if(begin(files), end(files), [](const fs::directory_entry& file) {
      return file.path().filename().string().rfind("masses_", 0) == 0;
    });
  };
  struct Stop {};
  TrainOptions stopping;
  stopping.log = [](const std::string& line) {
    if (line.rfind("stored weights", 0) == 0) {
      throw Stop();
    }
  };
  EXPECT_THROW(train_head(config, stopping), Stop);
  EXPECT_EQ(masses(), 1);
  EXPECT_FALSE(fs::exists(config.out / "training.json"));
  const std::string weights = read_file(config.out / "model.safetensors");
  train_head(config, {});
  EXPECT_EQ(read_file(config.out / "model.safetensors"), weights);
  EXPECT_TRUE(fs::exists(config.out / "training.json"));
  EXPECT_FALSE(fs::exists(config.out / "training.state"));
  EXPECT_EQ(masses(), 0);
}

TEST_F(AnswersTest, AdaptersForEarlyExitLearnFromThem) {
  make_answers(plan("answers"), {});
  const HeadTrainConfig config = head("{type: self, layers: 1, rank: 4}", {"loss.depth=2"}, "self");
  train_head(config, {});
  const auto [first, last] = losses("self");
  EXPECT_LT(last, first);
  EXPECT_TRUE(fs::exists(config.out / "adapter_model.safetensors"));
}

TEST_F(AnswersTest, TheDraftVocabularyHasTheMostMassAndAlwaysTheEnd) {
  make_answers(plan("answers"), {});
  const HeadTrainConfig config =
      head("{type: eagle3, layers: [0], draft_vocab_size: 60}", {"steps=1"});
  train_head(config, {});
  const auto weights = load_model_tensors(target(), {.dtype = at::kFloat});
  const auto ids = load_eagle_head(config.out, EagleVersion::kEagle3, *weights)->target_ids;
  const AnswerSet answers = answer_set(*weights);
  const auto inside = at::zeros({kAnswerVocab}, at::kBool).index_fill_(0, ids, true);
  EXPECT_TRUE(inside[1].item<bool>()) << "end of sequence";
  const auto masses = answers.masses();
  const double outside = masses.masked_select(inside.logical_not()).max().item<double>();
  const int64_t lighter = masses.masked_select(inside).lt(outside).sum().item<int64_t>();
  EXPECT_LE(lighter, 23) << "only the end, newlines and digits, which also are byte pieces";
}

TEST_F(AnswersTest, AnswersThatCopyFromARunAreLeftOut) {
  make_answers(plan("answers"), {});
  const auto all = require_answers({.folder = folder_.path() / "answers"}, {});
  const auto copied = std::find_if(all.begin(), all.end(), [](const AnswerRecord& record) {
    return std::ssize(record.tokens) >= record.answer + 6;
  });
  ASSERT_NE(copied, all.end());
  const std::vector<Token> run(copied->tokens.end() - 6, copied->tokens.end());
  const auto file = folder_.write("generations.jsonl", json({{"tokens", run}}).dump() + "\n");
  const auto left = [&](int64_t length) {
    const auto records = require_answers(
        {.folder = folder_.path() / "answers", .exclude = {file}, .exclude_run = length}, {});
    return records[static_cast<size_t>(copied - all.begin())];
  };
  EXPECT_EQ(left(7).tokens, copied->tokens);
  EXPECT_TRUE(left(6).tokens.empty());
  EXPECT_EQ(left(6).end, "excluded answer");
  const auto broken = folder_.write("broken.jsonl", "{\"tokens\": [1]}\n{}\n");
  EXPECT_THAT(error_message<Error>([&] { read_generated_tokens(broken); }),
              HasSubstr("broken.jsonl:2"));
  EXPECT_THAT(
      error_message<ConfigError>([&] { head("{type: eagle}", {"answers.exclude=[none.jsonl]"}); }),
      HasSubstr("none.jsonl"));
}

TEST_F(AnswersTest, MistakesAreNamed) {
  EXPECT_THAT(error_message<ConfigError>([&] {
                plan("a", {"layers=[7]", "text_tokens=[9]"});
              }),
              testing::AllOf(HasSubstr("layer 7"), HasSubstr("[fewest, most]")));
  EXPECT_THAT(error_message<Error>([&] { train_head(head("{type: eagle}"), {}); }),
              HasSubstr("specdec answers"));
  make_answers(plan("answers"), {});
  EXPECT_THAT(error_message<Error>([&] { train_head(head("{type: eagle3, layers: [0, 2]}"), {}); }),
              HasSubstr("layer 2"));
  EXPECT_THAT(
      error_message<Error>([&] { train_head(head("{type: eagle}", {"answers.prompts=40"}), {}); }),
      HasSubstr("12 of the first 40"));
  EXPECT_THAT(check_training(folder_.path() / "head.yaml", {"answers.prompts=40"}).warnings,
              testing::Contains(HasSubstr("12 of the first 40")));
  EXPECT_THAT(error_message<ConfigError>([&] { head("{type: medusa, draft_vocab_size: 9}"); }),
              HasSubstr("share_lm_head"));
}

}  // namespace
}  // namespace specdec
