#include "core/transformer/heads/parallel_eagle.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "core/draft_vocabulary.h"
#include "core/error.h"
#include "core/families/model.h"
#include "core/formats/json_keys.h"
#include "core/formats/strict_json.h"
#include "kv/paged_kv.h"
#include "tests/support/error_message.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_gemma.h"

namespace specdec {
namespace {

using nlohmann::json;
using testing::HasSubstr;

/// Logits of each depth of a block, [depth, columns].
Tensor parallel_logits(ParallelEagleModel& model, Token newest, int64_t wanted) {
  model.evaluate(newest, wanted);
  Draft draft = Draft::root(newest);
  std::vector<Tensor> rows;
  for (int64_t node = 0; node < wanted; ++node) {
    rows.push_back(model.logits(draft, {&node, 1}));
    draft.add(0, node);
  }
  return at::cat(rows);
}

class ParallelEagleGoldenTest : public testing::Test {
 protected:
  void SetUp() override { SPECDEC_SKIP_WITHOUT(test_data("peagle-a")); }

  static void expect_block(const Golden& golden, ParallelEagleModel& model, Token newest,
                           const std::string& name) {
    const Tensor logits = parallel_logits(model, newest, model.depth());
    EXPECT_LE(max_difference(logits, golden.tensor(name + "_logits")), 1e-4) << name;
    const Tensor best = model.draft_vocabulary()->widened(logits).argmax(1);
    EXPECT_TRUE(at::equal(best, golden.tensor(name + "_tokens"))) << name;
  }
};

TEST_F(ParallelEagleGoldenTest, DraftsWhatSpeculatorsDrafts) {
  const Golden golden("peagle-a");
  const auto target = load_model(test_data("gemma3-a"));
  const auto head = load_eagle_head(golden.folder(), EagleVersion::kPEagle, *target);
  EXPECT_EQ(head->config.capture_layers, (std::vector<int64_t>{1, 2, 4}));
  ParallelEagleModel model(head, target, paged_kv(), {.max_length = 64});
  EXPECT_EQ(model.depth(), 4);
  std::vector<Token> committed = golden.tokens("tokens");
  committed.push_back(golden.tokens("anchor1").front());
  model.keep(committed, golden.tensor("taps1"));
  expect_block(golden, model, committed.back(), "block1");
  const auto accepted = golden.tensor("accepted").item<int64_t>();
  const std::vector<Token> drafts = golden.tokens("block1_tokens");
  committed.insert(committed.end(), drafts.begin(), drafts.begin() + accepted);
  committed.push_back(golden.tokens("anchor2").front());
  model.keep(committed, golden.tensor("taps2"));
  expect_block(golden, model, committed.back(), "block2");
}

/// A random head of two layers for a tiny target.
class ParallelEagleTest : public testing::Test {
 protected:
  ParallelEagleTest() {
    EagleConfig config = make_eagle_config(EagleVersion::kPEagle, LayerStyle::kQwen3, *target_);
    config.layers = 2;
    config.mask_token = 4;
    config.drafts = 5;
    config.draft_vocab_size = 9;
    head_ = random_eagle_head(config, {.seed = 3, .dtype = at::kDouble, .norm_deviation = 0.3});
    at::manual_seed(5);
    features_ = at::randn({600, head_->fc.size(1)}, at::kDouble);
  }
  std::unique_ptr<ParallelEagleModel> model(const std::shared_ptr<const EagleHead>& head) const {
    return std::make_unique<ParallelEagleModel>(head, target_, paged_kv(),
                                                TransformerOptions{.max_length = 640});
  }
  void keep(ParallelEagleModel& model, int64_t length) const {
    std::vector<Token> committed;
    for (int64_t i = 0; i <= length; ++i) {
      committed.push_back(static_cast<Token>(i % 11));
    }
    model.keep(committed, features_.slice(0, model.length(), length));
  }
  static Token newest(int64_t length) { return static_cast<Token>(length % 11); }

