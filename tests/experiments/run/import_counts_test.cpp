#include "experiments/run/import_counts.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "core/error.h"
#include "core/randomness.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr const char* kMetrics =
    "# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.\n"
    "# TYPE vllm:spec_decode_num_drafts_total counter\n"
    "vllm:spec_decode_num_drafts_total{engine=\"0\",model_name=\"m\"} 60.0\n"
    "vllm:spec_decode_num_drafts_total{engine=\"1\",model_name=\"m\"} 40.0\n"
    "vllm:spec_decode_num_drafts_created{engine=\"0\",model_name=\"m\"} 1.7e+09\n"
    "vllm:spec_decode_num_draft_tokens_total{engine=\"0\",model_name=\"m\"} 300.0\n"
    "vllm:spec_decode_num_accepted_tokens_total{engine=\"0\",model_name=\"m\"} 160.0\n"
    "vllm:spec_decode_num_accepted_tokens_per_pos_total{engine=\"0\",model_name=\"m\",position="
    "\"0\"} "
    "73.0\n"
    "vllm:spec_decode_num_accepted_tokens_per_pos_total{engine=\"0\",model_name=\"m\",position="
    "\"1\"} "
    "52\n"
    "vllm:spec_decode_num_accepted_tokens_per_pos_total{engine=\"0\",model_name=\"m\",position="
    "\"2\"} "
    "3.5e+01\n"
    "vllm:generation_tokens_total{engine=\"0\",model_name=\"m\"} 260.0\n";

TEST(ImportCountsTest, ReadsVllmsCounters) {
  const auto rows = parse_vllm_metrics(kMetrics, "metrics.txt");
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].source, "m");
  const Counts& counts = rows[0].counts;
  EXPECT_EQ(counts.drafting_steps, 100);
  EXPECT_EQ(acceptance_length(counts), 2.6);
  EXPECT_NEAR(acceptance_rate(counts).value(), 160.0 / 300.0, 1e-12);
  EXPECT_THAT(unconditional_acceptance(counts), ElementsAre(0.73, 0.52, 0.35));
  EXPECT_NEAR(conditional_acceptance(counts)[2].value(), 35.0 / 52.0, 1e-12);
  EXPECT_EQ(tokens_per_step(counts), std::nullopt) << "steps without a draft are not counted";
}

/// Our counts, written as vLLM's, are read back as they were.
TEST(ImportCountsTest, OurCountsComeBackThroughVllmsFormat) {
  CounterRandomness random(5);
  const std::vector<double> weights(5, 1.0);
  Generation generation;
  for (int i = 0; i < 200; ++i) {
    const int64_t accepted = random.draw(weights);
    generation.steps.push_back(
        {.drafted = 4, .accepted = accepted, .committed = accepted + 1, .depth = 4});
  }
  Counts ours;
  ours.add(generation);
  std::string text = fmt::format(
      "vllm:spec_decode_num_drafts {}\nvllm:spec_decode_num_draft_tokens {}\n"
      "vllm:spec_decode_num_accepted_tokens {}\n",
      ours.drafting_steps, ours.drafted, ours.accepted);
  for (size_t i = 0; i < ours.accepted_at.size(); ++i) {
    text += fmt::format("vllm:spec_decode_num_accepted_tokens_per_pos{{position=\"{}\"}} {}\n", i,
                        ours.accepted_at[i]);
  }
  const Counts read = parse_vllm_metrics(text, "m")[0].counts;
  EXPECT_EQ(read.drafting_steps, ours.drafting_steps);
  EXPECT_EQ(read.drafted, ours.drafted);
  EXPECT_EQ(read.accepted, ours.accepted);
  EXPECT_EQ(read.drafted_at, ours.drafted_at);
  EXPECT_EQ(read.reached_at, ours.reached_at);
  EXPECT_EQ(read.accepted_at, ours.accepted_at);
}

TEST(ImportCountsTest, BadMetricsAreRefused) {
  const auto changed = [](const std::string& from, const std::string& to) {
    std::string text = kMetrics;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "holds no counter that begins with vllm:spec_decode_num_"},
      {changed("draft_tokens_total{", "draft_things_total{"),
       "vllm:spec_decode_num_draft_tokens_total of model 'm' is missing"},
      {changed(" 60.0", " many"), "m.txt:3: the counter's value is not a count"},
      {changed(" 60.0", " 60.5"), "m.txt:3: "},
      {changed(" 60.0", " -1"), "m.txt:3: "},
      {changed(" 60.0", " 1e99"), "m.txt:3: "},
      {changed("\"m\"} 60.0", "\"m\" 60.0"), "m.txt:3: the labels have no closing"},
      {changed("position=\"1\"", "place=\"1\""), "m.txt:9: the label 'position'"},
      {changed("position=\"1\"", "position=\"100000000\""), "above 10000"},
      {std::string(kMetrics) +
           "vllm:spec_decode_num_draft_tokens_total{engine=\"0\",model_name=" + "\"m\"} 300.0\n",
       "m.txt:12: this counter stands twice"},
      {changed(" 73.0", " 74.0"), "accepted 160 tokens, but 161 by position"},
      {changed(" 300.0", " 30.0"), "accepted 160 of 30 drafted tokens"},
  };
  for (const auto& [text, message] : cases) {
    EXPECT_THAT([&text = text] { (void)parse_vllm_metrics(text, "m.txt"); },
                ThrowsMessage<Error>(HasSubstr(message)));
  }
}

