#include "core/embeddings/text_frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/formats/strict_json.h"
#include "tests/support/error_message.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// A folder with the golden set's tokenizer.json, changed.
class FrameTest : public testing::Test {
 protected:
  TextFrame read() const {
    folder_.write("tokenizer.json", tokenizer_.dump());
    return read_text_frame(folder_.path(), *load_tokenizer(folder_.path()));
  }

  TemporaryFolder folder_;
  json tokenizer_ = json::parse(read_file(test_data("embeddinggemma-a/tokenizer.json")));
};

TEST_F(FrameTest, ATemplateSaysWhatStandsAroundTheText) {
  EXPECT_THAT(read().before, ElementsAre(2));
  EXPECT_THAT(read().after, ElementsAre(1));
  tokenizer_["post_processor"] = {
      {"type", "Sequence"},
      {"processors", json::array({{{"type", "ByteLevel"}}, tokenizer_["post_processor"]})}};
  EXPECT_THAT(read().after, ElementsAre(1));
}

TEST_F(FrameTest, WithoutATemplateTheConfigDoes) {
  tokenizer_["post_processor"] = nullptr;
  const auto with = [this](const json& config) {
    folder_.write("tokenizer_config.json", config.dump());
    return read();
  };
  json config = {{"bos_token", "<bos>"}, {"eos_token", "<eos>"}};
  EXPECT_THAT(with(config).before, IsEmpty());
  EXPECT_THAT(with(config).after, IsEmpty());
  config["add_bos_token"] = true;
  config["add_eos_token"] = true;
  EXPECT_THAT(with(config).before, ElementsAre(2));
  EXPECT_THAT(with(config).after, ElementsAre(1));
}

TEST_F(FrameTest, ATokenThatTheVocabularyLacksIsAnError) {
  tokenizer_["post_processor"]["single"][2]["SpecialToken"]["id"] = "</s>";
  EXPECT_THAT(error_message<WeightsError>([this] { (void)read(); }),
              HasSubstr("the special token \"</s>\" is not in the vocabulary"));
}

TEST(GgufFrameTest, MetadataSaysIt) {
  const GgufFile file(test_data("gguf/llama-q4_1.gguf"));
  const auto tokenizer = load_tokenizer(file.path());
  GgufMetadata metadata = file.metadata();
  const TextFrame plain = read_text_frame(metadata, *tokenizer);
  EXPECT_THAT(plain.after, IsEmpty());
  metadata.add("tokenizer.ggml.add_eos_token", true);
  EXPECT_THAT(read_text_frame(metadata, *tokenizer).after, ElementsAre(*tokenizer->eos()));
}

}  // namespace
}  // namespace specdec
