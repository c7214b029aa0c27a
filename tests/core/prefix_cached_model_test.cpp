#include "core/prefix_cached_model.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <numeric>

#include "core/error.h"
#include "tests/support/fake_model.h"

namespace specdec {
namespace {

using Tokens = std::vector<Token>;

constexpr int64_t kEntries = 5;

/// A model beside the same one without the cache, both as strategies use them.
class PrefixCachedModelTest : public testing::Test {
 protected:
  PrefixCachedModelTest() {
    auto fake = std::make_unique<FakeModel>(kEntries, random_table(kEntries, 3, 4), 2000);
    fake_ = fake.get();
    cached_ = std::make_unique<PrefixCachedModel>(std::move(fake));
  }

  /// Prefills both models and compares them; returns the tokens that the cached one evaluated.
  int64_t prefill(const Tokens& prompt, const ForwardOptions& options) {
    const size_t before = fake_->forwards().size();
    const ForwardResult mine = cached_->prefill(prompt, options);
    const ForwardResult wanted = plain_.prefill(prompt, options);
    EXPECT_TRUE(at::equal(mine.logits, wanted.logits));
    if (options.hidden == Hidden::kAll) {
      EXPECT_TRUE(at::equal(mine.final_hidden, wanted.final_hidden));
    }
    EXPECT_EQ(mine.captured.size(), wanted.captured.size());
    for (size_t layer = 0; layer < wanted.captured.size(); ++layer) {
      EXPECT_TRUE(at::equal(mine.captured[layer], wanted.captured[layer]));
    }
    EXPECT_EQ(fake_->kept(), prompt);
    EXPECT_EQ(cached_->length(), std::ssize(prompt));
    EXPECT_EQ(cached_->pending(), 0);
    const auto& forwards = fake_->forwards();
    return std::accumulate(forwards.begin() + static_cast<int64_t>(before), forwards.end(),
                           int64_t{0});
  }

