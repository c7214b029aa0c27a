// Models over a cache that gives back what windows have left behind, against models over one that
// keeps all: every logit has the same bits.
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/families/model.h"
#include "core/prefix_cached_model.h"
#include "core/prefix_store.h"
#include "kv/paged_kv.h"
#include "tests/support/error_message.h"
#include "tests/support/golden.h"
#include "tests/support/slack_pair.h"
#include "tests/support/tiny_gemma.h"
#include "tests/support/tiny_gemma4.h"

namespace specdec {
namespace {

using testing::HasSubstr;

constexpr int64_t kSlackVocab = 40;

std::shared_ptr<const TransformerWeights> slack_weights(const std::string& name) {
  if (name == "gemma3") {
    return tiny_gemma(kSlackVocab, at::kFloat);
  }
  return name.find('-') == std::string::npos ? tiny_gemma4(name, kSlackVocab, at::kFloat)
                                             : load_model(test_data(name), {.dtype = at::kFloat});
}

/// A golden model, or a kind of tiny_gemma4.
class WindowSlackModelTest : public testing::TestWithParam<std::string> {};

TEST_P(WindowSlackModelTest, RandomHistoriesHaveTheBitsOfACacheThatKeepsAll) {
  const c10::InferenceMode guard;
  at::set_num_threads(1);
  const auto weights = slack_weights(GetParam());
  int64_t saved = 0;
  for (uint32_t seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    SlackPair pair(weights, {.slack = 1 + seed % 5, .page_size = 1 + seed % 4, .seed = seed});
    for (int step = 0; step < 60 && !HasFatalFailure(); ++step) {
      pair.step();
    }
    saved = std::max(saved, pair.most_saved());
  }
  EXPECT_GT(saved, 10) << "pages should have been given back";
}

INSTANTIATE_TEST_SUITE_P(All, WindowSlackModelTest,
                         testing::Values("gemma3", "dense", "e", "moe", "3n", "gemma3-a",
                                         "gemma4-e-a", "mistral-a"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

std::vector<Token> text_of(int64_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<Token> text(static_cast<size_t>(size));
  std::generate(text.begin(), text.end(),
                [&] { return static_cast<Token>(random() % kSlackVocab); });
  return text;
}

std::unique_ptr<TransformerModel> slack_model(int64_t slack) {
  return std::make_unique<TransformerModel>(tiny_gemma(kSlackVocab, at::kFloat),
                                            paged_kv(2, KvFormat::kNative, 0, slack));
}

TEST(WindowSlackTextsTest, TruncatingBeyondItSaysHowToGoOn) {
  const auto model = slack_model(3);
  (void)model->prefill_get_last_logits(text_of(30, 1));
  EXPECT_EQ(model->rewindable_to(28), 28);
  EXPECT_EQ(model->rewindable_to(20), 0);
  EXPECT_THAT(error_message<Error>([&] { model->truncate(20); }), HasSubstr("window_slack"));
  EXPECT_THAT(error_message<Error>([&] { model->fork(0, 20); }), HasSubstr("window_slack"));
  EXPECT_EQ(model->length(), 30);
}

TEST(WindowSlackTextsTest, APrefixThatIsGoneIsReadAnew) {
  const std::vector<Token> first = text_of(40, 1);
  std::vector<Token> longer = first;
  longer.push_back(3);
  std::vector<Token> other(first.begin(), first.begin() + 20);
  other.resize(30, 5);
  const auto model = slack_model(3);
  const auto plain = slack_model(0);
  PrefixStore store(int64_t{1} << 30);
  int64_t reused = 0;
  for (const auto& [prompt, tokens] :
       {std::pair(first, 0), std::pair(longer, 40), std::pair(other, 0)}) {
    const Tensor logits = store.prefill(*model, prompt, {}).logits;
    EXPECT_TRUE(at::equal(logits, plain->prefill(prompt, {}).logits));
    reused += tokens;
    EXPECT_EQ(store.statistics().reused_tokens, reused);
  }
  EXPECT_EQ(store.statistics().hits, 1);
}

TEST(WindowSlackTextsTest, AModelThatKeepsItsPrefixReadsItAnewAndSaysSo) {
  const std::vector<Token> first = text_of(40, 1);
  std::vector<Token> other(first.begin(), first.begin() + 20);
  other.resize(30, 5);
  PrefixCachedModel model(slack_model(3));
  const auto plain = slack_model(0);
  const auto expect_same = [&](const std::vector<Token>& prompt, int64_t reused) {
    const Tensor logits = model.prefill_get_last_logits(prompt);
    EXPECT_TRUE(at::equal(logits, plain->prefill_get_last_logits(prompt)));
    EXPECT_EQ(model.reused(), reused);
    EXPECT_EQ(model.length(), std::ssize(prompt));
  };
  expect_same(first, 0);
  std::vector<Token> longer = first;
  longer.resize(45, 7);
  expect_same(longer, 40);
  EXPECT_EQ(model.rewindable_to(44), 44);
  EXPECT_EQ(model.rewindable_to(30), 0);
  expect_same(other, 0);
  expect_same(first, 0);
}

TEST(WindowSlackTextsTest, APrefixOfSeveralPiecesIsReadAnew) {
  // The first piece of the second prompt is known, and then it is not.
  const std::vector<Token> first = text_of(600, 1);
  std::vector<Token> other(first.begin(), first.begin() + 550);
  other.resize(580, 5);
  const auto make = [](int64_t slack) {
    return std::make_unique<TransformerModel>(tiny_gemma(kSlackVocab, at::kFloat),
                                              paged_kv(4, KvFormat::kNative, 0, slack),
                                              TransformerOptions{.max_length = 700});
  };
  PrefixCachedModel model(make(3));
  PrefixCachedModel keeps_all(make(0));
  const auto plain = make(0);
  for (const auto& prompt : {first, other}) {
    const Tensor wanted = plain->prefill_get_last_logits(prompt);
    EXPECT_TRUE(at::equal(model.prefill_get_last_logits(prompt), wanted));
    EXPECT_TRUE(at::equal(keeps_all.prefill_get_last_logits(prompt), wanted));
  }
  EXPECT_EQ(model.reused(), 0);
  EXPECT_EQ(keeps_all.reused(), 550);
}

TEST(WindowSlackTextsTest, LongPromptsTakeWindowsOfPages) {
  TransformerModel model(tiny_gemma(kSlackVocab, at::kFloat), paged_kv(16, KvFormat::kNative, 0, 8),
                         {.max_length = 4096});
  (void)model.prefill_get_last_logits(text_of(3000, 1));
  const KvStatistics use = model.cache().statistics();
  EXPECT_EQ(use.layers[1].used_pages, 188) << "sees all";
  EXPECT_LE(use.layers[0].used_pages, 2) << "window 6 and slack 8";
  EXPECT_LE(use.layers[0].allocated_pages, 34) << "of a piece of 512 and a window";
  EXPECT_EQ(use.layers[1].allocated_pages, 188);
}

}  // namespace
}  // namespace specdec
