#include "kv/cache_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "core/error.h"

namespace specdec {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// New nodes with rows and parents of their own.
struct RowNodes {
  std::vector<RowId> rows;
  std::vector<int64_t> parents;

  NewNodes nodes() const {
    const size_t count = std::max(rows.size(), parents.size());
    return {.count = static_cast<int64_t>(count), .rows = rows, .parents = parents};
  }
};

void extend_rows(CacheRows& rows, const RowNodes& given) {
  rows.find_spans(given.nodes());
  rows.add_nodes(given.nodes());
}

std::string bug(const std::function<void()>& call) {
  try {
    call();
  } catch (const InternalError& error) {
    return error.what();
  }
  return "no error";
}

TEST(CacheRowsTest, SpansAreTheNewNodesOfEachRow) {
  CacheRows rows(4);
  const RowId other = rows.open();
  rows.find_spans(RowNodes{{other, other, 0}, {}}.nodes());
  ASSERT_EQ(rows.spans().size(), 2U);
  EXPECT_EQ(rows.spans()[0].row, other);
  EXPECT_EQ(rows.spans()[0].place, 1);
  EXPECT_EQ(rows.spans()[0].end, 2);
  EXPECT_EQ(rows.spans()[1].row, 0);
  EXPECT_EQ(rows.spans()[1].begin, 2);
  EXPECT_EQ(rows.spans()[1].end, 3);
  EXPECT_EQ(rows.pending(other), 0) << "nothing is pending yet";
}

TEST(CacheRowsTest, ANodeLiesOnePositionBehindItsParent) {
  CacheRows rows(4);
  rows[0].length = 7;
  extend_rows(rows, {{}, {-1, 0, 0, -1, 2}});
  extend_rows(rows, {{}, {4, 3}});
  std::vector<int64_t> positions;
  std::vector<int64_t> parents;
  for (const CacheRows::Node& node : rows[0].pending) {
    positions.push_back(node.position);
    parents.push_back(node.parent);
  }
  EXPECT_THAT(positions, ElementsAre(7, 8, 8, 7, 9, 10, 8));
  EXPECT_THAT(parents, ElementsAre(-1, 0, 0, -1, 2, 4, 3));
  EXPECT_EQ(rows.held(0), 14);
  rows.check_path(0, std::vector<int64_t>{0, 2, 4, 5});
  EXPECT_THAT(bug([&] {
                rows.check_path(0, std::vector<int64_t>{0, 4});
              }),
              HasSubstr("not a path from the root: node 4 of row 0 follows 2, not 0"));
  EXPECT_THAT(bug([&] { rows.check_path(0, std::vector<int64_t>{7}); }),
              HasSubstr("row 0 has 7 pending nodes, not node 7"));
}

TEST(CacheRowsTest, WithoutParentsNodesAreAChain) {
  CacheRows rows(4);
  const std::vector<RowId> three(3, 0);
  extend_rows(rows, {three, {}});
  extend_rows(rows, {three, {}});
  EXPECT_EQ(rows[0].pending.back().parent, 4);
  EXPECT_EQ(rows[0].pending.back().position, 5);
}

TEST(CacheRowsTest, PageRangesCoverTheNewNodes) {
  CacheRows rows(4);
  rows[0].length = 3;
  extend_rows(rows, {{0, 0}, {}});
  rows.find_spans(RowNodes{{0, 0, 0, 0}, {}}.nodes());
  const PageRange range = rows.page_range(rows.spans().front());
  EXPECT_EQ(range.place, 0);
  EXPECT_EQ(range.first, 1) << "slot 5";
  EXPECT_EQ(range.end, 3) << "slot 8";
  EXPECT_EQ(rows.page_count(0), 0);
  EXPECT_EQ(rows.page_count(4), 1);
  EXPECT_EQ(rows.page_count(5), 2);
}

TEST(CacheRowsTest, WhatCannotBeIsABug) {
  CacheRows rows(4);
  const RowId other = rows.open();
  const auto error_of = [&](const RowNodes& given) {
    return bug([&] { rows.find_spans(given.nodes()); });
  };
  EXPECT_THAT(error_of({{0, other, 0}, {}}), HasSubstr("node 2 is apart from the others of row 0"));
  EXPECT_THAT(error_of({{}, {-1, 1}}), HasSubstr("pending node 1 of row 0 cannot follow node 1"));
  EXPECT_THAT(error_of({{}, {-2}}), HasSubstr("pending node 0 of row 0 cannot follow node -2"));
  EXPECT_THAT(error_of({{0, 0}, {-1}}), HasSubstr("2 rows, 1 parents and 0 tokens for 2 nodes"));
  EXPECT_THAT(error_of({{other + 1}, {}}), HasSubstr("is not open"));
}

/// Whatever was extended before, undoing the newest extend leaves the rows as they were.
TEST(CacheRowsTest, UndoLeavesTheRowsAsTheyWere) {
  std::mt19937 random(7);
  const auto below = [&](int64_t bound) { return static_cast<int64_t>(random() % bound); };
  for (int64_t trial = 0; trial < 50; ++trial) {
    CacheRows rows(4);
    rows.open();
    for (int64_t step = 0; step < 5; ++step) {
      RowNodes given;
      for (const RowId row : rows.names()) {
        const int64_t held = rows.pending(row);
        for (int64_t i = 0; i < below(4); ++i) {
          given.rows.push_back(row);
          given.parents.push_back(below(held + i + 1) - 1);
        }
      }
      const std::vector<int64_t> before = rows.held();
      extend_rows(rows, given);
      rows.undo_nodes();
      EXPECT_EQ(rows.held(), before);
      EXPECT_TRUE(rows.spans().empty());
      extend_rows(rows, given);
    }
  }
}

}  // namespace
}  // namespace specdec