constexpr const char* kServerLog =
    "0.06 I slot print_timing: id  1 | task 0 | prompt eval time =     300.11 ms /    20 tokens (  "
    " 15.01 ms per token,    66.64 tokens per second)\n"
    "0.06 I slot print_timing: id  1 | task 0 |        eval time =    2296.72 ms /   256 tokens (  "
    " "
    " 8.97 ms per token,   111.46 tokens per second)\n"
    "0.06 I slot print_timing: id  1 | task 0 | draft acceptance = 0.64479 (  167 accepted /   259 "
    "generated), mean acceptance length =  2.92, acceptance rate per position = (0.805, 0.632, "
    "0.483)\n"
    "0.06 I statistics     draft-eagle3: #calls(b,g,a) =    1     87     87, #gen drafts =     50, "
    "#acc drafts =    40, #gen tokens =    150, #acc tokens =   90\n"
    "0.07 I statistics     draft-eagle3: #calls(b,g,a) =    1     87     87, #gen drafts =     87, "
    "#acc drafts =    70, #gen tokens =    259, #acc tokens =   167, #mean acc len = 2.92, #acc "
    "rate/pos = (0.805, 0.632, 0.483), dur(b,g,a) = 0.005, 325.555, 0.114 ms\n";

// What llama-speculative prints at its end.
constexpr const char* kExampleLog =
    "encoded    9 tokens in    0.250 seconds, speed:   36.000 t/s\n"
    "decoded  101 tokens in    2.000 seconds, speed:   50.500 t/s\n"
    "\n"
    "n_draft   = 8\n"
    "n_predict = 101\n"
    "n_drafted = 120\n"
    "n_accept  = 80\n"
    "accept    = 66.667%\n"
    "\n"
    "draft:\n"
    "\n"
    "llama_perf_context_print: prompt eval time =     90.00 ms /   30 tokens (    3.00 ms per "
    "token)\n"
    "llama_perf_context_print:        eval time =    400.00 ms /  110 runs   (    3.64 ms per "
    "token)\n"
    "\n"
    "target:\n"
    "\n"
    "llama_perf_context_print: prompt eval time =   1500.00 ms /  230 tokens (    6.52 ms per "
    "token)\n"
    "llama_perf_context_print:        eval time =     40.00 ms /    1 runs   (   40.00 ms per "
    "token)\n";

TEST(ImportCountsTest, TheExamplesOwnClockTimesItsTokens) {
  const auto rows = parse_llama_log(kExampleLog, "l.log");
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].counts.drafted, 120);
  EXPECT_EQ(rows[0].counts.accepted, 80);
  EXPECT_EQ(rows[0].counts.generations, 1);
  EXPECT_EQ(rows[0].counts.tokens, 101);
  EXPECT_NEAR(rows[0].counts.unsplit_seconds, 2.25, 1e-12);
  // Without it, the timings of two contexts give no speed.
  const std::string text = kExampleLog;
  const auto untimed = parse_llama_log(text.substr(text.find("n_draft ")), "l.log");
  EXPECT_EQ(untimed.at(0).counts.tokens, 0);
  EXPECT_EQ(untimed[0].counts.unsplit_seconds, 0.0);
  EXPECT_EQ(total_tokens_per_second(untimed[0].counts), std::nullopt);
}

TEST(ImportCountsTest, ReadsTheLastStatisticsOfLlamaCpp) {
  const auto rows = parse_llama_log(kServerLog, "llama.log");
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].source, "draft-eagle3");
  const Counts& counts = rows[0].counts;
  EXPECT_EQ(counts.drafting_steps, 87);
  EXPECT_EQ(counts.drafted, 259);
  EXPECT_EQ(counts.accepted, 167);
  EXPECT_THAT(counts.accepted_at, ElementsAre(70, 55, 42));
  EXPECT_NEAR(acceptance_length(counts).value(), 2.92, 0.005) << "as it prints itself";
  EXPECT_EQ(counts.tokens, 256);
  EXPECT_NEAR(counts.unsplit_seconds, 2.59683, 1e-9);
}

