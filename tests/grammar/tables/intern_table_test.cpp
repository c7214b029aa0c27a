#include "grammar/tables/intern_table.h"

#include <gtest/gtest.h>

#include <string>

namespace specdec {
namespace {

struct Length {
  size_t operator()(const std::string& text) const { return WordHash().add(text.size()).value(); }
};

TEST(InternTableTest, EqualValuesHaveOneNumber) {
  InternTable<std::string, Length> table;
  EXPECT_EQ(table.find("a"), table.kNone);
  for (uint32_t i = 0; i < 1'000; ++i) {
    EXPECT_EQ(table.intern(std::to_string(i)), i);
  }
  const std::string* first = &table[0];
  for (uint32_t i = 0; i < 1'000; ++i) {
    EXPECT_EQ(table.intern(std::to_string(i)), i);
    EXPECT_EQ(table[i], std::to_string(i));
  }
  EXPECT_EQ(table.size(), 1'000U);
  EXPECT_EQ(first, &table[0]);
}

}  // namespace
}  // namespace specdec
