#include "experiments/metrics/answers.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "core/error.h"
#include "core/randomness.h"
#include "experiments/report/spec_bench.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

GenerationRecord answer_record(const std::string& question, int64_t turn, int64_t repeat,
                               const std::vector<int64_t>& committed) {
  GenerationRecord record;
  record.key = {.sweep_point = "",
                .strategy = "s",
                .prompt_id = fmt::format("{}/{}", question, turn + 1),
                .repeat = repeat};
  record.question_id = question;
  record.turn = turn;
  record.category = "writing";
  record.text = fmt::format("t{}", turn);
  record.generation.prefill_seconds = 0.25;
  record.generation.tokens.push_back(1);
  for (const int64_t count : committed) {
    record.generation.steps.push_back(
        {.drafted = count, .accepted = count - 1, .committed = count, .depth = count});
    record.generation.tokens.resize(record.generation.tokens.size() + static_cast<size_t>(count));
    record.generation.decode_seconds += 0.5;
  }
  return record;
}

std::string lines_of(const std::vector<GenerationRecord>& records) {
  std::vector<const GenerationRecord*> pointers;
  for (const auto& one : records) {
    pointers.push_back(&one);
  }
  return write_answers(pointers, "model-s", 5.0);
}

TEST(AnswersTest, HasSpecBenchsKeys) {
  // The second turn comes before the first one, as a resumed run may have it.
  const auto text = lines_of({answer_record("81", 1, 0, {2, 3}), answer_record("81", 0, 0, {4})});
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["question_id"], 81);
  EXPECT_EQ(json["category"], "writing");
  EXPECT_EQ(json["model_id"], "model-s");
  EXPECT_EQ(json["tstamp"], 5.0);
  EXPECT_TRUE(json["answer_id"].is_string());
  const auto& choice = json["choices"].at(0);
  EXPECT_EQ(choice["index"], 0);
  EXPECT_EQ(choice["turns"], (std::vector<std::string>{"t0", "t1"}));
  EXPECT_EQ(choice["decoding_steps"], (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(choice["new_tokens"], (std::vector<int64_t>{5, 6}));
  EXPECT_EQ(choice["wall_time"], (std::vector<double>{0.75, 1.25}));
  EXPECT_EQ(choice["accept_lengths"], (std::vector<int64_t>{4, 2, 3}));
}

TEST(AnswersTest, ReadsBackWhatItWrites) {
  CounterRandomness random(3);
  const std::vector<double> weights(5, 1.0);
  std::vector<GenerationRecord> records;
  Counts expected;
  for (int question = 0; question < 20; ++question) {
    for (int64_t turn = 0; turn < 2; ++turn) {
      for (int64_t repeat = 0; repeat < 2; ++repeat) {
        std::vector<int64_t> committed;
        for (int64_t i = random.draw(weights); i >= 0; --i) {
          committed.push_back(random.draw(weights) + 1);
        }
        records.push_back(answer_record(fmt::format("q{}", question), turn, repeat, committed));
        expected.add(records.back().generation);
      }
    }
  }
  const TemporaryFolder folder;
  const auto answers = read_answers(folder.write("a.jsonl", lines_of(records)));
  ASSERT_EQ(answers.size(), 20U);
  EXPECT_EQ(answers[0].choices.size(), 2U);
  const Counts counts = answer_counts(answers);
  EXPECT_EQ(counts.generations, expected.generations);
  EXPECT_EQ(counts.tokens, expected.tokens);
  EXPECT_EQ(counts.steps, expected.steps);
  EXPECT_EQ(counts.committed, expected.committed);
  EXPECT_EQ(counts.accepted, expected.accepted);
  EXPECT_EQ(counts.steps_committing, expected.steps_committing);
  EXPECT_EQ(counts.unsplit_seconds, expected.prefill_seconds + expected.decode_seconds);
}

TEST(AnswersTest, MistakesNameFileAndLine) {
  const TemporaryFolder folder;
  const std::string good = lines_of({answer_record("1", 0, 0, {2})});
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{\"question_id\": 1\n", "not valid JSON at column "},
      {"[1]\n", "is not an object but array"},
      {"{\"model_id\": \"a\", " + good.substr(1), "the key \"model_id\" stands twice"},
      {"{}\n", "question_id"},
      {changed("\"question_id\":1", "\"question_id\":1.5"), "neither a number nor a text"},
      {changed("\"new_tokens\":[3]", "\"new_tokens\":[3,4]"), "1 turns, but 2 new_tokens"},
      {changed("\"new_tokens\":[3]", "\"new_tokens\":\"3\""),
       "'choices[0].new_tokens' must be a list, but is \"3\""},
      {changed("\"accept_lengths\":[2]", "\"accept_lengths\":[-2]"),
       "must hold only whole numbers of at least 0, but holds -2"},
      {changed("\"new_tokens\":[3]", "\"new_tokens\":[3.5]"), "but holds 3.5"},
      {changed("\"accept_lengths\":[2]", "\"accept_lengths\":[9007199254740991]"),
       "more tokens than a text has"},
      {changed(",\"accept_lengths\":[2]", ""), "the key 'choices[0].accept_lengths' is missing"},
      {changed("\"wall_time\":[0.75]", "\"wall_time\":[-1]"), "negative time"},
  };
  for (const auto& [line, message] : cases) {
    const auto file = folder.write("a.jsonl", good + line);
    try {
      (void)read_answers(file);
      ADD_FAILURE() << line;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("a.jsonl:2: ")) << line;
      EXPECT_THAT(error.what(), HasSubstr("expected an answer line of Spec-Bench")) << line;
      EXPECT_THAT(error.what(), HasSubstr(message)) << line;
    }
  }
}

