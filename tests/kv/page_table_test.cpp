#include "kv/page_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace specdec {
namespace {

using testing::ElementsAre;

PageTable table_of(int64_t rows, int64_t pages_each) {
  PageTable table;
  std::vector<PageTable::Copy> copies;
  table.add_rows(rows);
  for (int64_t row = 0; row < rows; ++row) {
    table.make_writable(row, 0, pages_each, copies);
  }
  EXPECT_TRUE(copies.empty());
  return table;
}

TEST(PageTableTest, RowsGetPagesOfTheirOwn) {
  const PageTable table = table_of(2, 2);
  EXPECT_THAT(table.pages(0), ElementsAre(0, 1));
  EXPECT_THAT(table.pages(1), ElementsAre(2, 3));
  EXPECT_EQ(table.pages_made(), 4);
}

TEST(PageTableTest, UseCountsWhatPagesHold) {
  PageTable table = table_of(2, 2);  // pages of 4 tokens
  const std::vector<int64_t> lengths = {5, 3};
  PageTable::Use use = table.use(lengths, 4);
  EXPECT_EQ(use.used, 3) << "the second row's last page holds nothing yet";
  EXPECT_EQ(use.spare, 1);
  EXPECT_EQ(use.shared, 0);
  EXPECT_EQ(use.tokens, 8);
  EXPECT_EQ(use.filled, 3);
  const auto held = table.hold(0, 1);
  table.trim(1, 1);
  table.add_rows(3);
  table.attach(2, table.pages(0));
  use = table.use(std::vector<int64_t>{5, 3, 2}, 4);
  EXPECT_EQ(use.used, 3);
  EXPECT_EQ(use.shared, 2);
  EXPECT_EQ(use.tokens, 8) << "what rows share counts once";
  for (int64_t row = 0; row < 3; ++row) {
    table.trim(row, 0);
  }
  use = table.use(std::vector<int64_t>{0, 0, 0}, 4);
  EXPECT_EQ(use.used, 1) << "held";
  EXPECT_EQ(use.filled, 0);
  EXPECT_EQ(table.free_pages(), 3);
}

TEST(PageTableTest, PagesGivenBackAreUsedAgain) {
  PageTable table = table_of(1, 3);
  table.trim(0, 1);
  EXPECT_EQ(table.free_pages(), 2);
  std::vector<PageTable::Copy> copies;
  table.make_writable(0, 1, 3, copies);
  EXPECT_EQ(table.pages_made(), 3);
  EXPECT_EQ(table.free_pages(), 0);
}

TEST(PageTableTest, SharedPagesAreSplitOffOnlyWhenWritten) {
  PageTable table = table_of(1, 3);
  table.add_rows(2);
  table.attach(1, table.pages(0));
  EXPECT_THAT(table.pages(1), ElementsAre(0, 1, 2));
  EXPECT_EQ(table.pages_made(), 3);

  std::vector<PageTable::Copy> copies;
  EXPECT_EQ(table.pages_needed(0, 2, 4), 2);
  table.make_writable(0, 2, 4, copies);
  ASSERT_EQ(copies.size(), 1U);
  EXPECT_EQ(copies[0].from, 2);
  EXPECT_EQ(copies[0].to, 3);
  EXPECT_THAT(table.pages(0), ElementsAre(0, 1, 3, 4));
  EXPECT_THAT(table.pages(1), ElementsAre(0, 1, 2));

  copies.clear();  // the other row owns its page alone now
  EXPECT_EQ(table.pages_needed(1, 2, 3), 0);
  table.make_writable(1, 2, 3, copies);
  EXPECT_TRUE(copies.empty());
}

TEST(PageTableTest, CopiesTakenBackAreSharedAgain) {
  PageTable table = table_of(1, 3);
  table.add_rows(2);
  table.attach(1, table.pages(0));
  std::vector<PageTable::Copy> copies;
  table.make_writable(0, 1, 4, copies);
  table.make_writable(1, 1, 3, copies);  // alone with its pages by now
  ASSERT_EQ(copies.size(), 2U);
  table.undo_copies(copies);
  EXPECT_THAT(table.pages(0), ElementsAre(0, 1, 2, 5));
  EXPECT_THAT(table.pages(1), ElementsAre(0, 1, 2));
  EXPECT_EQ(table.free_pages(), 2);
  EXPECT_EQ(table.pages_needed(0, 0, 4), 3) << "the new page stays with its row";
  EXPECT_EQ(table.pages_needed(1, 0, 3), 3);
}

TEST(PageTableTest, CountsThePagesOfRowsThatAreToCome) {
  const PageTable table = table_of(2, 3);
  using Branch = PageTable::Branch;
  EXPECT_EQ(table.pages_of({}), 0);
  EXPECT_EQ(table.pages_of(std::vector<Branch>{{0, 3, 0, 0}, {1, 1, 0, 0}}), 4);
  EXPECT_EQ(table.pages_of(std::vector<Branch>{{0, 3, 0, 0}, {0, 2, 0, 0}}), 3);
  EXPECT_EQ(table.pages_of(std::vector<Branch>{{0, 3, 2, 4}, {-1, 0, 0, 2}}), 6);
  EXPECT_EQ(table.pages_of(std::vector<Branch>{{0, 3, 2, 4}, {0, 3, 0, 0}}), 5);
  EXPECT_EQ(table.pages_of(std::vector<Branch>{{0, 3, 2, 4}, {0, 3, 2, 3}}), 5);
  EXPECT_THROW(static_cast<void>(table.pages_of(std::vector<Branch>{{0, 4, 0, 0}})), InternalError);
}

TEST(PageTableTest, HeldPagesAreKeptAndSharedAgain) {
  PageTable table = table_of(1, 3);
  const std::vector<PageTable::Page> held = table.hold(0, 2);
  EXPECT_THAT(held, ElementsAre(0, 1));
  EXPECT_EQ(table.held_pages(), 2);
  using Branch = PageTable::Branch;
  EXPECT_EQ(table.pages_of({}), 2);
  EXPECT_EQ(table.pages_of(std::vector<Branch>{{0, 3, 0, 4}}), 6) << "two are copied";

  table.trim(0, 0);
  EXPECT_EQ(table.free_pages(), 1);
  table.attach(0, held);
  EXPECT_THAT(table.pages(0), ElementsAre(0, 1));
  table.attach(0, std::span(held).first(1));
  table.release(held);
  EXPECT_EQ(table.held_pages(), 0);
  EXPECT_EQ(table.free_pages(), 2);
  EXPECT_THROW((void)table.hold(0, 2), InternalError);
}

TEST(PageTableTest, RefusesRowsThatDoNotExist) {
  PageTable table = table_of(1, 1);
  EXPECT_THROW(table.pages(1), InternalError);
  EXPECT_THROW(table.trim(-1, 0), InternalError);
  EXPECT_THROW(table.attach(1, {}), InternalError);
}

TEST(PageTableTest, ARowGivesBackItsFirstPages) {
  PageTable table = table_of(1, 4);
  table.add_rows(2);
  table.attach(1, table.pages(0).first(3));
  table.give_back_first(0, 2);
  EXPECT_THAT(table.pages(0), ElementsAre(-1, -1, 2, 3));
  EXPECT_EQ(table.free_pages(), 0) << "the other row still has them";
  table.give_back_first(1, 1);
  EXPECT_EQ(table.free_pages(), 1);
  EXPECT_THAT(table.hold(0, 3), ElementsAre(-1, -1, 2));
  EXPECT_EQ(table.held_pages(), 1);
  const std::vector<int64_t> lengths = {13, 9};
  const PageTable::Use use = table.use(lengths, 4);
  EXPECT_EQ(use.used, 3) << "pages 1, 2 and 3";
  EXPECT_EQ(use.tokens, 4 + 4 + 1);
  using Branch = PageTable::Branch;
  EXPECT_EQ(table.pages_of(std::vector<Branch>{{0, 4, 0, 0}}), 2);
  EXPECT_EQ(table.pages_needed(0, 0, 3), 3) << "two are gone, the third is shared";
  std::vector<PageTable::Copy> copies;
  table.make_writable(0, 1, 2, copies);
  EXPECT_THAT(table.pages(0), ElementsAre(-1, 0, 2, 3)) << "of a row that begins anew";
  EXPECT_TRUE(copies.empty());
  EXPECT_THROW(table.give_back_first(0, 5), InternalError);

  table.trim(1, 0);
  EXPECT_EQ(table.pages_needed(1, 2, 4), 2);
  table.make_writable(1, 2, 4, copies);
  EXPECT_EQ(table.pages(1)[1], PageTable::kNone) << "pages before the first are left out";
  EXPECT_GE(table.pages(1)[2], 0);
}

}  // namespace
}  // namespace specdec
