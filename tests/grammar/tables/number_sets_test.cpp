#include "grammar/tables/number_sets.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <vector>

namespace specdec {
namespace {

/// Numbers come in any order, small and large ones.
TEST(NumberSetsTest, EqualSetsHaveTheSameNumber) {
  NumberSets sets;
  std::map<std::set<uint32_t>, NumberSets::Id> known = {{{}, NumberSets::kEmpty}};
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    NumberSets::Id id = NumberSets::kEmpty;
    std::set<uint32_t> all;
    for (int i = 0; i < 12; ++i) {
      const auto number = static_cast<uint32_t>(random()) >> (round % 2 == 0 ? 29 : random() % 32);
      id = sets.with(id, number);
      all.insert(number);
      const auto [entry, fresh] = known.try_emplace(all, id);
      ASSERT_EQ(entry->second, id);
      ASSERT_EQ(sets.size(id), all.size());
      ASSERT_TRUE(sets.contains(id, number));
      ASSERT_EQ(sets.contains(id, number + 1), all.contains(number + 1));
      ASSERT_EQ(sets.numbers(id), std::vector<uint32_t>(all.begin(), all.end()));
    }
  }
  std::set<NumberSets::Id> ids;
  for (const auto& [numbers, id] : known) {
    EXPECT_TRUE(ids.insert(id).second);
  }
}

}  // namespace
}  // namespace specdec
