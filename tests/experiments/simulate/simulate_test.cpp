#include "experiments/simulate/simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "decoders/autoregressive.h"
#include "decoders/drafters/draft_model.h"
#include "decoders/shapes/draft_length.h"
#include "decoders/speculative.h"
#include "decoders/verifiers/rejection.h"
#include "experiments/simulate/profile.h"
#include "tests/support/sequence_distribution.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::ThrowsMessage;

constexpr int64_t kSimulateVocab = 3;

LogitTable target_table() { return random_table(kSimulateVocab, 1); }
LogitTable draft_table() {
  return mixed_table(target_table(), random_table(kSimulateVocab, 2), 0.6);
}

struct Bench {
  explicit Bench(bool sample, int64_t length = 3)
      : target(kSimulateVocab, target_table()),
        strategy(target,
                 std::make_unique<DraftModelDrafter>(
                     std::make_unique<FakeModel>(kSimulateVocab, draft_table()),
                     DraftModelOptions{.sample = sample}),
                 std::make_unique<RejectionVerifier>(),
                 std::make_unique<FixedDraftLength>(length)) {}

  FakeModel target;
  SpeculativeDecoding strategy;
};

TraceRecord record_of(DraftTrace trace) {
  TraceRecord record;
  record.verifier = "rejection";
  record.prompt_tokens = 2;
  record.trace = std::move(trace);
  return record;
}

/// Expected sums over every text that the target may draw, by one trace of each.
ReplayCounts expected_replay(const Task& task, bool sample, const ReplayShape& shape) {
  Bench bench(sample);
  AutoregressiveDecoding plain(bench.target);
  ReplayCounts mean;
  for (const auto& [text, probability] : exact_distribution(plain, task)) {
    CounterRandomness unused(1);
    ReplayCounts counts;
    replay(record_of(bench.strategy.trace(task.request(unused), text, {.depth = 4}).value()), shape,
           nullptr, counts);
    mean.steps += probability * counts.steps;
    mean.committed += probability * counts.committed;
    mean.drafted += probability * counts.drafted;
    mean.accepted += probability * counts.accepted;
  }
  return mean;
}

/// Mean counts, by enumerating all that can happen in speculation itself.
ReplayCounts enumerated(const Task& task, bool sample, int64_t length) {
  Bench bench(sample, length);
  ReplayCounts mean;
  EnumeratingRandomness random;
  do {
    const Generation generation = bench.strategy.generate(task.request(random));
    Counts counts;
    counts.add(generation);
    mean.steps += random.probability() * static_cast<double>(counts.steps);
    mean.committed += random.probability() * static_cast<double>(counts.committed);
    mean.drafted += random.probability() * static_cast<double>(counts.drafted);
    mean.accepted += random.probability() * static_cast<double>(counts.accepted);
  } while (random.next_outcome());
  return mean;
}

TEST(SimulateTest, EqualsTheTrueExpectation) {
  const Task task{
      .prompt = {0, 2}, .sampling = {.temperature = 1.0}, .stop = {.max_new_tokens = 5}};
  for (const bool sample : {true, false}) {
    for (const int64_t length : {1, 2, 3}) {
      const auto replayed = expected_replay(task, sample, chain_shape(length));
      const auto truth = enumerated(task, sample, length);
      EXPECT_NEAR(replayed.steps, truth.steps, 1e-10) << length << sample;
      EXPECT_NEAR(replayed.committed, truth.committed, 1e-10) << length << sample;
      EXPECT_NEAR(replayed.drafted, truth.drafted, 1e-10) << length << sample;
      EXPECT_NEAR(replayed.accepted, truth.accepted, 1e-10) << length << sample;
    }
  }
}

TEST(SimulateTest, EqualsTheTrueExpectationWithStops) {
  const Task task{.prompt = {0, 2},
                  .sampling = {.temperature = 1.3, .repetition_penalty = 1.2},
                  .stop = {.max_new_tokens = 5, .stop_ids = {1}}};
  for (const int64_t length : {1, 2}) {
    const auto replayed = expected_replay(task, true, chain_shape(length));
    const auto truth = enumerated(task, true, length);
    EXPECT_NEAR(replayed.steps, truth.steps, 1e-10);
    EXPECT_NEAR(replayed.committed, truth.committed, 1e-10);
  }
}

