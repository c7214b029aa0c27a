// The tokenizer "gemma4" of GGUF: the ids are llama.cpp's and the `tokenizers` library's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/formats/gguf/gguf.h"
#include "core/formats/sentencepiece_model.h"
#include "core/formats/strict_json.h"
#include "core/tokenizers/control_pieces.h"
#include "core/tokenizers/gguf_tokenizer.h"
#include "core/tokenizers/special_encoder.h"
#include "core/tokenizers/tokenizer_files.h"
#include "tests/support/error_message.h"
#include "tests/support/parameter_name.h"

namespace specdec {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string file_of(const std::string& kind) {
  return SPECDEC_SOURCE_DIR "/tests/data/gguf/gemma4-" + kind + "-tokenizer";
}

class GgufBpeTest : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Tokenizer> tokenizer_ = load_tokenizer(file_of(GetParam()) + ".gguf");
  SpecialEncoder special_{*tokenizer_};
};

TEST_P(GgufBpeTest, IdsEqualLlamaCpps) {
  const json cases = json::parse(read_file(file_of(GetParam()) + ".tokenizer.json"))["cases"];
  EXPECT_EQ(cases.size(), 50);
  for (const json& one : cases) {
    const auto text = one["text"].get<std::string>();
    EXPECT_EQ(special_.encode(text), one["ids"].get<std::vector<Token>>()) << text;
    EXPECT_EQ(tokenizer_->decode(tokenizer_->encode(text)), replace_all(text, kSpaceMark, " "));
  }
}

TEST_P(GgufBpeTest, KnowsItsSpecialPieces) {
  EXPECT_EQ(tokenizer_->bos(), 2);
  EXPECT_EQ(tokenizer_->eos(), 1);
  EXPECT_TRUE(tokenizer_->adds_bos());
  EXPECT_THAT(std::string(tokenizer_->chat_template()), HasSubstr("<|turn>"));
  EXPECT_THAT(answer_end_tokens(*tokenizer_), ElementsAre(1, 6, 7));
  const auto thinking = thinking_tokens(*tokenizer_).value();
  EXPECT_EQ(tokenizer_->piece(thinking.begin), "<|channel>");
  EXPECT_EQ(tokenizer_->piece(thinking.end), "<channel|>");
}

TEST_P(GgufBpeTest, BosComesWhateverTheFileSays) {
  GgufMetadata metadata = GgufFile(file_of(GetParam()) + ".gguf").metadata();
  metadata.add("tokenizer.ggml.add_bos_token", false);
  EXPECT_TRUE(gguf_tokenizer(metadata)->adds_bos());
}

INSTANTIATE_TEST_SUITE_P(All, GgufBpeTest, ::testing::Values("dense", "e", "moe", "unified"),
                         ParameterName());

std::vector<std::string> pieces_of(const Tokenizer& tokenizer, const std::vector<Token>& tokens) {
  std::vector<std::string> pieces;
  for (const Token token : tokens) {
    pieces.emplace_back(tokenizer.piece(token));
  }
  return pieces;
}

TEST(GgufBpeTest, MergesCrossNoRuleButTheirRanks) {
  const auto tokenizer = load_tokenizer(file_of("dense") + ".gguf");
  const auto pieces = [&](const char* text) {
    return pieces_of(*tokenizer, tokenizer->encode(text));
  };
  EXPECT_THAT(pieces("  the"), ElementsAre("▁", "▁the"));
  EXPECT_THAT(pieces("two  spaces"),
              ElementsAre("t", "w", "o", "▁", "▁s", "p", "a", "c", "e", "s"));
  EXPECT_THAT(pieces("\n\n\n\n\n\n\n"), ElementsAre("\n\n\n\n", "\n\n\n"));
  EXPECT_THAT(pieces("x\n \n y"), ElementsAre("x", "\n", "▁", "\n", "▁y"));
  EXPECT_THAT(pieces("1984"), ElementsAre("1", "<0x39>", "<0x38>", "<0x34>"));
  EXPECT_THAT(pieces("<0x41>"), ElementsAre("<0x3C>", "<0x30>", "x", "<0x34>", "1", "<0x3E>"));
}

TEST(GgufBpeTest, UserDefinedPiecesAreFoundInAnyTextAndControlOnesInTemplates) {
  const auto tokenizer = load_tokenizer(file_of("dense") + ".gguf");
  const SpecialEncoder special(*tokenizer);
  const std::string text = "a<|channel>\n<turn|>";
  EXPECT_THAT(special.encode(text), ElementsAre(280, 9, 11, 6));
  const auto plain = tokenizer->encode(text);
  EXPECT_THAT(std::vector<Token>(plain.begin(), plain.begin() + 3), ElementsAre(280, 9, 11));
  EXPECT_GT(plain.size(), 4);
  EXPECT_EQ(tokenizer->decode(std::vector<Token>{9, 6, 7, 2, 308}), "<|channel> the");
}

TEST(GgufBpeTest, MergesThatNoScoresGiveAreNotConverted) {
  EXPECT_THAT(
      error_message<WeightsError>([] { (void)read_tokenizer_files(file_of("dense") + ".gguf"); }),
      HasSubstr("its merges are not those that scores of the pieces give"));
}

std::string complaint(const std::function<void(GgufMetadata&)>& change) {
  GgufMetadata metadata = GgufFile(file_of("dense") + ".gguf").metadata();
  change(metadata);
  return error_message<WeightsError>([&] { gguf_tokenizer(metadata); });
}

TEST(GgufBpeTest, WhatIsWrongNamesTheKey) {
  const auto with = [](const char* key, const GgufValue& value) {
    return complaint([&](GgufMetadata& metadata) { metadata.add(key, value); });
  };
  EXPECT_THAT(with("tokenizer.ggml.merges", std::vector<std::string>{"qq"}),
              HasSubstr("'tokenizer.ggml.merges' has \"qq\", which is not two pieces"));
  EXPECT_THAT(with("tokenizer.ggml.merges", std::vector<std::string>{"q \n"}),
              HasSubstr("for merge 0"));
  EXPECT_THAT(with("tokenizer.ggml.token_type", std::vector<int64_t>(384, 1)),
              HasSubstr("has 0 of the 256 byte pieces"));
  EXPECT_THAT(with("tokenizer.ggml.bos_token_id", int64_t{384}),
              HasSubstr("'tokenizer.ggml.bos_token_id' is 384"));
}

}  // namespace
}  // namespace specdec
