#include "grammar/tables/sequence_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace specdec {
namespace {

using ::testing::ElementsAre;

TEST(SequenceTableTest, EqualSequencesHaveOneNumber) {
  SequenceTable table;
  EXPECT_EQ(table.intern(std::vector<uint32_t>{}), 0U);
  for (uint32_t i = 0; i < 500; ++i) {
    EXPECT_EQ(table.intern(std::vector<uint32_t>{i, i + 1}), i + 1);
  }
  for (uint32_t i = 0; i < 500; ++i) {
    EXPECT_EQ(table.intern(std::vector<uint32_t>{i, i + 1}), i + 1);
    EXPECT_THAT(table[i + 1], ElementsAre(i, i + 1));
  }
  EXPECT_EQ(table.intern(std::vector<uint32_t>{}), 0U);
  EXPECT_EQ(table.size(), 501U);
}

TEST(SequenceTableTest, WhatIsAppendedHasANumberOfItsOwn) {
  SequenceTable table;
  const std::vector<uint32_t> words = {7, 8};
  EXPECT_EQ(table.append(words), 0U);
  EXPECT_EQ(table.append(words), 1U);
  EXPECT_EQ(table.intern(words), 0U);
  EXPECT_THAT(table[1], ElementsAre(7U, 8U));
}

TEST(SequenceTableTest, WordsMayLieInTheTable) {
  SequenceTable table;
  std::vector<uint32_t> words(100, 3);
  table.intern(words);
  EXPECT_EQ(table.intern(table[0]), 0U);
  for (uint32_t i = 1; i < 90; ++i) {
    EXPECT_EQ(table.intern(table[i - 1].subspan(1)), i);
  }
  EXPECT_EQ(table[89].size(), 11U);
}

}  // namespace
}  // namespace specdec