/// Greedy: a replay has no expectation to take, it gives the very steps.
TEST(SimulateTest, GreedyReplayCountsTheRealSteps) {
  const Task task{.prompt = {0, 2}, .stop = {.max_new_tokens = 40}};
  CounterRandomness random(1);
  Bench recorded(true);
  const auto text = AutoregressiveDecoding(recorded.target).generate(task.request(random)).tokens;
  const auto record = record_of(
      recorded.strategy.trace(task.request(random), text, {.depth = 6, .width = 2}).value());
  for (const int64_t length : {1, 2, 4, 6}) {
    Bench real(true, length);
    Counts counts;
    counts.add(real.strategy.generate(task.request(random)));
    ReplayCounts sums;
    replay(record, chain_shape(length), nullptr, sums);
    EXPECT_EQ(sums.steps, static_cast<double>(counts.steps)) << length;
    EXPECT_EQ(sums.drafted, static_cast<double>(counts.drafted)) << length;
    EXPECT_EQ(sums.accepted, static_cast<double>(counts.accepted)) << length;
    EXPECT_EQ(sums.drafting_steps, static_cast<double>(counts.drafting_steps)) << length;
    ASSERT_LE(sums.accepted_at.size(), counts.accepted_at.size());
    for (size_t i = 0; i < sums.accepted_at.size(); ++i) {
      EXPECT_EQ(sums.accepted_at[i], static_cast<double>(counts.accepted_at[i]));
    }
  }
}

TraceRecord ranks(const std::vector<std::vector<int64_t>>& positions, int64_t width) {
  DraftTrace trace{.depth = 3, .width = width};
  for (const auto& position : positions) {
    trace.positions.push_back({.drafted = 3});
    for (const int64_t rank : position) {
      trace.positions.back().depths.push_back({.rank = rank, .p = 1.0, .overlap = 1.0});
    }
  }
  return record_of(std::move(trace));
}

TEST(SimulateTest, TreesFollowRanks) {
  // From token 0 the text is second best, then best: two tokens of the tree, and the bonus token.
  const auto record = ranks({{1, 0, 1}, {0, -1}, {1, 1}, {0}}, 2);
  ReplayCounts sums;
  replay(record, parse_tree_shape("[[0],[1],[1,0]]"), nullptr, sums);
  EXPECT_EQ(sums.committed, 4.0);
  EXPECT_EQ(sums.steps, 2.0);  // 2 + 1 tokens, then 1
  EXPECT_EQ(sums.drafted, 6.0);
  EXPECT_EQ(sums.accepted, 3.0);
  ReplayCounts chain;
  replay(record, chain_shape(2), nullptr, chain);
  EXPECT_EQ(chain.steps, 3.0);
}

TEST(SimulateTest, RefusesWhatTheRecordingCannotTell) {
  const auto record = ranks({{0, 1}}, 2);
  EXPECT_EQ(replay_refusal(record, chain_shape(3)), "");
  EXPECT_THAT(replay_refusal(record, chain_shape(4)),
              HasSubstr("record again with trace.depth: 4"));
  EXPECT_EQ(replay_refusal(record, parse_tree_shape("[[0],[1]]")), "");
  EXPECT_THAT(replay_refusal(record, parse_tree_shape("[[0],[2]]")),
              HasSubstr("record again with trace.width: 3"));
  // A drafter that retrieves has one choice at any width: recording again would not help.
  auto retrieved = ranks({{0, -1}}, 1);
  retrieved.key.prompt_id = "p7";
  const auto tree = parse_tree_shape("[[0],[1]]");
  EXPECT_THAT(replay_refusal(retrieved, tree), HasSubstr("record again with trace.width: 2"));
  EXPECT_THAT(replay_refusal(retrieved, tree, 1), HasSubstr("record again with trace.width: 2"));
  EXPECT_THAT(replay_refusal(retrieved, tree, 2),
              AllOf(HasSubstr("on prompt p7 its drafter proposed tokens by itself"),
                    Not(HasSubstr("record again"))));
  EXPECT_EQ(replay_refusal(retrieved, chain_shape(1), 2), "");
  auto drawn = record;
  drawn.trace.drawn = true;
  EXPECT_THAT(replay_refusal(drawn, parse_tree_shape("[[0],[1]]")), HasSubstr("sample: false"));
  auto block = record;
  block.verifier = "block";
  EXPECT_EQ(replay_refusal(block, chain_shape(2)), "") << "greedy: all lossless verifiers agree";
  block.trace.positions[0].depths[0].p = 0.5;
  EXPECT_THAT(replay_refusal(block, chain_shape(2)), HasSubstr("'block'"));
}

