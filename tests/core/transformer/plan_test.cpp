#include "core/transformer/plan.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace specdec {
namespace {

/// Five layers, of which the last two read the keys and values of layers 1 and 2.
std::vector<LayerPlan> sharing_plan() {
  std::vector<LayerPlan> plan(5);
  plan[3].kv_source = 1;
  plan[4].kv_source = 2;
  return plan;
}

TEST(SelectLayersTest, SourcesAreNumberedAmongThoseThatAreLeft) {
  const auto plan = select_layers(sharing_plan(), std::vector<int64_t>{1, 2, 4, 3});
  ASSERT_EQ(plan.size(), 4U);
  EXPECT_EQ(plan[2].kv_source, 1);
  EXPECT_EQ(plan[3].kv_source, 0);
  EXPECT_EQ(plan[0].kv_source, -1);
}

TEST(SelectLayersTest, ALayerThatStandsTwiceIsReadWhereItStoodLast) {
  const auto plan = select_layers(sharing_plan(), std::vector<int64_t>{1, 3, 1, 3});
  EXPECT_EQ(plan[1].kv_source, 0);
  EXPECT_EQ(plan[3].kv_source, 2);
}

TEST(SelectLayersTest, ASourceThatDoesNotStandBeforeItsReaderIsABug) {
  EXPECT_THROW(select_layers(sharing_plan(), std::vector<int64_t>{0, 3}), InternalError);
  EXPECT_THROW(select_layers(sharing_plan(), std::vector<int64_t>{3, 1}), InternalError);
}

}  // namespace
}  // namespace specdec
