#include "kv/table_block.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kv/kv_cache.h"

namespace specdec {
namespace {

constexpr TableSizes kFew{.nodes = 3, .paths = 5, .rows = 2, .pages = 7};

const std::vector<Tensor BatchTables::*>& table_members() {
  static const std::vector<Tensor BatchTables::*> members{
      &BatchTables::rows,    &BatchTables::slots,       &BatchTables::positions,
      &BatchTables::angles,  &BatchTables::path_starts, &BatchTables::paths,
      &BatchTables::lengths, &BatchTables::page_tables, &BatchTables::tokens,
  };
  return members;
}

void expect_equal_tables(const BatchTables& some, const BatchTables& others) {
  EXPECT_EQ(some.nodes, others.nodes);
  EXPECT_EQ(some.longest, others.longest);
  for (const auto member : table_members()) {
    EXPECT_TRUE(at::equal(some.*member, others.*member));
  }
}

/// Caches that are equal but for the tables' mirror, after the same calls.
class MirroredTablesTest : public testing::Test {
 protected:
  static KvCacheOptions options(bool mirror) {
    return {.dtype = at::kFloat, .page_size = 4, .max_length = 200, .as_device = mirror};
  }

  void extend(const std::vector<int64_t>& rows, const std::vector<int64_t>& parents) {
    const auto nodes = static_cast<int64_t>(std::max(rows.size(), parents.size()));
    const NewNodes batch{.count = nodes, .rows = rows, .parents = parents};
    plain_.extend(batch);
    mirrored_.extend(batch);
    expect_equal_tables(*mirrored_.view(0).tables, *plain_.view(0).tables);
  }

  void open_row() {
    plain_.open();
    mirrored_.open();
  }

  void commit(int64_t row, const std::vector<int64_t>& path) {
    plain_.commit(row, path);
    mirrored_.commit(row, path);
  }