  FakeModel* fake_;
  std::unique_ptr<PrefixCachedModel> cached_;
  FakeModel plain_{kEntries, random_table(kEntries, 3, 4), 2000};
};

TEST_F(PrefixCachedModelTest, EvaluatesOnlyWhatIsNew) {
  EXPECT_EQ(prefill({1, 2, 3, 4}, {}), 4);
  cached_->decode_get_logits(Tokens{0});
  EXPECT_EQ(prefill({1, 2, 3, 4, 0, 2, 2}, {}), 2) << "a turn goes on";
  EXPECT_EQ(cached_->reused(), 5);
  EXPECT_EQ(prefill({1, 2, 0, 1}, {}), 2) << "another one after the same beginning";
  EXPECT_EQ(prefill({1, 2, 0, 1}, {}), 1) << "the last token's logits are wanted";
  EXPECT_EQ(prefill({1, 2}, {}), 1) << "a shorter one";
  EXPECT_EQ(prefill({2, 1}, {}), 2) << "nothing in common";
  EXPECT_EQ(cached_->reused(), 0);
}

TEST_F(PrefixCachedModelTest, LongPromptsAreReusedAcrossPieces) {
  Tokens prompt(1300);
  for (size_t i = 0; i < prompt.size(); ++i) {
    prompt[i] = static_cast<Token>(i * i % kEntries);
  }
  const Tokens beginning(prompt.begin(), prompt.begin() + 1100);
  EXPECT_EQ(prefill(beginning, {}), 1100);
  EXPECT_EQ(prefill(prompt, {}), 200);
  EXPECT_EQ(prefill(prompt, {.capture_layers = {2}}), 1300) << "no states were kept";
  EXPECT_EQ(prefill(beginning, {.capture_layers = {2}}), 1);
  EXPECT_EQ(prefill(prompt, {.capture_layers = {2}}), 200);
  EXPECT_EQ(prefill(prompt, {.capture_layers = {1}}), 1300) << "of other layers";
}

TEST_F(PrefixCachedModelTest, StatesOfVerifiedTokensAreKept) {
  const ForwardOptions options = {.capture_layers = {0, 3}, .hidden = Hidden::kAll};
  EXPECT_EQ(prefill({1, 2, 3}, options), 3);
  Draft draft = Draft::root(4);
  draft.add(0, 0);
  const int64_t branch = draft.add(1, 0);
  draft.add(2, branch);
  (void)cached_->verify(draft, options);
  cached_->commit(std::vector<int64_t>{0, 2, 3});
  EXPECT_EQ(prefill({1, 2, 3, 4, 1, 2, 0}, options), 1);
  EXPECT_EQ(prefill({1, 2, 3, 4, 1, 0}, options), 1);
}

TEST_F(PrefixCachedModelTest, NodesThatAreForgottenLeaveNoTrace) {
  const ForwardOptions states = {.hidden = Hidden::kAll};
  EXPECT_EQ(prefill({1, 2, 3}, states), 3);
  (void)cached_->verify(Draft::root(4), states);
  cached_->truncate(2);
  EXPECT_EQ(cached_->length(), 2);
  (void)cached_->extend_get_last_logits(Tokens{0, 0});
  EXPECT_EQ(prefill({1, 2, 0, 0, 1}, states), 3) << "no states of the tokens after 1, 2";
}

TEST_F(PrefixCachedModelTest, RowsBeginFromTheCache) {
  EXPECT_EQ(prefill({1, 2, 3}, {}), 3);
  const std::vector<RowId> rows = {cached_->fork(0, 2), 0};
  (void)cached_->decode_get_logits(Tokens{2, 3}, rows);
  EXPECT_EQ(prefill({1, 2, 3, 3, 0}, {}), 1) << "row 0 holds the second one's tokens";
  EXPECT_EQ(cached_->length(rows[0]), 3);
  const RowId fork = cached_->fork(0, 4);
  EXPECT_EQ(cached_->length(fork), 4);
  cached_->close(fork);
  EXPECT_THROW((void)cached_->length(fork), InternalError);
}

TEST_F(PrefixCachedModelTest, AFailedPrefillKeepsTheCacheUsable) {
  EXPECT_EQ(prefill({1, 2, 3}, {}), 3);
  EXPECT_THROW(cached_->prefill_get_last_logits(Tokens{1, 2, kEntries}), Error);
  EXPECT_EQ(prefill({1, 2, 3, 0}, {}), 1);
  cached_->truncate(0);
  EXPECT_EQ(cached_->length(), 0) << "a new sequence is empty whatever the model keeps";
  EXPECT_THROW(cached_->truncate(1), InternalError);
  EXPECT_EQ(prefill({1, 2, 3, 1}, {}), 1);
}

/// A model that can only be truncated to nothing, as one whose windows left much behind.
class ForgetfulModel final : public LanguageModel {
 public:
  ForwardResult forward(const TokenBatch& batch, const ForwardOptions& options) override {
    if (fails) {
      throw Error("no room");
    }
    return model_.forward(batch, options);
  }
  void commit(std::span<const int64_t> path, RowId row) override { model_.commit(path, row); }
  void truncate(int64_t length, RowId row) override {
    EXPECT_TRUE(length == 0 || length == model_.length(row)) << length;
    model_.truncate(length, row);
  }
  int64_t rewindable_to(int64_t length, RowId row) const override {
    return length < model_.length(row) ? 0 : length;
  }
  RowId open() override { return model_.open(); }
  RowId fork(RowId row, int64_t length) override { return model_.fork(row, length); }
  void close(RowId row) override { model_.close(row); }
  int64_t length(RowId row) const override { return model_.length(row); }
  int64_t pending(RowId row) const override { return model_.pending(row); }
  int64_t vocab_size() const override { return model_.vocab_size(); }
  int64_t max_length() const override { return model_.max_length(); }

  bool fails = false;

 private:
  FakeModel model_{kEntries, random_table(kEntries, 3, 4), 2000};
};

TEST(PrefixCachedModelRewindTest, WhatCouldNotBeReadAgainIsForgotten) {
  auto own = std::make_unique<ForgetfulModel>();
  ForgetfulModel& inner = *own;
  PrefixCachedModel cached(std::move(own));
  FakeModel plain(kEntries, random_table(kEntries, 3, 4), 2000);
  const auto same = [&](const Tokens& prompt) {
    return at::equal(cached.prefill(prompt, {}).logits, plain.prefill(prompt, {}).logits);
  };
  EXPECT_TRUE(same({1, 2, 3, 4}));
  EXPECT_TRUE(same({1, 2, 0, 1}));  // the common beginning is read again
  inner.fails = true;
  EXPECT_THROW(cached.prefill(Tokens{1, 2, 4, 4}, {}), Error);
  inner.fails = false;
  EXPECT_TRUE(same({1, 2, 0, 1, 3}));
  EXPECT_TRUE(same({1, 2, 0, 1, 3, 2}));
  EXPECT_GT(cached.reused(), 0);
}

}  // namespace
}  // namespace specdec