TEST(SimulateTest, TreesAreReadStrictly) {
  const auto tree = parse_tree_shape("[[0,0],[0],[1]]");
  EXPECT_EQ(tree.depth, 2);
  EXPECT_THAT(tree.tree, ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(0, 0)));
  for (const auto& [text, message] : std::vector<std::pair<std::string, std::string>>{
           {"[[0],[0]]", "named twice"},
           {"[[0,0]]", "the node above [0,0] is missing"},
           {"[[-1]]", "negative rank"},
           {"[[]]", "a path is empty"},
           {"[]", "no nodes"},
           {"[0]", "no list of lists"},
           {"x", "no list of lists"}}) {
    EXPECT_THAT([&text = text] { (void)parse_tree_shape(text); },
                ThrowsMessage<ConfigError>(HasSubstr(message)))
        << text;
  }
  EXPECT_THROW((void)chain_shape(0), ConfigError);
}

TEST(SimulateTest, TimesAddUp) {
  const auto record = ranks({{0, 0}, {0, -1}, {0, 0}, {0}}, 1);
  StepCosts costs;
  costs.verify.points = {{.new_tokens = 1, .context = 16, .seconds = 1.0},
                         {.new_tokens = 3, .context = 16, .seconds = 2.0}};
  costs.draft = {{0, 0.0}, {2, 0.5}};
  costs.other = {{1, 0.1}, {3, 0.2}};
  ReplayCounts sums;
  replay(record, chain_shape(2), &costs, sums);
  EXPECT_EQ(sums.steps, 2.0);  // tokens 1 to 3, then 4
  EXPECT_NEAR(sums.draft_seconds, 1.0, 1e-12);
  EXPECT_NEAR(sums.verify_seconds, 4.0, 1e-12);
  EXPECT_NEAR(sums.other_seconds, 0.4, 1e-12);
  EXPECT_NEAR(sums.plain_seconds, 4.4, 1e-12);
  EXPECT_NEAR(costs.draft_seconds(1), 0.25, 1e-12);
  EXPECT_NEAR(costs.draft_seconds(4), 1.0, 1e-12) << "linear beyond the last";
  set_draft_cost(costs, 0.5);
  EXPECT_NEAR(costs.draft_seconds(2), 1.0, 1e-12);
}

TEST(SimulateTest, OverlapsAreMeansOverPositions) {
  auto record = ranks({{0, 0}, {0}}, 1);
  record.trace.positions[0].depths[0].overlap = 0.5;
  EXPECT_THAT(mean_overlaps(std::vector<TraceRecord>{record}), ElementsAre(0.75, 1.0));
}

GenerationRecord timed(const std::string& strategy, int64_t drafted, double verify) {
  GenerationRecord record;
  record.key.strategy = strategy;
  record.prompt_tokens = 16;
  for (int i = 0; i < 30; ++i) {
    record.generation.steps.push_back({.drafted = drafted,
                                       .accepted = 0,
                                       .committed = 1,
                                       .depth = drafted,
                                       .draft_seconds = 0.25 * static_cast<double>(drafted),
                                       .verify_seconds = verify,
                                       .other_seconds = 0.1});
  }
  return record;
}

TEST(SimulateTest, TheRunsOwnStepsScaleItsCurve) {
  CostCurve curve;
  curve.points = {{.new_tokens = 1, .context = 16, .seconds = 1.0},
                  {.new_tokens = 3, .context = 16, .seconds = 2.0},
                  {.new_tokens = 5, .context = 16, .seconds = 3.0}};
  const std::vector<GenerationRecord> records = {timed("plain", 0, 1.1), timed("draft", 4, 4.5)};
  const StepCosts costs = costs_of(curve, records, "draft", "");
  EXPECT_NEAR(costs.verify.seconds(1, 16), 1.1, 1e-12);
  EXPECT_NEAR(costs.verify.seconds(5, 16), 4.5, 1e-12);
  EXPECT_NEAR(costs.verify.seconds(3, 16), 2.0 * 1.3, 1e-12) << "half way between the factors";
  EXPECT_NEAR(costs.draft_seconds(2), 0.5, 1e-12);
  EXPECT_NEAR(costs.other_seconds(3), 0.1, 1e-12);
  EXPECT_THROW((void)costs_of(curve, records, "none", ""), Error);
  EXPECT_THROW((void)costs_of(curve, records, "draft", "draft_length=4"), Error);
  const std::vector<GenerationRecord> no_plain = {timed("draft", 4, 4.5)};
  EXPECT_THROW((void)costs_of(curve, no_plain, "draft", ""), Error);
}

