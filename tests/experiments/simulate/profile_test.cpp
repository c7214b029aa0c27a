#include "experiments/simulate/profile.h"

#include <gmock/gmock.h>

#include <sstream>
#include <string>
#include <utility>

namespace specdec {
namespace {

using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;

/// Each generation has the steps that it was given; writes its name into the log.
class ScriptedDecoding : public DecodingStrategy {
 public:
  ScriptedDecoding(std::string name, std::vector<StepStatistics> steps, std::string& log)
      : name_(std::move(name)), steps_(std::move(steps)), log_(log) {}

  Generation generate(const Request& /*request*/) override {
    log_ += name_;
    Generation generation;
    generation.steps = steps_;
    return generation;
  }

 private:
  std::string name_;
  std::vector<StepStatistics> steps_;
  std::string& log_;
};

StepStatistics step_of(int64_t depth, double seconds) {
  StepStatistics step;
  step.drafted = depth;
  step.depth = depth;
  step.draft_seconds = seconds;
  step.verify_seconds = 10.0 * seconds;
  step.other_seconds = 100.0 * seconds;
  return step;
}

TEST(ProfileTest, StrategiesTakeTurnsUntilEachHasEnoughSteps) {
  std::string log;
  ScriptedDecoding often("a", {step_of(2, 1.0), step_of(2, 1.0), step_of(2, 1.0)}, log);
  ScriptedDecoding seldom("b", {step_of(1, 1.0), step_of(2, 1.0)}, log);
  std::vector<StepTimer> timers = {{often, {3}, 2, {}}, {seldom, {3}, 2, {}}};
  time_in_turns(timers, 3);
  EXPECT_EQ(log, "abababab");  // the first round warms up
  EXPECT_EQ(timers[0].cost()->steps, 9);
  EXPECT_EQ(timers[1].cost()->steps, 3);
}

TEST(ProfileTest, AStrategyThatNeverDraftsSoDeepIsGivenUp) {
  std::string log;
  ScriptedDecoding never("n", {step_of(1, 1.0)}, log);
  std::vector<StepTimer> timers = {{never, {3}, 2, {}}};
  time_in_turns(timers, 1000);
  EXPECT_LT(log.size(), 10U);
  EXPECT_FALSE(timers[0].cost());
}

TEST(ProfileTest, TheDraftThatReadsThePromptIsApart) {
  std::string log;
  ScriptedDecoding decoding(
      "d", {step_of(2, 9.0), step_of(2, 1.0), step_of(2, 2.0), step_of(2, 4.0)}, log);
  StepTimer timer(decoding, {3}, 2, {});
  timer.generate();
  EXPECT_FALSE(timer.cost());
  timer.generate();
  const auto cost = timer.cost();
  ASSERT_TRUE(cost);
  EXPECT_EQ(cost->drafted, 2);
  EXPECT_DOUBLE_EQ(cost->first, 9.0);
  EXPECT_DOUBLE_EQ(cost->draft.median, 2.0);
  EXPECT_DOUBLE_EQ(cost->verify.median, 30.0);
  EXPECT_DOUBLE_EQ(cost->verify.low, 17.5);
  EXPECT_DOUBLE_EQ(cost->verify.high, 52.5);
  EXPECT_DOUBLE_EQ(cost->other.low, 175.0);
}

TEST(ProfileTest, PrintsNoQuartilesOfFewMeasurements) {
  const Spread spread{.median = 0.25, .low = 0.125, .high = 0.5};
  Profile profile{.model = "m", .machine = "", .target = {}, .plain = {}, .drafters = {}};
  profile.target.points = {
      {.new_tokens = 1, .context = 16, .seconds = 0.25, .low = 0.125, .high = 0.5}};
  profile.plain = {.drafted = 0, .steps = 20, .draft = {}, .verify = spread, .other = spread};
  profile.drafters = {{.name = "few", .description = "", .lengths = {}}};
  profile.drafters[0].lengths = {
      {.drafted = 2, .steps = 4, .draft = spread, .verify = spread, .other = spread}};
  for (const int64_t repeats : {4, 5}) {
    profile.repeats = repeats;
    std::ostringstream out;
    print_profile(out, profile);
    const bool quartiles = repeats == 5;
    const std::string row = "  250.000 (125.000 to 500.000)  1.00\n";
    EXPECT_EQ(out.str().find(row) != std::string::npos, quartiles) << out.str();
    EXPECT_THAT(out.str(), HasSubstr("250.000 (125.000 to 500.000)")) << "20 plain steps";
    EXPECT_THAT(out.str(), ContainsRegex("few +2 +250.000 +250.000 +250.000 "));
  }
}

}  // namespace
}  // namespace specdec
