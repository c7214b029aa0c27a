// What strategies keep from one request to the next, in a run with repeats.
#include <gmock/gmock.h>

#include <map>

#include "experiments/run/experiment.h"
#include "tests/experiments/run/experiment_fixture.h"

namespace specdec {
namespace {

using Drafts = std::vector<std::pair<int64_t, int64_t>>;

class PersistenceTest : public ExperimentFixture {
 protected:
  /// Drafted and accepted tokens of each step of a recycling drafter, by repeat and prompt.
  std::map<std::pair<int64_t, std::string>, Drafts> drafts(bool persist, int64_t warm_up,
                                                           bool in_cascade = false) {
    const auto out = fmt::format("{}_{}_{}", persist, warm_up, in_cascade);
    const auto table = fmt::format("{{type: recycling, persist: {}}}", persist);
    run({fmt::format("strategies=[{{type: autoregressive}}, {{name: table, type: speculative, "
                     "draft_length: 3, drafter: {}}}]",
                     in_cascade ? fmt::format("{{type: cascade, drafters: [{}]}}", table) : table),
         fmt::format("warm_up={}", warm_up), "repeats=3", "max_new_tokens=24"},
        out);
    std::map<std::pair<int64_t, std::string>, Drafts> found;
    for (const GenerationRecord& record : records(out)) {
      for (const StepStatistics& step : record.generation.steps) {
        if (record.key.strategy == "table") {
          found[{record.key.repeat, record.key.prompt_id}].emplace_back(step.drafted,
                                                                        step.accepted);
        }
      }
    }
    return found;
  }
};

TEST_F(PersistenceTest, ARepeatHasNotSeenItsOwnTexts) {
  const auto kept = drafts(true, 0);
  ASSERT_EQ(kept.size(), 6U);
  for (const auto& [place, steps] : kept) {
    EXPECT_EQ(steps, kept.at({0, place.second})) << place.first << " " << place.second;
  }
  EXPECT_NE(kept, drafts(false, 0)) << "within a repeat the table outlives a request";
}

TEST_F(PersistenceTest, TheWarmUpsTextIsForgotten) { EXPECT_EQ(drafts(true, 2), drafts(true, 0)); }

TEST_F(PersistenceTest, ACascadesMembersForgetToo) {
  EXPECT_EQ(drafts(true, 2, true), drafts(true, 0, true));
}

}  // namespace
}  // namespace specdec