TEST(SimulateTest, NeitherHiccupsNorRareStepsScaleTheCurve) {
  CostCurve curve;
  curve.points = {{.new_tokens = 1, .context = 16, .seconds = 1.0},
                  {.new_tokens = 3, .context = 16, .seconds = 2.0},
                  {.new_tokens = 5, .context = 16, .seconds = 3.0}};
  std::vector<GenerationRecord> records = {timed("plain", 0, 1.1)};
  for (int i = 0; i < 20; ++i) {
    records.push_back(timed("draft", 4, 3.3));
    records.back().generation.steps[9].verify_seconds = 100.0;
    records.back().generation.steps[9].draft_seconds = 100.0;
  }
  records.push_back(timed("draft", 2, 8.0));  // 30 steps of three tokens, as at generations' ends
  const StepCosts costs = costs_of(curve, records, "draft", "");
  EXPECT_NEAR(costs.verify.seconds(5, 16), 3.3, 1e-12);
  EXPECT_NEAR(costs.verify.seconds(3, 16), 2.2, 1e-12);
  EXPECT_NEAR(costs.draft_seconds(4), 1.0, 1e-12);
}

// A draft costs 0.2 before its first token and 0.1 a token; few were shorter than eight.
TEST(SimulateTest, ShortDraftsAreNotAShareOfLongOnes) {
  CostCurve curve;
  curve.points = {{.new_tokens = 1, .context = 16, .seconds = 1.0}};
  std::vector<GenerationRecord> records = {timed("plain", 0, 1.0), timed("draft", 8, 1.0)};
  for (int64_t depth = 1; depth <= 8; ++depth) {
    records.push_back(timed("draft", depth, 1.0));
    records.back().generation.steps.resize(4);
  }
  for (GenerationRecord& record : std::span(records).subspan(1)) {
    for (StepStatistics& step : record.generation.steps) {
      step.draft_seconds = 0.2 + 0.1 * static_cast<double>(step.depth);
    }
  }
  const StepCosts costs = costs_of(curve, records, "draft", "");
  for (int64_t depth = 1; depth <= 8; ++depth) {
    EXPECT_NEAR(costs.draft_seconds(depth), 0.2 + 0.1 * static_cast<double>(depth), 1e-12);
  }
}

TEST(SimulateTest, AGenerationsFirstDraftReadsThePrompt) {
  CostCurve curve;
  curve.points = {{.new_tokens = 1, .context = 16, .seconds = 1.0}};
  std::vector<GenerationRecord> records = {timed("plain", 0, 1.0), timed("draft", 2, 1.0)};
  records[1].generation.steps.front().draft_seconds += 1.6;
  const StepCosts costs = costs_of(curve, records, "draft", "");
  EXPECT_NEAR(costs.draft_seconds(2), 0.5, 1e-12);
  EXPECT_NEAR(costs.prompt_token, 0.1, 1e-12);
  auto record = ranks({{0, 0}, {0}}, 1);
  record.prompt_tokens = 7;
  ReplayCounts without;
  ReplayCounts with;
  StepCosts free = costs;
  free.prompt_token = 0.0;
  replay(record, chain_shape(2), &free, without);
  replay(record, chain_shape(2), &costs, with);
  EXPECT_NEAR(with.draft_seconds - without.draft_seconds, 0.7, 1e-12);
}

Profile some_profile() {
  Profile profile{.model = "m", .machine = "a, b", .target = {}, .plain = {}, .drafters = {}};
  profile.target.points = {
      {.new_tokens = 1, .context = 16, .seconds = 0.5, .low = 0.25, .high = 0.75}};
  profile.reads = {.weights = 1000, .cache = {{16, 32}}};
  const Spread spread{.median = 0.5, .low = 0.25, .high = 1.0};
  profile.plain = {.drafted = 0, .steps = 9, .draft = {}, .verify = spread, .other = spread};
  profile.drafters = {
      {"d",
       "{type: d}",
       {{.drafted = 2, .steps = 7, .draft = spread, .verify = spread, .other = {}}}}};
  return profile;
}

