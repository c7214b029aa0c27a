#include "kv/forward_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "core/error.h"
#include "kv/reader_tables.h"
#include "kv/row_pages.h"

namespace specdec {
namespace {

using testing::ElementsAre;

std::vector<int32_t> first_entries(const Tensor& table, int64_t count) {
  const auto* entries = table.const_data_ptr<int32_t>();
  return {entries, entries + count};
}

/// The rows of a cache with pages of 4 tokens, and their tables.
struct TabledRows {
  explicit TabledRows(const KvCacheOptions& options = {.page_size = 4, .max_length = 64})
      : groups({LayerKv{1, 64}}, options), rows(4), pages(rows, groups), tables(rows, groups) {}

  void extend(const NewNodes& nodes) {
    rows.find_spans(nodes);
    tables.reserve(nodes);
    pages.reserve_spans();
    rows.add_nodes(nodes);
    tables.write(nodes);
  }
  void keep_all(RowId row) {
    rows[row].length = rows.held(row);
    rows[row].pending.clear();
  }

  PageGroups groups;
  CacheRows rows;
  RowPages pages;
  ForwardTables tables;
};

TEST(ForwardTablesTest, OnlyNodesBesideAChainHavePaths) {
  TabledRows cache;
  cache.extend({.count = 2});
  cache.keep_all(0);
  const std::vector<int64_t> parents = {-1, 0, 0, 2};
  cache.extend({.count = 4, .parents = parents});
  const BatchTables& tables = cache.tables.device();
  EXPECT_EQ(tables.nodes, 4);
  EXPECT_EQ(tables.longest, 6);
  EXPECT_THAT(first_entries(tables.slots, 4), ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(first_entries(tables.positions, 4), ElementsAre(2, 3, 3, 4));
  EXPECT_THAT(first_entries(tables.path_starts, 4), ElementsAre(-1, -1, 0, 2));
  EXPECT_THAT(first_entries(tables.paths, 5), ElementsAre(2, 4, 2, 4, 5));
  EXPECT_THAT(first_entries(tables.lengths, 1), ElementsAre(2));
  EXPECT_THAT(first_entries(tables.page_tables, 2), ElementsAre(0, 1));
}

TEST(ReaderTablesTest, ReadersSeeWhatTheLastKeptTokenSees) {
  TabledRows cache;
  ReaderTables readers(cache.rows, cache.groups);
  EXPECT_EQ(readers.row(), -1);
  EXPECT_THROW(readers.write(0, 1, 0), InternalError) << "an empty row";
  EXPECT_EQ(readers.row(), -1) << "it was not read";
  cache.extend({.count = 5});
  cache.keep_all(0);
  const BatchTables tables = readers.write(0, 2, 9);
  EXPECT_EQ(readers.row(), 0);
  EXPECT_EQ(tables.longest, 5);
  EXPECT_THAT(first_entries(tables.slots, 2), ElementsAre(5, 5));
  EXPECT_THAT(first_entries(tables.positions, 2), ElementsAre(4, 4));
  EXPECT_THAT(first_entries(tables.angles, 2), ElementsAre(9, 9));
  EXPECT_THAT(first_entries(tables.path_starts, 2), ElementsAre(-1, -1));
  EXPECT_THAT(first_entries(tables.page_tables, 2), ElementsAre(0, 1));
  readers.forget_row();
  EXPECT_EQ(readers.row(), -1);
}

}  // namespace
}  // namespace specdec
