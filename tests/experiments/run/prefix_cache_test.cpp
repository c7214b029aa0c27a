// `prefix_cache:` of a run: the same texts, and what was saved is in the report.
#include <gmock/gmock.h>

#include "experiments/run/experiment.h"
#include "tests/experiments/run/experiment_fixture.h"

namespace specdec {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

class PrefixCacheRunTest : public ExperimentFixture {};

TEST_F(PrefixCacheRunTest, StrategiesBeginColdAndKeepTheirOwnTexts) {
  const Report plain = run();
  EXPECT_THAT(plain.notes, Not(Contains(HasSubstr("Prefix cache"))));
  const Report report = run({"prefix_cache.megabytes=64"}, "cached");
  EXPECT_EQ(tokens(records("cached")), tokens(records()));
  for (const char* name : {"autoregressive", "lookup", "draft"}) {
    // The prompts have one token in common; the second repeat knows all but each one's last.
    EXPECT_THAT(
        report.notes,
        Contains(HasSubstr(std::string("Prefix cache of ") + name +
                           ": 3 of 4 texts began with a known one, 7 of 16 prompt tokens")));
    EXPECT_THAT(report.notes, Contains(HasSubstr("from the second repeat on prompts were known")));
  }
}

TEST_F(PrefixCacheRunTest, ASharedOneHoldsTheTextsOfAll) {
  run();
  const Report report = run({"prefix_cache.megabytes=64", "prefix_cache.shared=true"}, "cached");
  EXPECT_EQ(tokens(records("cached")), tokens(records()));
  EXPECT_THAT(report.notes, Contains(HasSubstr("Prefix cache of all strategies: 11 of 12 texts "
                                               "began with a known one, 31 of 48 prompt tokens")));
}

TEST_F(PrefixCacheRunTest, BeamSearchAndSampledStrategiesReadFromItToo) {
  const std::vector<std::string> greedy = {"strategies=[{type: beam_search, num_beams: 2}]"};
  const std::vector<std::string> sampled = {"strategies=[{type: autoregressive}]",
                                            "sampling={temperature: 1.0}"};
  for (const auto& sets : {greedy, sampled}) {
    const std::string out = sets.size() == 1 ? "beam" : "sampled";
    run(sets, out);
    std::vector<std::string> cached = sets;
    cached.emplace_back("prefix_cache.megabytes=64");
    const Report report = run(cached, out + "_cached");
    EXPECT_EQ(tokens(records(out + "_cached")), tokens(records(out)));
    EXPECT_THAT(report.notes, Contains(HasSubstr("3 of 4 texts")));
  }
}

}  // namespace
}  // namespace specdec
