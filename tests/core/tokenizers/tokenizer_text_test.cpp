#include "core/tokenizers/tokenizer_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <span>
#include <string>

#include "core/error.h"
#include "core/formats/gguf/gguf.h"
#include "core/formats/strict_json.h"
#include "core/tokenizers/gguf_tokenizer.h"
#include "core/tokenizers/tokenizer_files.h"
#include "tests/support/error_message.h"
#include "tests/support/parameter_name.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using testing::HasSubstr;

const std::string kText = "Hello, wörld!\n  A text of 12 words<end_of_turn>";

/// The tokenizers of GGUF files, byte-level BPE and BPE with byte fallback, as tokenizer.json.
class TokenizerTextTest : public testing::TestWithParam<std::string> {
 protected:
  TokenizerTextTest() {
    write_tokenizer_files(*read_tokenizer_files(GgufFile(path_).metadata()), folder_.path());
    json_ = read_file(folder_.path() / "tokenizer.json");
  }

  const std::string path_ = SPECDEC_SOURCE_DIR "/tests/data/gguf/" + GetParam() + ".gguf";
  const TemporaryFolder folder_;
  std::string json_;
};

TEST_P(TokenizerTextTest, IsTheTokenizerOfTheFile) {
  const auto file = load_tokenizer(folder_.path() / "tokenizer.json");
  const auto text =
      make_tokenizer({.json = json_, .config = read_tokenizer_config(folder_.path())});
  std::string reason;
  EXPECT_TRUE(same_vocabulary(*text, *file, reason)) << reason;
  EXPECT_EQ(text->encode(kText), file->encode(kText));
  EXPECT_EQ(text->bos(), file->bos());
  EXPECT_EQ(text->adds_bos(), file->adds_bos());
}

TEST_P(TokenizerTextTest, ReplacesThatOfAGgufInMemory) {
  const std::string bytes = read_file(path_);
  const GgufFile file(std::as_bytes(std::span(bytes)), "memory");
  const auto own = gguf_tokenizer(file.metadata());
  EXPECT_EQ(make_tokenizer({.json = json_})->encode(kText), own->encode(kText));
}

TEST_P(TokenizerTextTest, TakesWhatStandsBesideTheFile) {
  const std::string piece(make_tokenizer({.json = json_})->piece(5));
  TokenizerConfig config;
  config.pieces["bos_token"] = piece;
  config.chat_template = "{{ messages }}";
  const auto tokenizer = make_tokenizer({.json = json_, .config = config});
  EXPECT_EQ(tokenizer->bos(), Token{5});
  EXPECT_EQ(tokenizer->chat_template(), "{{ messages }}");
}

INSTANTIATE_TEST_SUITE_P(Kinds, TokenizerTextTest, testing::Values("llama-q4_1", "gemma3-mixed"),
                         ParameterName());

TEST(TokenizerTextErrorTest, NamesTheText) {
  EXPECT_THAT(error_message<WeightsError>(
                  [] { make_tokenizer({.json = "{\"model\": 1", .where = "my tokenizer"}); }),
              HasSubstr("my tokenizer:1:"));
  EXPECT_THAT(error_message<WeightsError>([] { make_tokenizer({.json = "{}"}); }),
              HasSubstr("tokenizer.json: "));
}

}  // namespace
}  // namespace specdec