  std::shared_ptr<TransformerWeights> target_ = tiny_gemma(11);
  std::shared_ptr<EagleHead> head_;
  Tensor features_;
};

TEST_F(ParallelEagleTest, NothingOfABlockStays) {
  const auto drafted = model(head_);
  const auto untouched = model(head_);
  for (const int64_t length : {1, 2, 7, 8, 270, 600}) {
    keep(*drafted, length);
    parallel_logits(*drafted, newest(length), 5);
    keep(*untouched, length);
    EXPECT_EQ(drafted->length(), length);
    EXPECT_TRUE(at::equal(parallel_logits(*drafted, newest(length), 5),
                          parallel_logits(*untouched, newest(length), 5)));
  }
}

TEST_F(ParallelEagleTest, APieceAtATimeOrAllAtOnceAreTheSameBits) {
  const auto pieces = model(head_);
  for (const int64_t length : {1, 2, 5, 30, 300, 301}) {
    keep(*pieces, length);
  }
  const auto whole = model(head_);
  keep(*whole, 301);
  const Tensor wanted = parallel_logits(*whole, newest(301), 5);
  EXPECT_TRUE(at::equal(parallel_logits(*pieces, newest(301), 5), wanted));
  pieces->reset();
  keep(*pieces, 301);
  EXPECT_TRUE(at::equal(parallel_logits(*pieces, newest(301), 5), wanted));
}

TEST_F(ParallelEagleTest, FewerDraftsAreTheFirstOfAll) {
  const auto drafting = model(head_);
  keep(*drafting, 12);
  const Tensor all = parallel_logits(*drafting, newest(12), 5);
  for (const int64_t wanted : {1, 2, 4}) {
    EXPECT_TRUE(
        at::equal(parallel_logits(*drafting, newest(12), wanted), all.narrow(0, 0, wanted)));
  }
}

TEST_F(ParallelEagleTest, MisuseIsNamed) {
  const auto drafting = model(head_);
  const std::vector<Token> two = {1, 2};
  EXPECT_THROW(drafting->keep(two, features_.slice(0, 0, 2)), InternalError);
  drafting->keep(two, features_.slice(0, 0, 1));
  EXPECT_THROW(drafting->evaluate(2, 6), InternalError);
  EXPECT_THROW(drafting->evaluate(3, 1), InternalError);
}

TEST_F(ParallelEagleTest, SavedAndLoadedItIsTheSame) {
  const TemporaryFolder folder;
  save_eagle_head(*head_, folder.path(), at::kDouble);
  const auto again = load_eagle_head(folder.path(), EagleVersion::kPEagle, *target_);
  EXPECT_EQ(again->config.layers, 2);
  EXPECT_EQ(again->config.drafts, 5);
  const auto before = model(head_);
  const auto after = model(again);
  keep(*before, 9);
  keep(*after, 9);
  EXPECT_TRUE(
      at::equal(parallel_logits(*after, newest(9), 5), parallel_logits(*before, newest(9), 5)));
}

TEST_F(ParallelEagleTest, WhatAConfigCannotBeIsNamed) {
  const TemporaryFolder folder;
  save_eagle_head(*head_, folder.path(), at::kDouble);
  const json config = parse_json_object(read_file(folder.path() / "config.json"), "config.json");
  const auto error = [&](const std::function<void(json&)>& change) {
    json changed = config;
    change(changed);
    folder.write("config.json", changed.dump());
    return error_message<WeightsError>(
        [&] { load_eagle_head(folder.path(), EagleVersion::kPEagle, *target_); });
  };
  EXPECT_THAT(error([](json& one) { one["mask_token_id"] = 11; }), HasSubstr("mask_token_id"));
  EXPECT_THAT(error([](json& one) { one.erase("mask_token_id"); }), HasSubstr("mask_token_id"));
  EXPECT_THAT(error([](json& one) { one["num_hidden_layers"] = 3; }), HasSubstr("layers.2."));
  EXPECT_THAT(error([](json& one) {
                one["speculators_config"]["proposal_methods"][0]["speculative_tokens"] = 0;
              }),
              HasSubstr("speculative_tokens"));
  const auto types = [&](const json& list) {
    return error([&](json& one) { one["layer_types"] = list; });
  };
  EXPECT_EQ(types({"full_attention", "full_attention"}), "no error");
  EXPECT_THAT(types({"full_attention"}), HasSubstr("a list of 2 equal types"));
  EXPECT_THAT(types({"full_attention", "sliding_attention"}), HasSubstr("layer_types"));
  EXPECT_THAT(error([](json& one) { one["head_type"] = "eagle3"; }),
              HasSubstr("use drafter type eagle3"));
}

}  // namespace
}  // namespace specdec
