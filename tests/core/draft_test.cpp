#include "core/draft.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace specdec {
namespace {

TEST(DraftTest, RootProposesNothing) {
  const Draft draft = Draft::root(7);
  EXPECT_EQ(draft.tokens, std::vector<Token>{7});
  EXPECT_EQ(draft.parents, std::vector<int64_t>{-1});
  EXPECT_EQ(draft.child_probs, std::vector<int64_t>{-1});
  EXPECT_EQ(draft.proposed(), 0);
  EXPECT_TRUE(draft.children(0).empty());
}

TEST(DraftTest, TreesKnowChildrenInOrderAndDepths) {
  Draft draft = Draft::root(0);
  EXPECT_EQ(draft.add(5, 0), 1);
  EXPECT_EQ(draft.add(6, 0), 2);
  EXPECT_EQ(draft.add(7, 1), 3);
  EXPECT_EQ(draft.add(8, 0), 4);
  EXPECT_EQ(draft.children(0), (std::vector<int64_t>{1, 2, 4}));
  EXPECT_EQ(draft.children(1), std::vector<int64_t>{3});
  EXPECT_TRUE(draft.children(4).empty());
  EXPECT_EQ(draft.depths(), (std::vector<int64_t>{0, 1, 1, 2, 1}));
  EXPECT_EQ(draft.proposed(), 4);
  EXPECT_EQ(draft.child_probs, std::vector<int64_t>(5, -1));
}

TEST(DraftTest, PathsAndHistoriesBeginAtTheRoot) {
  Draft draft = Draft::root(4);
  draft.add(5, 0);
  draft.add(6, 0);
  draft.add(7, 2);
  const std::vector<Token> committed = {9, 4};
  EXPECT_EQ(draft.depth(), 2);
  EXPECT_EQ(Draft::root(4).depth(), 0);
  EXPECT_EQ(draft.path_to(0), std::vector<int64_t>{0});
  EXPECT_EQ(draft.path_to(3), (std::vector<int64_t>{0, 2, 3}));
  EXPECT_EQ(draft.history(committed, 0), committed);
  EXPECT_EQ(draft.history(committed, 3), (std::vector<Token>{9, 4, 6, 7}));
  EXPECT_EQ(chain_path(3), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_TRUE(chain_path(0).empty());
}

TEST(DraftTest, RefusesAParentThatDoesNotExist) {
  Draft draft = Draft::root(0);
  EXPECT_THROW(draft.add(1, 1), InternalError);
  EXPECT_THROW(draft.add(1, -1), InternalError);
  EXPECT_EQ(draft.size(), 1);
}

}  // namespace
}  // namespace specdec
