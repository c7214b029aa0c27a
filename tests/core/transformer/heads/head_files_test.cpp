#include "core/transformer/heads/head_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/families/model.h"
#include "core/formats/json_keys.h"
#include "core/formats/strict_json.h"
#include "core/transformer/heads/eagle_config.h"
#include "tests/support/error_message.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

/// A head trained for gemma3-a, beside that model with its config.json edited.
class HeadTargetTest : public testing::Test {
 protected:
  HeadTargetTest() : trained_(head_target(*load_model(test_data("gemma3-a")))) {}

  void edit(const json& changes) const {
    const auto original = test_data("gemma3-a");
    json config = parse_json_object(read_file(original / "config.json"), "config.json");
    config.update(changes);
    folder_.write("config.json", config.dump());
    folder_.write("model.safetensors", read_file(original / "model.safetensors"));
  }
  std::string note(const HeadTarget& trained) const {
    return check_head_target(trained, *load_model(folder_.path()), "head");
  }

  TemporaryFolder folder_;
  HeadTarget trained_;
};

TEST_F(HeadTargetTest, AnotherEosBosOrLengthIsNoOtherTarget) {
  const std::vector<json> all = {json::object(),
                                 {{"eos_token_id", {1, 7}}},
                                 {{"bos_token_id", 5}},
                                 {{"max_position_embeddings", 99}}};
  for (const json& changes : all) {
    edit(changes);
    EXPECT_EQ(note(trained_), "") << changes;
  }
  EXPECT_NE(load_model(folder_.path())->fingerprint, trained_.fingerprint);
}

TEST_F(HeadTargetTest, OtherWeightsOfTheSameShapeAreSaid) {
  edit(json::object());
  HeadTarget other = trained_;
  other.fingerprint = other.weights = "0123456789abcdef";
  EXPECT_THAT(note(other), AllOf(HasSubstr("other weights (0123456789abcdef; here " +
                                           trained_.fingerprint + ")"),
                                 HasSubstr("adapter")));
  edit({{"rms_norm_eps", 1e-3}});
  EXPECT_THAT(note(trained_), HasSubstr("other weights"));
}

TEST_F(HeadTargetTest, AnotherShapeIsRefused) {
  edit(json::object());
  for (int64_t HeadTarget::*size :
       {&HeadTarget::vocab_size, &HeadTarget::hidden_size, &HeadTarget::num_layers}) {
    HeadTarget other = trained_;
    ++(other.*size);
    EXPECT_THAT(error_message<WeightsError>([&] { (void)note(other); }),
                HasSubstr("Use the head that was trained for this target"));
  }
}

TEST_F(HeadTargetTest, IsReadAsItIsWritten) {
  const json config = {{"trained_for", head_target_json(trained_)}};
  const HeadTarget read = read_head_target(JsonKeys(config, "config.json"));
  EXPECT_EQ(read.fingerprint, trained_.fingerprint);
  EXPECT_EQ(read.weights, trained_.weights);
  EXPECT_EQ(read.num_layers, trained_.num_layers);
  // Heads of before have the one fingerprint only.
  json before = config;
  before["trained_for"].erase("weights");
  edit(json::object());
  EXPECT_EQ(note(read_head_target(JsonKeys(before, "config.json"))), "");
}

TEST(HeadKindTest, BlockDraftersAreNamed) {
  const std::vector<std::pair<std::string, json>> all = {
      {"dflash", {{"architectures", {"DFlashDraftModel"}}, {"speculators_model_type", "dflash"}}},
      {"dflash2", {{"architectures", {"DFlash2DraftModel"}}, {"dflash_config", json::object()}}},
      {"dflash2", {{"architectures", {"DFlashDraftModel"}}, {"speculators_model_type", "dflash2"}}},
      {"domino",
       {{"architectures", {"DominoDraftModel"}},
        {"dflash_config", {{"projector_type", "domino"}}}}},
      {"dspark",
       {{"architectures", {"DFlashDraftModel"}},
        {"dflash_config", {{"projector_type", "dspark"}}}}},
      {"dspark", {{"architectures", {"Gemma4DSparkModel"}}, {"model_type", "gemma4_unified_text"}}},
      {"dspark", {{"architectures", {"DSparkSpeculator"}}, {"speculators_model_type", "dspark"}}},
      {"peagle", {{"architectures", {"PEagleSpeculator"}}, {"speculators_model_type", "peagle"}}}};
  for (const auto& [kind, config] : all) {
    const TemporaryFolder folder;
    folder.write("config.json", config.dump());
    EXPECT_EQ(head_kind(folder.path()), kind);
    EXPECT_THAT(error_message<WeightsError>([&] { describe_model(folder.path()); }),
                HasSubstr("Use it as drafter: {type: " + kind));
    EXPECT_THAT(error_message<WeightsError>(
                    [&] { load_eagle_config(folder.path(), EagleVersion::kEagle3); }),
                HasSubstr("use drafter type " + kind));
  }
}

TEST(HeadKindTest, OthersAreRefusedByName) {
  const json config = {{"speculators_model_type", "xpress"}};
  EXPECT_THAT(
      error_message<WeightsError>([&] { (void)head_kind(JsonKeys(config, "config.json")); }),
      HasSubstr("a xpress draft head, which is not supported"));
}

TEST(HeadKindTest, AHeadThatDraftsBlocksHasToSayWhichOne) {
  for (const json& names : {json(), json::array({"Gemma4ForCausalLM"})}) {
    json config = {{"model_type", "gemma4_text"}, {"block_size", 7}, {"target_layer_ids", {1, 2}}};
    if (!names.is_null()) {
      config["architectures"] = names;
    }
    EXPECT_THAT(
        error_message<WeightsError>([&] { (void)head_kind(JsonKeys(config, "config.json")); }),
        testing::AllOf(HasSubstr("architectures"), HasSubstr("names no head that drafts blocks")));
  }
}

TEST(HeadKindTest, PublishedHeadsAreKnown) {
  const json eagle = {{"architectures", {"Eagle3Speculator"}},
                      {"speculators_model_type", "eagle3"}};
  EXPECT_EQ(head_kind(JsonKeys(eagle, "config.json")), "eagle3");
  const json dflash = {{"architectures", {"DFlashDraftModel"}},
                       {"dflash_config", {{"mask_token_id", 4}}}};
  EXPECT_EQ(head_kind(JsonKeys(dflash, "config.json")), "dflash");
}

TEST(EagleCaptureLayersTest, ADefaultThatNamesALayerTwiceSaysWhatToWrite) {
  EagleConfig config;
  config.version = EagleVersion::kEagle3;
  TransformerConfig target;
  config.hidden_size = target.hidden_size = 16;
  config.vocab_size = target.vocab_size = 8;
  target.num_layers = 6;
  EXPECT_THAT(error_message<WeightsError>([&] { check_eagle_config(config, target, "head"); }),
              AllOf(HasSubstr("eagle_aux_hidden_state_layer_ids in its config.json is missing"),
                    HasSubstr("one of the target's 6 layers twice")));
  config.capture_layers = {1, 3, 4};
  EXPECT_NO_THROW(check_eagle_config(config, target, "head"));
}

}  // namespace
}  // namespace specdec