TEST(SimulateTest, ProfilesAreReadBack) {
  const TemporaryFolder folder;
  const auto file = folder.write("p.json", write_profile(some_profile()));
  const Profile read = read_profile(file);
  EXPECT_EQ(write_profile(read), write_profile(some_profile()));
  EXPECT_EQ(read.reads.cache.at(16), 32);
  const StepCosts costs = costs_of(read, "");
  EXPECT_EQ(costs.verify.seconds(1, 16), 0.5);
  EXPECT_EQ(costs.draft_seconds(2), 0.5);
  EXPECT_EQ(costs.draft_seconds(1), 0.25);
  EXPECT_THAT([&] { (void)costs_of(read, "e"); },
              ThrowsMessage<ConfigError>(HasSubstr("name one with --drafter")));
  Profile by_layer = some_profile();
  by_layer.drafters.clear();
  StepCosts given = costs_of(by_layer, "");
  EXPECT_TRUE(given.draft.empty());
  set_draft_cost(given, 0.5);
  EXPECT_EQ(given.draft_seconds(2), 0.5);
  EXPECT_EQ(given.other_seconds(1), 0.5);
}

TEST(SimulateTest, BadProfilesAreRefused) {
  const TemporaryFolder folder;
  const std::string good = write_profile(some_profile());
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"specdec profile 1", "something else"},
           {"\"target\"", "\"goal\""},
           {"\"new_tokens\": 1", "\"new_tokens\": 0"},
           {"\"new_tokens\": 1", "\"new_tokens\": \"1\""},
           {"\"new_tokens\": 1", "\"new_tokens\": 1.5"},
           {"\"new_tokens\": 1", "\"new_tokens\": 1e30"},
           {"0.25,", "9.0,"},
           {"\"lengths\"", "\"length\""}}) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    const auto file = folder.write("p.json", text);
    EXPECT_THAT([&] { (void)read_profile(file); },
                ThrowsMessage<Error>(HasSubstr("p.json: is no profile")))
        << to;
  }
  EXPECT_THROW((void)read_profile(folder.write("p.json", "{")), Error);
  EXPECT_THAT([&] { (void)read_profile(folder.write("p.json", "[]")); },
              ThrowsMessage<Error>(HasSubstr("it must be an object, but is a list")));
  EXPECT_THROW((void)read_profile(folder.path() / "none.json"), Error);
}

TEST(SimulateTest, TraceLinesAreReadBack) {
  TraceRecord record = ranks({{0, -1}, {}}, 2);
  record.key = {.sweep_point = "x=1", .strategy = "s", .prompt_id = "p/2", .repeat = 3};
  record.category = "c";
  record.trace.drawn = true;
  record.trace.positions[0].depths[0].q = 1.0 / 3.0;
  const TemporaryFolder folder;
  const auto line = write_trace_line(record);
  // The torn end of a killed process is not read.
  const auto read = read_traces(folder.write("t.jsonl", line + line.substr(0, 20)));
  ASSERT_EQ(read.size(), 1U);
  EXPECT_EQ(read[0].key, record.key);
  EXPECT_EQ(read[0].verifier, "rejection");
  ASSERT_EQ(read[0].trace.positions.size(), 2U);
  EXPECT_EQ(read[0].trace.positions[1].drafted, 3);
  EXPECT_NEAR(read[0].trace.positions[0].depths[0].q, 1.0 / 3.0, 1e-9);
  EXPECT_EQ(write_trace_line(read[0]), line);
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{{"\"drafted\":3", "\"drafted\":1"},
                                                        {"\"p\":[1.0", "\"p\":[1.5"},
                                                        {"\"p\":[1.0", "\"p\":[\"x\""},
                                                        {"\"drafted\":3", "\"drafted\":3.5"},
                                                        {"\"repeat\":3", "\"repeat\":-1"},
                                                        {"\"rank\":[0", "\"rank\":[1e30"},
                                                        {"\"overlap\":[", "\"overlap\":3,\"o\":["},
                                                        {"\"verifier\"", "\"check\""}}) {
    std::string text = line;
    text.replace(text.find(from), from.size(), to);
    const auto file = folder.write("t.jsonl", line + text);
    EXPECT_THAT([&] { (void)read_traces(file); }, ThrowsMessage<Error>(HasSubstr("t.jsonl:2: ")))
        << to;
  }
}

}  // namespace
}  // namespace specdec
