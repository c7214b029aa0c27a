#include "core/row_view.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>

#include "core/error.h"
#include "core/open_row.h"
#include "tests/support/fake_model.h"

namespace specdec {
namespace {

using Tokens = std::vector<Token>;

constexpr int64_t kVocab = 5;

class RowViewTest : public testing::Test {
 protected:
  void expect_logits(const Tensor& logits, const Tokens& history) const {
    EXPECT_TRUE(at::equal(logits, at::tensor(table_(history))));
  }

  LogitTable table_ = random_table(kVocab, 3, 3);
  FakeModel model_{kVocab, table_};
};

TEST_F(RowViewTest, ItsRowZeroIsTheRow) {
  RowView first(model_, model_.open());
  RowView second(model_, model_.open());
  expect_logits(first.prefill_get_last_logits(Tokens{1, 2}), {1, 2});
  expect_logits(second.prefill_get_last_logits(Tokens{3}), {3});
  Draft draft = Draft::root(4);
  draft.add(0, 0);
  draft.add(2, 0);
  const Tensor logits = first.verify_get_logits(draft);
  expect_logits(logits[2], {1, 2, 4, 2});
  expect_logits(second.decode_get_logits(Tokens{1})[0], {3, 1});
  EXPECT_EQ(first.pending(), 3) << "another row's commit leaves them";
  first.commit(std::vector<int64_t>{0, 2});
  EXPECT_EQ(model_.kept(1), (Tokens{1, 2, 4, 2}));
  EXPECT_EQ(model_.kept(2), (Tokens{3, 1}));
  EXPECT_EQ(model_.length(), 0);
  second.prefill_get_last_logits(Tokens{0});
  EXPECT_EQ(first.length(), 4) << "a prefill forgets its own row alone";
}

TEST_F(RowViewTest, OpensAndForksRowsOfTheModel) {
  RowView view(model_, model_.open());
  view.prefill_get_last_logits(Tokens{1, 2});
  RowId branch = 0;
  {
    const OpenRow fork(view, view.fork(0, 1));
    branch = fork.name();
    const std::vector<RowId> rows = {branch, 0};
    const Tensor logits = view.decode_get_logits(Tokens{4, 3}, rows);
    expect_logits(logits[0], {1, 4});
    expect_logits(logits[1], {1, 2, 3});
    EXPECT_EQ(model_.kept(branch), (Tokens{1, 4}));
  }
  EXPECT_THROW((void)model_.length(branch), InternalError) << "closed with its owner";
  EXPECT_THROW(view.close(0), InternalError);
  EXPECT_THROW(view.close(1), InternalError) << "its own by the model's name";
}

TEST_F(RowViewTest, AViewOfAClosedRowThrows) {
  const RowId row = model_.open();
  RowView view(model_, row);
  view.prefill_get_last_logits(Tokens{1, 2});
  model_.close(row);
  EXPECT_NE(model_.open(), row);
  EXPECT_THROW((void)view.length(), InternalError);
  EXPECT_THROW((void)view.pending(), InternalError);
  EXPECT_THROW(view.truncate(0), InternalError);
  EXPECT_THROW(view.commit({}), InternalError);
  EXPECT_THROW(view.fork(0, 0), InternalError);
  EXPECT_THROW(view.prefill_get_last_logits(Tokens{1}), InternalError);
  EXPECT_THROW(view.forward({.tokens = at::ones({1}, at::kInt)}), InternalError);
}

TEST_F(RowViewTest, OpenRowsMoveWithoutClosing) {
  OpenRow row(model_);
  const RowId name = row.name();
  OpenRow moved = std::move(row);
  EXPECT_EQ(model_.length(name), 0);
  moved = OpenRow(model_);
  EXPECT_THROW((void)model_.length(name), InternalError) << "it has another row now";
  EXPECT_EQ(model_.length(moved.name()), 0);
}

}  // namespace
}  // namespace specdec