TEST(ImportCountsTest, ReadsRequestsAndTheExample) {
  const auto requests = parse_llama_log(
      "slot | draft acceptance rate = 0.50000 (  10 accepted /   20 generated)\n"
      "slot | draft acceptance rate = 0.25000 (   5 accepted /   20 generated)\n",
      "a.log");
  ASSERT_EQ(requests.size(), 1U);
  EXPECT_EQ(requests[0].counts.accepted, 15);
  EXPECT_EQ(requests[0].counts.drafted, 40);
  EXPECT_EQ(acceptance_length(requests[0].counts), std::nullopt);
  const auto example = parse_llama_log(
      "n_draft   = 16\nn_predict = 128\nn_drafted = 200\nn_accept  = 100\naccept    = 50.000%\n",
      "a.log");
  EXPECT_EQ(example[0].counts.drafted, 200);
  EXPECT_EQ(example[0].counts.accepted, 100);
  const auto chained = parse_llama_log(
      "I statistics ngram-mod: #calls(b,g,a) = 11 800 4, #gen drafts = 4, #acc drafts = 4, #gen "
      "tokens = 256, #acc tokens = 47, dur(b,g,a) = 0.340, 2.107, 1.102 ms\n"
      "I statistics draft-mtp: #calls(b,g,a) = 11 796 796, #gen drafts = 796, #acc drafts = 694, "
      "#gen tokens = 1585, #acc tokens = 1252, dur(b,g,a) = 0.008, 33271.024, 1.264 ms\n",
      "a.log");
  ASSERT_EQ(chained.size(), 2U);
  EXPECT_EQ(chained[1].source, "draft-mtp");
  EXPECT_EQ(chained[1].counts.drafting_steps, 796);
}

TEST(ImportCountsTest, BadLogsAreRefused) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"nothing\n", "no line of llama.cpp's speculation"},
      {"n_drafted = 200\n", "no line of llama.cpp's speculation"},
      {"\nstatistics x: #gen tokens = 5, #acc tokens = 3\n", "l.log:2: #gen drafts is not a count"},
      {"statistics x: #gen drafts = 1, #gen tokens = 5, #acc tokens = 6\n",
       "l.log:1: 6 of 5 drafted tokens accepted"},
      {"draft acceptance = 0.5 (  5 accepted /  4 generated)\n", "l.log:1: 5 of 4 drafted tokens"},
      {"n_drafted = 4\nn_accept = 5\n", "l.log:2: 5 of 4 drafted tokens accepted"},
      {"n_drafted = 0x10\nn_accept = 5\n", "no line of llama.cpp's speculation"},
      {"n_drafted = 1.5.5\nn_accept = 1\n", "no line of llama.cpp's speculation"},
      {"decoded 999999999999999999999 tokens in 1.0 seconds\n", "l.log:1: the number of tokens"},
      {"decoded -1 tokens in 1.0 seconds\n", "l.log:1: the number of tokens is not a count"},
      {"decoded 5 tokens in -1.0 seconds\n", "l.log:1: -1 is no time in seconds"},
      {"eval time = -5 ms / 5 tokens\n", "l.log:1: -0.005 is no time in seconds"},
      {"eval time = 1 ms / 1.5 tokens\n", "l.log:1: the number of tokens is not a count"},
      {"draft acceptance = 0.5\n", "l.log:1: the number of accepted tokens"},
      {"draft acceptance = 0.5 (", "l.log:1: the number of accepted tokens"},
      {"draft acceptance = 0.5 (  3 accepted", "l.log:1: the number of generated tokens"},
  };
  for (const auto& [text, message] : cases) {
    EXPECT_THAT([&text = text] { (void)parse_llama_log(text, "l.log"); },
                ThrowsMessage<Error>(HasSubstr(message)))
        << text;
  }
}

TEST(ImportCountsTest, TellsFormatsApart) {
  const TemporaryFolder folder;
  EXPECT_EQ(import_counts(folder.write("a", kMetrics))[0].source, "m");
  EXPECT_EQ(import_counts(folder.write("b", kServerLog))[0].source, "draft-eagle3");
  const auto answers = import_counts(folder.write(
      "c",
      "{\"question_id\": 1, \"category\": \"qa\", \"model_id\": \"eagle\", \"choices\": "
      "[{\"index\": "
      "0, \"turns\": [\"x\"], \"decoding_steps\": [2], \"new_tokens\": [6], \"wall_time\": [0.5], "
      "\"accept_lengths\": [3, 2]}]}\n"));
  EXPECT_EQ(answers[0].source, "eagle");
  EXPECT_EQ(tokens_per_step(answers[0].counts), 2.5);
  EXPECT_EQ(total_tokens_per_second(answers[0].counts), 12.0);
  const auto unknown = folder.write("d", "hello\n");
  EXPECT_THAT([&] { (void)import_counts(unknown); },
              ThrowsMessage<Error>(HasSubstr("is none of what can be imported")));
  EXPECT_THROW((void)import_counts(folder.path() / "none"), Error);
  EXPECT_THROW((void)import_counts(folder.path()), Error) << "no run folder";
}

}  // namespace
}  // namespace specdec
