#include "decoders/speculative_beam.h"

#include <gmock/gmock.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "core/error.h"
#include "decoders/beam_search.h"
#include "decoders/drafters/draft_model.h"
#include "decoders/drafters/prompt_lookup.h"
#include "tests/support/letter_grammar.h"
#include "tests/support/sequence_distribution.h"
#include "tests/support/test_drafters.h"

namespace specdec {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
using Tokens = std::vector<Token>;

constexpr int64_t kBeamVocab = 11;

/// Two children of every node while there is room: the best ones of a table, in a tree of its own
/// rather than the shape's. Proposes tokens that end hypotheses, too.
class BinaryTreeDrafter final : public Drafter {
 public:
  explicit BinaryTreeDrafter(LogitTable table) : table_(std::move(table)) {}
  Draft propose(const DraftContext& context) override {
    Draft draft = Draft::root(context.committed.back());
    std::vector<Tokens> histories = {{context.committed.begin(), context.committed.end()}};
    for (int64_t node = 0; node < draft.size(); ++node) {
      std::vector<double> logits = table_(histories[static_cast<size_t>(node)]);
      for (int64_t i = 0; i < 2; ++i) {
        const auto best = static_cast<size_t>(argmax(logits));
        logits[best] = -1e9;
        if (draft.depths()[static_cast<size_t>(node)] < context.max_depth &&
            draft.proposed() < context.max_tokens && i < context.max_branches) {
          draft.add(static_cast<Token>(best), node);
          histories.push_back(histories[static_cast<size_t>(node)]);
          histories.back().push_back(static_cast<Token>(best));
        }
      }
    }
    return draft;
  }

