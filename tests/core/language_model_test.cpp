#include "core/language_model.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"
#include "tests/support/fake_model.h"

namespace specdec {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
using Tokens = std::vector<Token>;

constexpr int64_t kVocab = 5;

LogitTable table() { return random_table(kVocab, 3, 3); }

void expect_logits(const Tensor& logits, const Tokens& history) {
  EXPECT_TRUE(at::equal(logits, at::tensor(table()(history)))) << "after " << history.size();
}

TEST(LanguageModelTest, PrefillBeginsANewSequence) {
  FakeModel model(kVocab, table());
  expect_logits(model.prefill_get_last_logits(Tokens{1, 2, 3}), {1, 2, 3});
  expect_logits(model.prefill_get_last_logits(Tokens{4, 0}), {4, 0});
  EXPECT_EQ(model.kept(), (Tokens{4, 0}));
}

TEST(LanguageModelTest, PrefillForgetsPendingNodesAndNoOtherRow) {
  FakeModel model(kVocab, table());
  model.prefill_get_last_logits(Tokens{1});
  const RowId other = model.fork(0, 1);
  model.verify_get_logits(Draft::root(2));
  model.prefill_get_last_logits(Tokens{3, 3});
  EXPECT_EQ(model.length(0), 2);
  EXPECT_EQ(model.pending(0), 0);
  EXPECT_EQ(model.kept(other), Tokens{1});
}

TEST(LanguageModelTest, LongPromptsAreFedInPieces) {
  FakeModel model(kVocab, table(), 2000);
  Tokens prompt(1100);
  for (size_t i = 0; i < prompt.size(); ++i) {
    prompt[i] = static_cast<Token>(i * i % kVocab);
  }
  const ForwardResult result =
      model.prefill(prompt, {.capture_layers = {2, 0}, .hidden = Hidden::kAll});
  EXPECT_EQ(model.forwards(), (std::vector<int64_t>{512, 512, 76}));
  EXPECT_EQ(model.kept(), prompt);
  expect_logits(result.logits[0], prompt);
  ASSERT_EQ(result.captured.size(), 2U);
  for (const size_t at : {0U, 511U, 512U, 1099U}) {
    const TokenSpan history = TokenSpan(prompt).first(at + 1);
    const auto row = static_cast<int64_t>(at);
    const auto expected = [&](int64_t layer) {
      return at::tensor(FakeModel::hidden_state(history, layer));
    };
    EXPECT_TRUE(at::equal(result.final_hidden[row], expected(-1)));
    EXPECT_TRUE(at::equal(result.captured[0][row], expected(2)));
    EXPECT_TRUE(at::equal(result.captured[1][row], expected(0)));
  }
}

TEST(LanguageModelTest, ExtendAppends) {
  FakeModel model(kVocab, table());
  model.prefill_get_last_logits(Tokens{1});
  expect_logits(model.extend_get_last_logits(Tokens{2, 0}), {1, 2, 0});
  EXPECT_EQ(model.kept(), (Tokens{1, 2, 0}));
}

TEST(LanguageModelTest, DecodeFeedsOneTokenARow) {
  FakeModel model(kVocab, table());
  model.prefill_get_last_logits(Tokens{1, 1});
  const std::vector<RowId> rows = {model.fork(0, 2), 0};
  const Tensor logits = model.decode_get_logits(Tokens{2, 3}, rows);
  expect_logits(logits[0], {1, 1, 2});
  expect_logits(logits[1], {1, 1, 3});
  EXPECT_EQ(model.kept(rows[0]), (Tokens{1, 1, 2}));
}

TEST(LanguageModelTest, VerifiedNodesArePendingUntilCommitted) {
  FakeModel model(kVocab, table());
  model.prefill_get_last_logits(Tokens{1, 2});
  Draft draft = Draft::root(3);
  draft.add(4, 0);
  draft.add(0, 0);
  draft.add(1, 2);
  const Tensor logits = model.verify_get_logits(draft);
  expect_logits(logits[0], {1, 2, 3});
  expect_logits(logits[1], {1, 2, 3, 4});
  expect_logits(logits[2], {1, 2, 3, 0});
  expect_logits(logits[3], {1, 2, 3, 0, 1});
  EXPECT_EQ(model.length(), 2);
  EXPECT_EQ(model.pending(), 4);
  model.commit(std::vector<int64_t>{0, 2});
  EXPECT_EQ(model.kept(), (Tokens{1, 2, 3, 0}));
  EXPECT_EQ(model.pending(), 0);
}

TEST(LanguageModelTest, PromptsThatCannotBeFedSayWhy) {
  FakeModel model(kVocab, table(), 4);
  model.prefill_get_last_logits(Tokens{1, 2});
  EXPECT_THAT([&] { model.prefill_get_last_logits({}); },
              ThrowsMessage<Error>(HasSubstr("prompt is empty")));
  EXPECT_THAT(
      [&] {
        model.prefill_get_last_logits(Tokens{1, 1, 1, 1, 1});
      },
      ThrowsMessage<Error>(HasSubstr("5 tokens, but the model holds at most 4: shorten")));
  EXPECT_THAT(
      [&] {
        model.prefill_get_last_logits(Tokens{1, 5});
      },
      ThrowsMessage<Error>(HasSubstr("token 5 at position 1 is outside")));
  EXPECT_THAT([&] { model.prefill_get_last_logits(Tokens{-1}); },
              ThrowsMessage<Error>(HasSubstr("token -1 at position 0 is outside")));
  EXPECT_EQ(model.kept(), (Tokens{1, 2})) << "a refused prompt changes nothing";
}

TEST(LanguageModelTest, MoreThanTheModelHoldsIsAnError) {
  FakeModel model(kVocab, table(), 3);
  model.prefill_get_last_logits(Tokens{1, 2});
  EXPECT_THROW(model.extend_get_last_logits(Tokens{1, 1}), Error);
  Draft draft = Draft::root(0);
  draft.add(1, 0);
  EXPECT_THROW(model.verify_get_logits(draft), Error);
  EXPECT_EQ(model.pending(), 0);
  model.decode_get_logits(Tokens{1});
  EXPECT_THROW(model.decode_get_logits(Tokens{1}), Error);
}

TEST(LanguageModelTest, TokensOutsideTheVocabularyAreNamed) {
  FakeModel model(kVocab, table());
  model.prefill_get_last_logits(Tokens{1, 2});
  const auto complaint = [](const char* where) { return ThrowsMessage<Error>(HasSubstr(where)); };
  EXPECT_THAT(
      [&] {
        model.extend_get_last_logits(Tokens{1, 9});
      },
      complaint("token 9 at position 3"));
  EXPECT_THAT([&] { model.decode_get_logits(Tokens{8}); }, complaint("token 8 at position 2"));
  EXPECT_THAT([&] { model.verify_get_logits(Draft::root(-7)); },
              complaint("token -7 at position 2"));
}

TEST(LanguageModelTest, CallsOutOfOrderAreBugs) {
  FakeModel model(kVocab, table());
  EXPECT_THROW(model.decode_get_logits(Tokens{1}), InternalError);
  EXPECT_THROW(model.verify_get_logits(Draft::root(1)), InternalError);
  model.prefill_get_last_logits(Tokens{1});
  EXPECT_THROW(model.decode_get_logits(Tokens{1, 1}), InternalError);
  EXPECT_THROW(model.decode_get_logits({}), InternalError);
  EXPECT_THROW(model.extend_get_last_logits({}), InternalError);
  EXPECT_THROW(model.verify_get_logits(Draft()), InternalError);
  model.verify_get_logits(Draft::root(2));
  EXPECT_THROW(model.verify_get_logits(Draft::root(2)), InternalError);
  EXPECT_THROW(model.extend_get_last_logits(Tokens{1}), InternalError);
  EXPECT_THROW(model.decode_get_logits(Tokens{1}), InternalError);
  model.truncate(1);
  const std::vector<RowId> rows = {0, model.fork(0, 1)};
  EXPECT_THROW(model.decode_get_logits(Tokens{1}, rows), InternalError) << "two rows, one token";
  model.close(rows[1]);
  EXPECT_THROW(model.decode_get_logits(Tokens{1, 1}, rows), InternalError) << "a closed row";
}

TEST(FakeModelTest, ChecksLikeTheRealOne) {
  FakeModel model(kVocab, table(), 4);
  const auto batch = [](const Tokens& tokens, std::vector<int64_t> parents) {
    return TokenBatch{.tokens = at::tensor(at::ArrayRef<Token>(tokens)).to(at::kInt),
                      .parents = std::move(parents)};
  };
  EXPECT_THROW(model.forward(batch({1}, {0})), InternalError);
  EXPECT_THROW(model.forward(batch({1, 2}, {-1})), InternalError);
  EXPECT_THROW(model.forward(batch({9}, {-1})), Error);
  EXPECT_THROW(model.forward(batch({1, 1, 1, 1, 1}, {})), Error);
  EXPECT_EQ(model.pending(), 0);
  model.forward(batch({1, 2}, {-1, -1}));
  model.forward(batch({3}, {1}));
  EXPECT_THROW(model.commit(std::vector<int64_t>{0, 2}), InternalError);
  EXPECT_THROW(model.commit(std::vector<int64_t>{3}), InternalError);
  model.commit(std::vector<int64_t>{1, 2});
  EXPECT_EQ(model.kept(), (Tokens{2, 3}));
  EXPECT_THROW(model.truncate(3), InternalError);
  EXPECT_THROW(model.commit({}, 1), InternalError);
  EXPECT_THROW(model.fork(0, 3), InternalError);
  EXPECT_THROW(model.fork(1, 0), InternalError);
  EXPECT_THROW(model.close(0), InternalError);
  model.truncate(1);
  EXPECT_EQ(model.kept(), Tokens{2});
}

TEST(FakeModelTest, GivesTheLogitsThatAreAskedFor) {
  FakeModel model(kVocab, table());
  const TokenBatch batch{.tokens = at::tensor({1, 2, 3}, at::kInt), .rows = {0, 0, model.open()}};
  const ForwardResult last =
      model.forward(batch, {.logits = Logits::kLast, .hidden = Hidden::kScored});
  ASSERT_EQ(last.logits.size(0), 2);
  expect_logits(last.logits[0], {1, 2});
  expect_logits(last.logits[1], {3});
  EXPECT_EQ(last.final_hidden.size(0), 2);
  const ForwardResult none = model.forward(batch, {.logits = Logits::kNone});
  EXPECT_FALSE(none.logits.defined());
  EXPECT_FALSE(none.final_hidden.defined());
}

}  // namespace
}  // namespace specdec
