#include "decoders/drafters/corpus_bigram.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/support/retrieval.h"

namespace specdec {
namespace {

using Tokens = std::vector<Token>;

std::shared_ptr<const BigramTable> bigram_table(const std::vector<Tokens>& documents) {
  return std::make_shared<const BigramTable>(documents);
}

TEST(CorpusBigramTest, CountsPairsWithinDocuments) {
  const auto counted = bigram_table({{1, 2, 1, 3, 1, 2}, {9, 1}, {2}});
  const auto followers = counted->followers(1, 9);
  ASSERT_EQ(followers.size(), 2U);
  EXPECT_EQ(followers[0].token, 2);
  EXPECT_NEAR(followers[0].weight, 2.0 / 3, 1e-15);
  EXPECT_EQ(followers[1].token, 3);
  EXPECT_EQ(counted->followers(1, 1).size(), 1U);
  EXPECT_TRUE(counted->followers(7, 9).empty());
  const auto after_two = counted->followers(2, 9);
  ASSERT_EQ(after_two.size(), 1U) << "9 begins another document";
  EXPECT_EQ(after_two[0].token, 1);
}

TEST(CorpusBigramTest, DraftsAChainOrTheMostLikelyTree) {
  const auto counted = bigram_table({{1, 2, 3, 1, 2, 3, 1, 4}});
  CorpusBigramDrafter drafter(counted);
  EXPECT_EQ(paths_of(propose_within(drafter, Tokens{8, 1}, {3, 3, 1})),
            (std::vector<Tokens>{{2}, {2, 3}, {2, 3, 1}}));
  EXPECT_EQ(paths_of(propose_within(drafter, Tokens{8, 1}, {4, 3, 2})),
            (std::vector<Tokens>{{2}, {2, 3}, {2, 3, 1}, {4}}));
  EXPECT_EQ(propose_within(drafter, Tokens{1, 8}, {3, 3, 1}).size(), 1) << "8 is unknown";
  CorpusBigramDrafter sure(counted, {.min_probability = 0.9});
  EXPECT_EQ(propose_within(sure, Tokens{1}, {3, 3, 1}).size(), 1);
  EXPECT_EQ(paths_of(propose_within(sure, Tokens{2}, {3, 3, 1})),
            (std::vector<Tokens>{{3}, {3, 1}}));
}

TEST(CorpusBigramTest, RefusesAProbabilityOutOfRange) {
  EXPECT_THROW(CorpusBigramDrafter(bigram_table({}), {.min_probability = -0.1}), ConfigError);
  EXPECT_THROW(CorpusBigramDrafter(bigram_table({}), {.min_probability = 1.1}), ConfigError);
}

}  // namespace
}  // namespace specdec