TEST(AnswersTest, FileNamesCannotLeaveTheFolder) {
  EXPECT_EQ(answers_file_name("draft", ""), "draft.jsonl");
  EXPECT_EQ(answers_file_name("draft", "draft_length=4"), "draft, draft_length=4.jsonl");
  EXPECT_EQ(answers_file_name("../a/b", ""), "_._a_b.jsonl");
}

TEST(SpecBenchTest, MtBenchIsOneTask) {
  EXPECT_EQ(spec_bench_task("humanities"), "mt_bench");
  EXPECT_EQ(spec_bench_task("rag"), "rag");
}

/// Two questions: 10 tokens in 1 s, 10 tokens in 10 s. Totals have 20/11 tokens a second; the mean
/// of the questions' speeds is 5.5.
TEST(SpecBenchTest, SpeedIsTheMeanOfTheQuestionsSpeeds) {
  EXPECT_EQ(mean_question_speed({}), std::nullopt);
  const std::vector<QuestionTime> questions = {{10, 1.0}, {10, 10.0}, {3, 0.0}};
  EXPECT_NEAR(mean_question_speed(questions).value(), 5.5, 1e-12);
}

TEST(SpecBenchTest, TheBaselinesTokensAreThoseOfItsText) {
  std::vector<GenerationRecord> records;
  for (const char* strategy : {"base", "fast"}) {
    for (const char* question : {"1", "2"}) {
      auto one = answer_record(question, 0, 0, {1, 1, 1});
      one.key.strategy = strategy;
      one.category = question == std::string("1") ? "writing" : "qa";
      one.generation.prefill_seconds = 0.0;
      one.generation.decode_seconds = strategy == std::string("base") ? 2.0 : 1.0;
      one.text_tokens = 3;  // of four new ones
      records.push_back(one);
    }
  }
  const Summary summary = summarize(records);
  ASSERT_EQ(summary.rows.size(), 6U);
  const auto& base = summary.rows[0].spec_bench.value();
  EXPECT_NEAR(base.tokens_per_second, 2.0, 1e-12);
  EXPECT_NEAR(base.baseline_speed.value(), 1.5, 1e-12);
  EXPECT_NEAR(base.speedup.value(), 4.0 / 3.0, 1e-12) << "the baseline itself is not at 1";
  EXPECT_NEAR(summary.rows[1].spec_bench->speedup.value(), 4.0 / 1.5, 1e-12);
  EXPECT_NEAR(summary.rows[1].speedup->ratio, 2.0, 1e-12);
  std::ostringstream out;
  write_spec_bench(out, {}, records);
  EXPECT_THAT(out.str(), HasSubstr("| strategy | mt_bench | qa | overall |"));
  EXPECT_THAT(out.str(), HasSubstr("| fast | 2.00 | 2.00 | 2.00 |"));
  EXPECT_THAT(out.str(), HasSubstr("| fast | 2.67 | 2.67 | 2.67 |"));
}

TEST(SpecBenchTest, WithoutATokenizerTheBaselineIsNotKnown) {
  const std::vector<GenerationRecord> records = {answer_record("1", 0, 0, {2})};
  const Summary summary = summarize(records);
  EXPECT_EQ(summary.rows[0].spec_bench->baseline_speed, std::nullopt);
}

}  // namespace
}  // namespace specdec