  KvCache plain_{{{1, 2, 0, -1}}, options(false)};
  KvCache mirrored_{{{1, 2, 0, -1}}, options(true)};
};

TEST(TableBlockTest, TablesLieInOneBlockAndDoNotOverlap) {
  for (const bool own_angles : {false, true}) {
    TableBlock block({.own_angles = own_angles});
    block.reserve(kFew);
    const BatchTables& tables = block.host();
    int32_t number = 0;
    for (const auto member : table_members()) {
      EXPECT_TRUE((tables.*member).is_contiguous());
      EXPECT_TRUE((tables.*member).is_alias_of(tables.rows));
      (tables.*member).fill_(number++);
    }
    EXPECT_EQ(tables.positions.data_ptr() == tables.angles.data_ptr(), !own_angles);
    number = 0;
    for (const auto member : table_members()) {
      const int32_t wanted = member == &BatchTables::positions && !own_angles ? number + 1 : number;
      EXPECT_TRUE((tables.*member).eq(wanted).all().item<bool>());
      ++number;
    }
  }
}

TEST(TableBlockTest, OnTheCpuTheTablesAreTheSame) {
  TableBlock block({});
  block.reserve(kFew);
  block.upload(2, 9);
  EXPECT_EQ(block.device().nodes, 2);
  EXPECT_EQ(block.device().longest, 9);
  for (const auto member : table_members()) {
    EXPECT_EQ((block.host().*member).data_ptr(), (block.device().*member).data_ptr());
  }
}

TEST(TableBlockTest, AMirrorIsAnotherBlockThatUploadMakesEqual) {
  TableBlock block({.mirror = true, .own_angles = true});
  block.reserve(kFew);
  int32_t number = 1;
  for (const auto member : table_members()) {
    (block.host().*member).fill_(number++);
  }
  block.host()
      .page_tables.narrow(2, kFew.pages, block.host().page_tables.size(2) - kFew.pages)
      .zero_();
  EXPECT_FALSE(block.device().rows.is_alias_of(block.host().rows));
  EXPECT_FALSE(at::equal(block.device().rows, block.host().rows));
  block.upload(3, 5);
  expect_equal_tables(block.device(), block.host());
}

TEST(TableBlockTest, UploadsTheRowsAndPagesThatAreUsed) {
  for (const int64_t groups : {1, 3}) {
    TableBlock block({.mirror = true, .groups = groups});
    block.reserve({.nodes = 3, .paths = 5, .rows = 9, .pages = 7});
    block.reserve(kFew);
    block.host().page_tables.fill_(4);
    block.upload(3, 5);
    const Tensor& device = block.device().page_tables;
    EXPECT_EQ(device.size(1), groups);
    EXPECT_TRUE(device.narrow(0, 0, 2).narrow(2, 0, 7).eq(4).all().item<bool>());
    EXPECT_TRUE(device.narrow(0, 2, 7).eq(0).all().item<bool>());
  }
}

TEST(TableBlockTest, PageTablesOfRowsGoUpTogether) {
  TableBlock block({.mirror = true, .groups = 3, .pages_apart = true});
  block.reserve({.nodes = 1, .paths = 1, .rows = 4, .pages = 5});
  block.upload(1, 1);
  block.host().page_tables.fill_(7);
  block.upload_rows(1, 2);
  const Tensor device = block.device().page_tables;
  const auto is_filled = [&](int64_t row, int64_t group) {
    return device[row][group].narrow(0, 0, 5).eq(7).all().item<bool>();
  };
  for (int64_t group = 0; group < 3; ++group) {
    EXPECT_TRUE(is_filled(1, group) && is_filled(2, group)) << group;
    EXPECT_TRUE(device[0][group].eq(0).all().item<bool>()) << group;
    EXPECT_TRUE(device[3][group].eq(0).all().item<bool>()) << group;
  }
}

TEST(TableBlockTest, StaysInPlaceUntilATableIsTooSmall) {
  TableBlock block({.mirror = true});
  block.reserve(kFew);
  const void* host = block.host().rows.data_ptr();
  const void* device = block.device().rows.data_ptr();
  block.reserve(kFew);
  EXPECT_EQ(block.host().rows.data_ptr(), host);
  EXPECT_EQ(block.device().rows.data_ptr(), device);
  block.reserve({.nodes = 3, .paths = 5, .rows = 9, .pages = 7});
  EXPECT_GE(block.device().page_tables.size(0), 9);
  EXPECT_GE(block.device().page_tables.size(2), 7);
  EXPECT_GE(block.device().rows.size(0), 3);
}

TEST_F(MirroredTablesTest, TokensGoUpWithTheTables) {
  const std::vector<Token> tokens = {7, 8, 9};
  mirrored_.extend({.count = 3, .tokens = tokens});
  EXPECT_TRUE(
      at::equal(mirrored_.view(0).tables->tokens.narrow(0, 0, 3), at::tensor({7, 8, 9}, at::kInt)));
  EXPECT_THROW(mirrored_.extend({.count = 2, .tokens = tokens}), InternalError);
}

TEST_F(MirroredTablesTest, HoldWhatTheTablesWithoutOneHold) {
  open_row();
  extend({}, {-1, 0, 1, 2, 3});
  commit(0, {0, 1, 2, 3, 4});
  extend({0, 0, 0, 1, 1}, {-1, 0, 0, -1, -1});  // a tree, and a second row
  extend({0, 0, 1}, {2, 1, 1});                 // it grows
  extend(std::vector<int64_t>(90, 1), {});      // beyond the tables' first capacity
  plain_.undo_extend();
  mirrored_.undo_extend();
  extend({0, 1, 1}, {4, 0, 2});
  commit(0, {0, 2, 3});
  commit(1, {1, 2});
  extend({0, 1}, {});
  EXPECT_FALSE(mirrored_.view(0).tables->rows.is_alias_of(plain_.view(0).tables->rows));
}

TEST_F(MirroredTablesTest, ReadersToo) {
  open_row();
  extend({0, 0, 1}, {});
  commit(0, {0, 1});
  commit(1, {0});
  const BatchTables tables = mirrored_.readers(1, 3, 9);
  expect_equal_tables(tables, plain_.readers(1, 3, 9));
  EXPECT_EQ(tables.nodes, 3);
  EXPECT_EQ(tables.longest, 1);
  EXPECT_TRUE(tables.angles.narrow(0, 0, 3).eq(9).all().item<bool>());
  EXPECT_TRUE(tables.positions.narrow(0, 0, 3).eq(0).all().item<bool>());
  // The next ones take no memory.
  EXPECT_EQ(mirrored_.readers(0, 2, 9).angles.data_ptr(), tables.angles.data_ptr());
}

}  // namespace
}  // namespace specdec
