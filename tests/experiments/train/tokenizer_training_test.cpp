#include "experiments/train/tokenizer_training.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/formats/strict_json.h"
#include "core/tokenizers/tokenizer.h"
#include "experiments/config/config_file.h"
#include "tests/support/error_message.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using ::testing::HasSubstr;

TokenizerTraining small_training() {
  const std::string corpus = std::string(SPECDEC_SOURCE_DIR) + "/models/corpus/";
  return {.texts = {read_text_file(corpus + "shakespeare.txt.gz").substr(0, 30'000),
                    read_text_file(corpus + "records.jsonl.gz").substr(0, 20'000)},
          .vocab_size = 500};
}

TEST(TokenizerTrainingTest, WritesTwoFilesThatAgree) {
  const TemporaryFolder folder;
  train_tokenizer(small_training(), folder.path() / "new");
  const auto a = load_tokenizer(folder.path() / "new/tokenizer.model");
  const auto b = load_tokenizer(folder.path() / "new/tokenizer.json");
  EXPECT_EQ(a->vocab_size(), 500);
  std::string reason;
  EXPECT_TRUE(same_vocabulary(*a, *b, reason)) << reason;
  for (const std::string& text : small_training().texts) {
    const auto ids = a->encode(text);
    EXPECT_EQ(ids, b->encode(text));
    EXPECT_EQ(a->decode(ids), text);
    EXPECT_LT(static_cast<double>(ids.size()), 0.75 * static_cast<double>(text.size()))
        << "it learned pieces longer than a letter";
  }
}

TEST(TokenizerTrainingTest, LaysOutThePiecesAsGemmaDoes) {
  const TemporaryFolder folder;
  train_tokenizer(small_training(), folder.path());
  const auto tokenizer = load_tokenizer(folder.path());
  EXPECT_EQ(tokenizer->piece(0), "<pad>");
  EXPECT_EQ(tokenizer->eos(), 1);
  EXPECT_EQ(tokenizer->bos(), 2);
  EXPECT_EQ(tokenizer->piece(3), "<unk>");
  EXPECT_EQ(tokenizer->encode("<end_of_turn>").size(), 1U);
  EXPECT_EQ(tokenizer->encode("\n\n").size(), 1U);
  EXPECT_EQ(tokenizer->encode(std::string(8, ' ')).size(), 1U);
  EXPECT_EQ(tokenizer->encode("2024").size(), 4U) << "digits on their own";
}

TEST(TokenizerTrainingTest, IsDeterministic) {
  const TemporaryFolder folder;
  train_tokenizer(small_training(), folder.path() / "a");
  train_tokenizer(small_training(), folder.path() / "b");
  for (const char* file : {"tokenizer.model", "tokenizer.json", "tokenizer_config.json"}) {
    EXPECT_EQ(read_file(folder.path() / "a" / file), read_file(folder.path() / "b" / file)) << file;
  }
}

TEST(TokenizerTrainingTest, RefusesWhatItCannotLearnFrom) {
  const TemporaryFolder folder;
  const auto complaint = [&](const TokenizerTraining& options) {
    return error_message<Error>([&] { train_tokenizer(options, folder.path()); });
  };
  EXPECT_THAT(complaint({.texts = {}}), HasSubstr("no text"));
  EXPECT_THAT(complaint({.texts = {"\n\n"}}), HasSubstr("no text"));
  EXPECT_THAT(complaint({.texts = {"good", "bad \xFF"}}), HasSubstr("text 2 is not UTF-8"));
  EXPECT_THAT(complaint({.texts = {"a b c"}, .vocab_size = 10}), HasSubstr("vocabulary of 10"));
  EXPECT_THAT(complaint({.texts = {"a b c"}, .vocab_size = 9000}), HasSubstr("vocabulary of 9000"));
  EXPECT_THAT(complaint({.texts = {"a"}, .vocab_size = -1}), HasSubstr("vocabulary of -1"));
  folder.write("file", "");
  const auto in_the_way = folder.path() / "file" / "out";
  EXPECT_THAT(error_message<Error>([&] { train_tokenizer(small_training(), in_the_way); }),
              HasSubstr("cannot create"));
}

}  // namespace
}  // namespace specdec
