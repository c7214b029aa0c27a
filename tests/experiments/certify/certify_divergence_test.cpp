// What certify says of a greedy strategy whose tokens differ.
#include "experiments/certify/certify_divergence.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/transformer/transformer_model.h"
#include "kv/paged_kv.h"
#include "tests/support/fake_model.h"
#include "tests/support/tiny_gemma.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kDivergenceVocab = 5;

class WatchedModelTest : public testing::Test {
 protected:
  /// Expects that the logits seen are exactly those of the table.
  void expect_seen(const WatchedModel& watched, const std::vector<Token>& history, int64_t width) {
    ASSERT_TRUE(watched.sight());
    const auto wanted = table_(history);
    EXPECT_TRUE(at::equal(watched.sight()->logits, at::tensor(wanted, at::kDouble)));
    EXPECT_EQ(watched.sight()->width, width);
  }

  LogitTable table_ = random_table(kDivergenceVocab, 5, 8);
  FakeModel model_{kDivergenceVocab, table_};
};

TEST_F(WatchedModelTest, SeesTheEndOfAPrompt) {
  WatchedModel watched(model_, {0, 1, 2});
  watched.prefill_get_last_logits(std::vector<Token>{0, 1, 2, 3});
  EXPECT_FALSE(watched.sight()) << "no logits were made inside the prompt";
  watched.prefill_get_last_logits(std::vector<Token>{0, 1, 2});
  expect_seen(watched, {0, 1, 2}, 3);
}

TEST_F(WatchedModelTest, SeesANodeOfAChainAndOfItsContinuation) {
  const std::vector<Token> prompt = {0, 1, 2};
  Draft draft = Draft::root(4);
  draft.add(3, 0);
  draft.add(2, 1);
  WatchedModel inside(model_, {0, 1, 2, 4, 3});
  inside.prefill_get_last_logits(prompt);
  inside.verify_get_logits(draft);
  expect_seen(inside, {0, 1, 2, 4, 3}, 3);

  WatchedModel after(model_, {0, 1, 2, 4, 3, 1});
  after.prefill_get_last_logits(prompt);
  after.verify_get_logits(draft);
  after.commit(std::vector<int64_t>{0, 1});
  EXPECT_FALSE(after.sight());
  after.verify_get_logits(Draft::root(1));
  expect_seen(after, {0, 1, 2, 4, 3, 1}, 1);
}

TEST_F(WatchedModelTest, SeesANodeOfATreeThatGrows) {
  WatchedModel watched(model_, {0, 4, 3, 1});
  watched.prefill_get_last_logits(std::vector<Token>{0});
  Draft draft = Draft::root(4);
  draft.add(2, 0);
  draft.add(3, 0);
  watched.verify_get_logits(draft);
  watched.forward({.tokens = at::tensor({1, 1}, at::kInt), .rows = {}, .parents = {1, 2}});
  expect_seen(watched, {0, 4, 3, 1}, 2);
}

TEST_F(WatchedModelTest, ForgetsWhatIsTruncated) {
  WatchedModel watched(model_, {0, 1, 3});
  watched.prefill_get_last_logits(std::vector<Token>{0, 1, 2});
  watched.forward({.tokens = at::tensor({4}, at::kInt)});
  watched.truncate(2);
  watched.extend_get_last_logits(std::vector<Token>{3});
  expect_seen(watched, {0, 1, 3}, 1);
}

TEST_F(WatchedModelTest, FollowsRowsThatAreForked) {
  WatchedModel watched(model_, {0, 1, 4, 2});
  watched.prefill_get_last_logits(std::vector<Token>{0, 1});
  const std::vector<RowId> rows = {0, watched.fork(0, 2)};
  watched.decode_get_logits(std::vector<Token>{3, 4}, rows);
  watched.close(watched.open());
  const std::vector<RowId> forked = {watched.fork(rows[1], 3), 0};
  watched.decode_get_logits(std::vector<Token>{2, 2}, forked);
  expect_seen(watched, {0, 1, 4, 2}, 2);
}

TEST_F(WatchedModelTest, AnEarlyExitIsNoSight) {
  TransformerModel gemma(tiny_gemma(kDivergenceVocab), paged_kv());
  WatchedModel watched(gemma, {0, 1, 2});
  watched.prefill_get_last_logits(std::vector<Token>{0, 1});
  const TokenBatch batch{.tokens = at::tensor({2}, at::kInt)};
  watched.forward(batch, {.layers = {0, 1}});
  EXPECT_FALSE(watched.sight());
  watched.truncate(2);
  const auto logits = watched.forward(batch).logits;
  ASSERT_TRUE(watched.sight());
  EXPECT_TRUE(at::equal(watched.sight()->logits, logits[0]));
}

// ---- Divergences ----

