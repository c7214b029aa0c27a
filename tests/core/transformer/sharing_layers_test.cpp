// Layers without keys and values of their own are evaluated for the last tokens of a prompt only,
// where nobody asks for more: with the bits of a forward of all of them.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "core/transformer/transformer_model.h"
#include "kv/paged_kv.h"
#include "tests/support/recording_ops.h"
#include "tests/support/tiny_gemma4.h"

namespace specdec {
namespace {

/// A Gemma 4 E or 3n with four layers, of which the last two share.
class SharingLayersTest : public testing::TestWithParam<std::string> {
 protected:
  TransformerModel model() const { return TransformerModel(weights_, paged_kv()); }
  static std::vector<Token> prompt(int64_t length) {
    std::vector<Token> tokens;
    for (int64_t i = 0; i < length; ++i) {
      tokens.push_back(static_cast<Token>(i * i % 11));
    }
    return tokens;
  }

  std::shared_ptr<TransformerWeights> weights_ = tiny_gemma4(GetParam(), 12, at::kFloat);
};

TEST_P(SharingLayersTest, TheLastTokenHasTheBitsOfAForwardOfAll) {
  for (const int64_t length : {2, 7, 100}) {
    TransformerModel all = model();
    TransformerModel some = model();
    const ForwardResult wanted =
        all.prefill(prompt(length), {.logits = Logits::kLast, .hidden = Hidden::kAll});
    const ForwardResult found =
        some.prefill(prompt(length), {.logits = Logits::kLast, .hidden = Hidden::kScored});
    ASSERT_EQ(wanted.final_hidden.size(0), length);
    ASSERT_EQ(found.final_hidden.size(0), 1);
    EXPECT_TRUE(at::equal(found.logits, wanted.logits)) << length;
    EXPECT_TRUE(at::equal(found.final_hidden[0], wanted.final_hidden[length - 1])) << length;
    const std::vector<Token> next = {3, 4, 5};
    EXPECT_TRUE(at::equal(some.extend_get_last_logits(next),
                          all.extend(next, {.logits = Logits::kLast}).logits[0]));
    EXPECT_TRUE(at::equal(some.decode_get_logits(std::vector<Token>{6}),
                          all.decode_get_logits(std::vector<Token>{6})));
  }
}

TEST_P(SharingLayersTest, RowsOfUnequalLengthsHaveOneLastTokenEach) {
  const std::vector<int64_t> rows = {0, 0, 0, 0, 0, 1, 2, 2, 2};
  const TokenBatch batch{.tokens = token_tensor(prompt(9)), .rows = rows};
  TransformerModel all = model();
  TransformerModel some = model();
  for (TransformerModel* each : {&all, &some}) {
    each->open();
    each->open();
  }
  const ForwardResult wanted =
      all.forward(batch, {.logits = Logits::kLast, .hidden = Hidden::kAll});
  const ForwardResult found =
      some.forward(batch, {.logits = Logits::kLast, .hidden = Hidden::kScored});
  EXPECT_EQ(found.logits.size(0), 3);
  EXPECT_TRUE(at::equal(found.logits, wanted.logits));
  EXPECT_TRUE(at::equal(found.final_hidden,
                        wanted.final_hidden.index_select(0, at::tensor({4, 5, 8}, at::kLong))));
}

TEST_P(SharingLayersTest, ATreesLastNodeSeesItsPath) {
  Draft tree = Draft::root(3);
  tree.add(4, 0);
  tree.add(5, 0);
  tree.add(6, 1);
  TransformerModel all = model();
  TransformerModel some = model();
  const ForwardOptions last{.logits = Logits::kLast, .hidden = Hidden::kAll};
  all.prefill_get_last_logits(prompt(20));
  some.prefill_get_last_logits(prompt(20));
  EXPECT_TRUE(
      at::equal(some.verify(tree, {.logits = Logits::kLast, .hidden = Hidden::kScored}).logits,
                all.verify(tree, last).logits));
}

TEST_P(SharingLayersTest, TheyAreRunForOneTokenOrNone) {
  const auto ops = std::make_shared<RecordingOps>();
  TransformerModel model(weights_, paged_kv(), {.ops = ops});
  const auto attentions = [&](const ForwardOptions& options) {
    ops->take_calls();
    model.prefill(prompt(30), options);
    std::string widths;
    for (const std::string& call : ops->take_calls()) {
      const std::string name = "paged_attention [";
      if (call.rfind(name, 0) == 0) {
        widths += call.substr(name.size(), call.find(',') - name.size()) + " ";
      }
    }
    return widths;
  };
  EXPECT_EQ(attentions({.logits = Logits::kLast, .hidden = Hidden::kScored}), "30 30 1 1 ");
  EXPECT_EQ(attentions({.logits = Logits::kNone, .hidden = Hidden::kScored}), "30 30 ");
  EXPECT_EQ(attentions({.logits = Logits::kLast}), "30 30 1 1 ");
  EXPECT_EQ(attentions({.logits = Logits::kLast, .hidden = Hidden::kAll}), "30 30 30 30 ");
  EXPECT_EQ(attentions({.capture_layers = {1}, .logits = Logits::kLast, .hidden = Hidden::kScored}),
            "30 30 1 1 ");
  EXPECT_EQ(attentions({.capture_layers = {2}, .logits = Logits::kLast, .hidden = Hidden::kScored}),
            "30 30 30 30 ");
}

TEST_P(SharingLayersTest, CapturedLayersHaveAllTokens) {
  TransformerModel model = this->model();
  for (const int64_t layer : {1, 3}) {
    const ForwardResult result = model.prefill(
        prompt(9), {.capture_layers = {layer}, .logits = Logits::kLast, .hidden = Hidden::kScored});
    EXPECT_EQ(result.captured.front().size(0), 9) << layer;
  }
}

INSTANTIATE_TEST_SUITE_P(All, SharingLayersTest, testing::Values("e", "3n"),
                         [](const auto& info) { return "gemma_" + info.param; });

}  // namespace
}  // namespace specdec
