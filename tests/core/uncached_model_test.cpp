#include "core/uncached_model.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/support/fake_model.h"

namespace specdec {
namespace {

using Tokens = std::vector<Token>;

constexpr int64_t kPieces = 5;

class UncachedModelTest : public testing::Test {
 protected:
  static void expect_same(const ForwardResult& mine, const ForwardResult& wanted) {
    EXPECT_TRUE(at::equal(mine.logits, wanted.logits));
    EXPECT_TRUE(at::equal(mine.final_hidden, wanted.final_hidden));
    ASSERT_EQ(mine.captured.size(), wanted.captured.size());
    for (size_t layer = 0; layer < wanted.captured.size(); ++layer) {
      EXPECT_TRUE(at::equal(mine.captured[layer], wanted.captured[layer]));
    }
  }

  FakeModel inner_{kPieces, random_table(kPieces, 7, 4)};
  UncachedModel uncached_{inner_};
  FakeModel plain_{kPieces, random_table(kPieces, 7, 4)};
};

TEST_F(UncachedModelTest, TreesAndStatesAreThoseOfTheModel) {
  const ForwardOptions options = {.capture_layers = {1, 4}, .hidden = Hidden::kAll};
  expect_same(uncached_.prefill(Tokens{1, 2, 3}, options),
              plain_.prefill(Tokens{1, 2, 3}, options));
  Draft draft = Draft::root(4);
  draft.add(0, 0);
  const int64_t branch = draft.add(1, 0);
  draft.add(2, branch);
  expect_same(uncached_.verify(draft, options), plain_.verify(draft, options));
  const std::vector<int64_t> path = {0, 2, 3};
  uncached_.commit(path);
  plain_.commit(path);
  EXPECT_EQ(uncached_.length(), 6);
  EXPECT_EQ(uncached_.pending(), 0);
  expect_same(uncached_.extend(Tokens{0}, options), plain_.extend(Tokens{0}, options));
  uncached_.truncate(2);
  plain_.truncate(2);
  const ForwardOptions states = {.hidden = Hidden::kAll};
  expect_same(uncached_.extend(Tokens{0}, states), plain_.extend(Tokens{0}, states));
}

TEST_F(UncachedModelTest, RowsAreThoseOfTheModel) {
  for (LanguageModel* model :
       {static_cast<LanguageModel*>(&uncached_), static_cast<LanguageModel*>(&plain_)}) {
    (void)model->prefill_get_last_logits(Tokens{1, 2});
    EXPECT_EQ(model->fork(0, 1), 1);
    EXPECT_EQ(model->open(), 2);
    model->close(2);
  }
  const std::vector<RowId> rows = {0, 1};
  EXPECT_TRUE(at::equal(uncached_.decode_get_logits(Tokens{3, 4}, rows),
                        plain_.decode_get_logits(Tokens{3, 4}, rows)));
  EXPECT_TRUE(at::equal(uncached_.decode_get_logits(Tokens{0}, std::span(rows).last(1)),
                        plain_.decode_get_logits(Tokens{0}, std::span(rows).last(1))));
  EXPECT_THROW((void)uncached_.length(2), InternalError);
}

TEST_F(UncachedModelTest, EachTokenCostsAPrefillOfTheText) {
  (void)uncached_.prefill_get_last_logits(Tokens{1, 2, 3});
  (void)uncached_.decode_get_logits(Tokens{4});
  (void)uncached_.decode_get_logits(Tokens{0});
  EXPECT_EQ(inner_.forwards(), (std::vector<int64_t>{3, 4, 5}));
}

TEST_F(UncachedModelTest, MistakesChangeNothing) {
  (void)uncached_.prefill_get_last_logits(Tokens{1, 2});
  EXPECT_THROW(uncached_.commit(std::vector<int64_t>{0}), InternalError);
  EXPECT_THROW(uncached_.truncate(3), InternalError);
  EXPECT_THROW(uncached_.extend_get_last_logits(Tokens{kPieces}), Error);
  EXPECT_EQ(uncached_.length(), 2);
  EXPECT_EQ(uncached_.internals(), nullptr);
}

}  // namespace
}  // namespace specdec