constexpr double kUlpAtOne = 0x1p-23;  // of float32

TokenDivergence diverge(const std::vector<double>& plain_logits,
                        const std::vector<double>& own_logits) {
  const auto logits = [](const std::vector<double>& values) {
    return at::tensor(values, at::kDouble).to(at::kFloat);
  };
  return describe_divergence(std::vector<Token>{4, 0}, std::vector<Token>{4, 1}, 1,
                             logits(plain_logits), WatchedModel::Sight{logits(own_logits), 6},
                             Task{.prompt = {3}});
}

TEST(TokenDivergenceTest, ANearTie) {
  const double near = 1.0 - 8 * kUlpAtOne;
  const auto divergence = diverge({1.0, near, 0.0}, {near, 1.0, 0.0});
  EXPECT_EQ(divergence.cause(), DivergenceCause::kNearTie);
  EXPECT_EQ(divergence.position, 1);
  EXPECT_EQ(divergence.token_plain, 0);
  EXPECT_EQ(divergence.token_other, 1);
  EXPECT_EQ(divergence.width, 6);
  EXPECT_EQ(divergence.ulp, kUlpAtOne);
  EXPECT_EQ(divergence.gap_plain, 8 * kUlpAtOne);
  EXPECT_EQ(divergence.gap_other, 8 * kUlpAtOne);
  EXPECT_EQ(divergence.logit_difference, 8 * kUlpAtOne);
  EXPECT_THAT(explain(divergence), AllOf(HasSubstr("after 1 equal token plain decoding takes 0 ("),
                                         HasSubstr("a near tie"),
                                         HasSubstr("its forward of 6 nodes"), HasSubstr("16 ulp")));
}

TEST(TokenDivergenceTest, SixteenUlpsAreNearSeventeenAreNot) {
  const double near = 1.0 - 16 * kUlpAtOne;
  const double far = 1.0 - 17 * kUlpAtOne;
  EXPECT_EQ(diverge({1.0, near}, {near, 1.0}).cause(), DivergenceCause::kNearTie);
  EXPECT_EQ(diverge({1.0, near}, {far, 1.0}).cause(), DivergenceCause::kOtherLogits);
  EXPECT_EQ(diverge({1.0, far}, {near, 1.0}).cause(), DivergenceCause::kOtherLogits);
}

TEST(TokenDivergenceTest, OtherLogits) {
  const auto divergence = diverge({2.0, 1.0, 0.0}, {1.0, 2.0, 0.0});
  EXPECT_EQ(divergence.cause(), DivergenceCause::kOtherLogits);
  EXPECT_EQ(divergence.logit_difference, 1.0);
  EXPECT_THAT(explain(divergence), HasSubstr("cache, positions or mask are wrong"));
}

TEST(TokenDivergenceTest, AMistakeOfTheStrategy) {
  const auto divergence = diverge({2.0, 1.0, 0.0}, {2.0, 1.0, 0.0});
  EXPECT_EQ(divergence.cause(), DivergenceCause::kNotItsBest);
  EXPECT_THAT(explain(divergence), HasSubstr("a mistake of the strategy, not of rounding"));
}

TEST(TokenDivergenceTest, EndsAndPlacesThatWereNeverEvaluated) {
  const Task task{.prompt = {3}};
  const std::vector<Token> two = {4, 0};
  const std::vector<Token> one = {4};
  const auto early = describe_divergence(two, one, 1, {}, {}, task);
  EXPECT_EQ(early.cause(), DivergenceCause::kWrongEnd);
  EXPECT_THAT(explain(early), HasSubstr("the strategy ends; too early"));
  const auto late = describe_divergence(one, two, 1, {}, {}, task);
  EXPECT_EQ(late.cause(), DivergenceCause::kWrongEnd);
  EXPECT_THAT(explain(late), HasSubstr("goes on after the end"));
  const auto never = describe_divergence(two, std::vector<Token>{4, 1}, 1,
                                         at::tensor({2.0, 1.0}, at::kDouble), {}, task);
  EXPECT_EQ(never.cause(), DivergenceCause::kNeverEvaluated);
  EXPECT_THAT(explain(never), HasSubstr("it never evaluated this place"));
}

TEST(TokenDivergenceTest, FirstDifference) {
  using Tokens = std::vector<Token>;
  EXPECT_EQ(first_difference(Tokens{1, 2}, Tokens{1, 2}), std::nullopt);
  EXPECT_EQ(first_difference(Tokens{1, 2}, Tokens{1, 3}), 1);
  EXPECT_EQ(first_difference(Tokens{1, 2}, Tokens{1}), 1);
  EXPECT_EQ(first_difference(Tokens{1}, Tokens{1, 2}), 1);
}

}  // namespace
}  // namespace specdec