 private:
  LogitTable table_;
};

struct BeamDrafterRow {
  std::string name;
  std::function<std::unique_ptr<Drafter>(const LogitTable& target)> make;
};

void PrintTo(const BeamDrafterRow& one, std::ostream* out) { *out << one.name; }

std::unique_ptr<Drafter> beam_draft_model(const LogitTable& table) {
  return std::make_unique<DraftModelDrafter>(std::make_unique<FakeModel>(kBeamVocab, table, 96));
}

std::vector<BeamDrafterRow> beam_drafters() {
  return {{"the_target", [](const LogitTable& target) { return beam_draft_model(target); }},
          {"similar_model",
           [](const LogitTable& target) {
             return beam_draft_model(mixed_table(target, random_table(kBeamVocab, 99), 0.3));
           }},
          {"random_model",
           [](const LogitTable&) { return beam_draft_model(random_table(kBeamVocab, 98)); }},
          {"prompt_lookup",
           [](const LogitTable&) {
             return std::make_unique<PromptLookupDrafter>(
                 PromptLookupOptions{.min_ngram = 1, .max_ngram = 3});
           }},
          {"own_tree",
           [](const LogitTable& target) {
             return std::make_unique<BinaryTreeDrafter>(
                 mixed_table(target, random_table(kBeamVocab, 97), 0.2));
           }},
          {"nothing", [](const LogitTable&) {
             return std::make_unique<ScriptedDrafter>([](TokenSpan) { return Tokens{}; });
           }}};
}

void expect_equal(const Generation& found, const Generation& expected) {
  ASSERT_EQ(found.hypotheses.size(), expected.hypotheses.size());
  for (size_t i = 0; i < found.hypotheses.size(); ++i) {
    EXPECT_EQ(found.hypotheses[i].tokens, expected.hypotheses[i].tokens) << "hypothesis " << i;
    EXPECT_EQ(found.hypotheses[i].score, expected.hypotheses[i].score) << "hypothesis " << i;
  }
  EXPECT_EQ(found.tokens, expected.tokens);
  EXPECT_EQ(found.stop_reason, expected.stop_reason);
}

int64_t beam_steps(const Generation& generation) {
  int64_t steps = 0;
  for (const StepStatistics& step : generation.steps) {
    EXPECT_EQ(step.committed, step.accepted + 1);
    EXPECT_LE(step.accepted, step.depth);
    EXPECT_LE(step.depth, step.drafted);
    steps += step.committed;
  }
  return steps;
}

class SpeculativeBeamTest : public testing::TestWithParam<BeamDrafterRow> {};

TEST_P(SpeculativeBeamTest, EqualsPlainBeamSearchBitForBit) {
  uint64_t seed = 0;
  for (const int64_t num_beams : {1, 2, 4, 6}) {
    for (const double length_penalty : {-0.5, 0.0, 1.0, 1.7}) {
      for (const EarlyStopping early :
           {EarlyStopping::kFalse, EarlyStopping::kTrue, EarlyStopping::kNever}) {
        ++seed;
        const std::vector<Tokens> ends = {{}, {4}, {4, 7}};
        Task task{{3, 1, 4, 1, 5}, {}, {.max_new_tokens = 14, .end_ids = ends[seed % 3]}};
        task.sampling.repetition_penalty = seed % 4 == 0 ? 1.2 : 1.0;
        task.sampling.logit_bias = seed % 3 == 0 ? LogitBias{{1, 1.5}, {2, -2.0}} : LogitBias{};
        const SpeculativeBeamSearch::Options options{
            .beams = {num_beams, length_penalty, early, num_beams},
            .draft_length = 1 + static_cast<int64_t>(seed % 4),
            .draft_width = 1 + static_cast<int64_t>(seed % 7)};
        const LogitTable table = random_table(kBeamVocab, seed, 1 + seed % 2, 1.2);
        // At times the context ends the search, and drafts have to fit.
        const int64_t max_length = seed % 5 == 0 ? 14 : 64;
        FakeModel plain_target(kBeamVocab, table, max_length);
        FakeModel target(kBeamVocab, table, max_length);
        CounterRandomness random(seed);
        SCOPED_TRACE(testing::Message() << "seed " << seed);
        const Generation plain =
            BeamSearchDecoding(plain_target, options.beams).generate(task.request(random));
        const Generation speculative =
            SpeculativeBeamSearch(target, GetParam().make(table), options)
                .generate(task.request(random));
        expect_equal(speculative, plain);
        EXPECT_EQ(beam_steps(speculative), static_cast<int64_t>(plain.steps.size()));
        EXPECT_EQ(target.forwards().size(), speculative.steps.size() + 1);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, SpeculativeBeamTest, testing::ValuesIn(beam_drafters()),
                         [](const auto& info) { return info.param.name; });

TEST(SpeculativeBeamTest, ADrafterThatKnowsTheTargetSavesAlmostAllForwards) {
  const LogitTable table = random_table(kBeamVocab, 7);
  FakeModel target(kBeamVocab, table, 96);
  const Task task{{3, 1}, {}, {.max_new_tokens = 21}};
  CounterRandomness random(1);
  SpeculativeBeamSearch decoding(target, beam_draft_model(table),
                                 {.beams = {}, .draft_length = 4, .draft_width = 8});
  const Generation generation = decoding.generate(task.request(random));
  // The draft's beams are the target's: each forward advances five beam steps.
  ASSERT_EQ(generation.steps.size(), 4U);
  for (const StepStatistics& step : generation.steps) {
    EXPECT_EQ(step.committed, 5);
    EXPECT_EQ(step.depth, 4);
    EXPECT_LE(step.drafted, 32) << "eight nodes a level, over all beams";
  }
}

TEST(SpeculativeBeamTest, EachRequestBeginsAnew) {
  const LogitTable table = random_table(kBeamVocab, 7);
  FakeModel target(kBeamVocab, table, 96);
  SpeculativeBeamSearch decoding(
      target, beam_draft_model(mixed_table(table, random_table(kBeamVocab, 8), 0.3)), {});
  const Task task{{3, 1}, {}, {.max_new_tokens = 21}};
  CounterRandomness random(1);
  const Generation first = decoding.generate(task.request(random));
  const Generation second = decoding.generate(task.request(random));
  expect_equal(second, first);
  EXPECT_EQ(second.steps.size(), first.steps.size());
}

TEST(SpeculativeBeamTest, EachBeamSeesItsOwnLastStep) {
  const LogitTable table = random_table(kBeamVocab, 7);
  FakeModel target(kBeamVocab, table, 96);
  std::vector<ScriptedDrafter::Shown> shown;
  const auto script = [&](TokenSpan committed) {
    const std::vector<double> logits = table(committed);
    return Tokens{static_cast<Token>(argmax(logits))};
  };
  const Task task{{3, 1}, {}, {.max_new_tokens = 12}};
  CounterRandomness random(1);
  SpeculativeBeamSearch decoding(target, std::make_unique<ScriptedDrafter>(script, &shown),
                                 {.beams = {.num_beams = 2, .num_return_sequences = 2}});
  decoding.generate(task.request(random));
  int compared = 0;
  for (const auto& call : shown) {
    if (!call.had_last_step) {
      continue;
    }
    const StepResult& step = call.last_step;
    Tokens tail;  // root, accepted tokens and the one after them end what is committed
    for (const int64_t node : step.verified.path) {
      tail.push_back(step.draft.tokens[static_cast<size_t>(node)]);
    }
    tail.push_back(step.verified.next);
    ASSERT_LE(tail.size(), call.committed.size());
    EXPECT_EQ(
        Tokens(call.committed.end() - static_cast<int64_t>(tail.size()), call.committed.end()),
        tail);
    const Tokens to_root(call.committed.begin(),
                         call.committed.end() - static_cast<int64_t>(tail.size()) + 1);
    const std::vector<double> expected = table(to_root);
    ASSERT_EQ(step.result.logits.size(0), step.draft.size());
    EXPECT_EQ(step.result.logits[0][3].item<double>(), expected[3]);
    ++compared;
  }
  EXPECT_GT(compared, 4);
}

TEST(SpeculativeBeamTest, NothingThatTheGrammarForbidsIsEvaluated) {
  const LogitTable table = random_table(4, 5);
  Task task{{0, 1, 2}, {}, {.max_new_tokens = 9, .end_ids = {3}}};
  task.constraint.grammar = letter_grammar({"a", "b", "ab", ""}, "(abab|ba(a|b)?|aab)");
  CounterRandomness random(1);
  const BeamOptions beams{.num_beams = 3, .num_return_sequences = 3};
  FakeModel plain_target(4, table);
  const Generation plain = BeamSearchDecoding(plain_target, beams).generate(task.request(random));
  const auto drafted = [&](bool mask_drafts) {
    task.constraint.mask_drafts = mask_drafts;
    FakeModel target(4, table);
    SpeculativeBeamSearch decoding(target, std::make_unique<BinaryTreeDrafter>(table),
                                   {.beams = beams, .draft_length = 2, .draft_width = 2});
    const Generation found = decoding.generate(task.request(random));
    expect_equal(found, plain);
    int64_t nodes = 0;
    for (const StepStatistics& step : found.steps) {
      nodes += step.drafted;
    }
    return nodes;
  };
  EXPECT_GT(drafted(true), 0);
  EXPECT_LT(drafted(true), drafted(false));
}

class NeedsLayers final : public Drafter {
 public:
  Needs needs() const override { return {.capture_layers = {0}, .internals = false}; }
  Draft propose(const DraftContext& context) override {
    return Draft::root(context.committed.back());
  }
};

TEST(SpeculativeBeamTest, RefusesWhatCannotWork) {
  FakeModel target(kBeamVocab, random_table(kBeamVocab, 1));
  EXPECT_THAT([&] { SpeculativeBeamSearch(target, std::make_unique<NeedsLayers>(), {}); },
              ThrowsMessage<ConfigError>(HasSubstr("hidden states")));
  const auto other = [] {
    return std::make_unique<DraftModelDrafter>(
        std::make_unique<FakeModel>(kBeamVocab + 1, random_table(kBeamVocab + 1, 1)));
  };
  EXPECT_THAT([&] { SpeculativeBeamSearch(target, other(), {}); },
              ThrowsMessage<ConfigError>(HasSubstr("vocabulary")));
  SpeculativeBeamSearch decoding(target, beam_draft_model(random_table(kBeamVocab, 2)), {});
  const Task task{{3, 1}, {.temperature = 1.0}};
  CounterRandomness random(1);
  EXPECT_THAT([&] { decoding.generate(task.request(random)); },
              ThrowsMessage<ConfigError>(HasSubstr("temperature is 1")));
}

}  // namespace
}  // namespace specdec
