#include "experiments/report/report_details.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "experiments/report/example_choice.h"
#include "tests/experiments/report/report_sample.h"

namespace specdec {
namespace {

TEST(ReportDetailsTest, QuestionsAddTheirTurnsAndRepeats) {
  auto records = sample_records({.questions = 1});
  GenerationRecord second_turn = records[1];
  second_turn.key.prompt_id = "q0/2";
  second_turn.key.repeat = 1;
  records.push_back(second_turn);
  const auto results = question_results(records);
  ASSERT_EQ(results.size(), 2);
  EXPECT_FALSE(results[0].speedup.has_value());
  EXPECT_EQ(results[1].question, "q0");
  EXPECT_EQ(results[1].steps, 10);
  EXPECT_EQ(results[1].tokens, 20);
  EXPECT_NEAR(results[1].speedup.value(), 2.0 / 1.25, 1e-12);
}

TEST(ReportDetailsTest, StrategyRunOnceIsComparedWithinItsConditionOnly) {
  auto records = sample_records({.points = {{"k=1", {"1"}}, {"k=2", {"2"}}}, .questions = 1});
  records.erase(records.begin() + 2);  // the first strategy at the second point
  const auto same = question_results(records, [](const std::string&) { return "t=0"; });
  ASSERT_EQ(same.size(), 3);
  EXPECT_EQ(same[2].sweep_point, "k=2");
  EXPECT_NEAR(same[2].speedup.value(), 2.0 / 1.25, 1e-12);
  const auto other = question_results(records, [](const std::string& point) { return point; });
  EXPECT_TRUE(other[1].speedup.has_value());
  EXPECT_FALSE(other[2].speedup.has_value()) << "a speed-up over another condition";
  EXPECT_FALSE(question_results(records)[2].speedup.has_value()) << "conditions are not known";
}

TEST(ReportDetailsTest, ForwardsAreTimedByTheirWidth) {
  const Report report = sample_report({});
  const auto& widths = report.details.widths;
  ASSERT_EQ(widths.size(), 2);
  EXPECT_EQ(widths[0].width, 1);
  EXPECT_EQ(widths[1].width, 5);
  EXPECT_EQ(widths[1].steps, 12 * 5);
  EXPECT_LT(widths[1].low, widths[1].median);
  EXPECT_LT(widths[1].median, widths[1].high);
}

TEST(ReportDetailsTest, PredictionIsTheCurvesCostOfPlainAndOwnSteps) {
  const Report report = sample_report({.questions = 1});
  ASSERT_EQ(report.details.predictions.size(), 1);
  EXPECT_EQ(report.details.predictions[0].strategy, "draft_model");
  // Ten tokens at v(1) = 1.1 ms; five steps of v(5) = 1.5 ms and 0.2 ms of drafting.
  EXPECT_NEAR(report.details.predictions[0].speedup, 10 * 1.1 / (5 * (1.5 + 0.2)), 1e-9);
}

TEST(ReportDetailsTest, PlainDecodingIsChargedItsOtherTimeToo) {
  auto records = sample_records({.questions = 1});
  for (GenerationRecord& record : records) {
    for (StepStatistics& step : record.generation.steps) {
      step.other_seconds = step.drafted == 0 ? 0.4e-3 : 0.3e-3;
    }
  }
  records[0].generation.steps[2].other_seconds = 1.0;  // a hiccup
  const CostCurve curve{{{.new_tokens = 1, .context = 16, .seconds = 1e-3},
                         {.new_tokens = 5, .context = 16, .seconds = 1.5e-3}}};
  const auto details = collect_details({.records = records, .traces = {}, .cost_curve = curve});
  ASSERT_EQ(details.predictions.size(), 1);
  EXPECT_NEAR(details.predictions[0].speedup, 10 * (1.0 + 0.4) / (5 * (1.5 + 0.2 + 0.3)), 1e-9);
}

TEST(ReportDetailsTest, AForwardThatTheTextsEndCutsIsOfNoKnownWidth) {
  auto records = sample_records({.questions = 1});
  auto& steps = records[1].generation.steps;
  steps[4].accepted = steps[4].committed = steps[4].drafted = steps[4].depth = 1;
  const CostCurve curve{{{.new_tokens = 1, .context = 16, .seconds = 1e-3},
                         {.new_tokens = 5, .context = 16, .seconds = 5e-3}}};
  const auto details = collect_details({.records = records, .traces = {}, .cost_curve = curve});
  ASSERT_EQ(details.widths.size(), 1) << "four forwards of five tokens are too few";
  EXPECT_EQ(details.widths[0].width, 1);
  // Nine tokens at 1 ms; the cut forward is charged as the four before it.
  EXPECT_NEAR(details.predictions[0].speedup, 9 * 1.0 / (5 * (5.0 + 0.2)), 1e-9);
}

TEST(ReportDetailsTest, TreeCountsThePathsThatTheTextFollows) {
  const Report report = sample_report({});
  ASSERT_EQ(report.details.trees.size(), 1);
  const HitTree& tree = report.details.trees[0];
  EXPECT_EQ(tree.positions, 8);
  ASSERT_EQ(tree.nodes.size(), 3);
  for (const HitNode& node : tree.nodes) {
    EXPECT_EQ(node.hits, 4);
  }
  EXPECT_EQ(tree.nodes[0].parent, -1);
  EXPECT_EQ(tree.nodes[1].parent, -1);
  EXPECT_EQ(tree.nodes[2].depth, 2);
  EXPECT_EQ(tree.nodes[static_cast<size_t>(tree.nodes[2].parent)].rank, 0);
}

TEST(ReportDetailsTest, ExamplesTellAcceptedFromRejectedAndOwn) {
  const Report report = sample_report({});
  ASSERT_EQ(report.details.examples.size(),
            2);  // one a category; the first strategy drafts nothing
  const ExampleText& example = report.details.examples[0];
  EXPECT_EQ(example.strategy, "draft_model");
  EXPECT_EQ(example.steps, 5);
  std::string origins;
  for (const ExamplePiece& piece : example.pieces) {
    origins += piece.origin == PieceOrigin::kAccepted   ? 'a'
               : piece.origin == PieceOrigin::kRejected ? 'r'
                                                        : 't';
  }
  EXPECT_EQ(origins, "tartartartartart");
  EXPECT_EQ(example.pieces[0].text, "100 ");
  EXPECT_EQ(example.pieces[2].count, 3);
}

TEST(ReportDetailsTest, ExamplesHaveTheTextOfRejectedBranches) {
  auto records = sample_records({.questions = 1});
  auto& steps = records[1].generation.steps;  // one of four drafted tokens accepted in each
  steps[0].rejected = {{7, 8, 9}};            // a chain
  steps[1].rejected = {{7}, {8}};             // a tree, of which one more was rejected elsewhere
  steps[2].drafted = 9;
  steps[2].rejected = {{1}, {2}, {3}, {4, 5}};
  const auto example = collect_details({.records = records}).examples.at(0);
  std::vector<std::string> rejected;
  for (const ExamplePiece& piece : example.pieces) {
    if (piece.origin == PieceOrigin::kRejected) {
      rejected.push_back(piece.text + "x" + std::to_string(piece.count));
    }
  }
  EXPECT_THAT(rejected, testing::ElementsAre("7 8 9 x3", "7 x1", "8 x1", "x1", "1 x1", "2 x1",
                                             "3 x1", "x5", "x3", "x3"));
}

TEST(ReportDetailsTest, ExamplesAreOrderedByQuestionThenStrategy) {
  auto records = sample_records({.strategies = {"plain", "b", "a"}, .questions = 2});
  std::swap(records[3], records[5]);  // another order on the second question
  std::vector<std::string> places;
  for (const ExampleText& example : collect_details({.records = records}).examples) {
    places.push_back(example.question + example.strategy);
  }
  EXPECT_THAT(places, testing::ElementsAre("q0b", "q0a", "q1b", "q1a"));
}

TEST(ExampleChoiceTest, TakesTheFirstQuestionOfThreeCategoriesOnce) {
  ExampleChoice choice;
  const auto takes = [&](const std::string& point, const std::string& prompt,
                         const std::string& category, int64_t repeat = 0) {
    return choice.takes({point, "s", prompt, repeat}, category);
  };
  EXPECT_TRUE(takes("k=1", "q1", "a"));
  EXPECT_FALSE(takes("k=1", "q2", "a"));
  EXPECT_TRUE(takes("k=1", "q3", "b"));
  EXPECT_TRUE(takes("k=1", "q4", "c"));
  EXPECT_FALSE(takes("k=1", "q5", "d"));
  EXPECT_FALSE(takes("k=1", "q1", "a", 1));
  EXPECT_FALSE(takes("k=2", "q1", "a"));
  EXPECT_TRUE(takes("k=1", "q1", "a")) << "a resumed run asks again";
}

TEST(ReportDetailsTest, TextThatItsStepsDoNotAddUpToIsNoExample) {
  auto records = sample_records({.questions = 1});
  records[1].generation.tokens.pop_back();  // as in a beam search
  EXPECT_TRUE(collect_details({.records = records}).examples.empty());
}

}  // namespace
}  // namespace specdec
