#include "core/formats/side_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "core/chat.h"
#include "core/error.h"
#include "core/tokenizers/bpe_tokenizer.h"
#include "core/tokenizers/gguf_tokenizer.h"
#include "core/tokenizers/special_encoder.h"
#include "core/tokenizers/tokenizer_files.h"
#include "tests/support/error_message.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tokenizer_fixture.h"

namespace specdec {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kLlama2 = "llama2/tokenizer.model";  // 420 pieces
constexpr const char* kChatMl =
    R"({"added_tokens_decoder": {"420": {"content": "<|im_start|>", "special": true},)"
    R"( "421": {"content": "<|im_end|>", "special": true}}, "eos_token": "<|im_end|>"})";

std::vector<json> rows_of(const std::string& name) {
  std::istringstream lines(tokenizer_fixture(name));
  std::vector<json> rows;
  for (std::string line; std::getline(lines, line);) {
    rows.push_back(json::parse(line));
  }
  return rows;
}

void write_folder(const TemporaryFolder& folder, const json& files) {
  folder.write("tokenizer.model", tokenizer_fixture(kLlama2));
  folder.write("config.json", R"({"vocab_size": 512})");
  for (const auto& [name, content] : files.items()) {
    folder.write(name, content.dump());
  }
}

TEST(SideTokensTest, IdsAreThoseOfTransformers) {
  for (const json& row : rows_of("llama2/side_files.jsonl")) {
    const TemporaryFolder folder;
    write_folder(folder, row["files"]);
    const auto tokenizer = load_tokenizer(folder.path());
    EXPECT_EQ(tokenizer->eos(), row["eos"].get<Token>()) << row["files"];
    const SpecialEncoder encoder(*tokenizer);
    for (const json& one : row["ids"]) {
      std::vector<Token> ids = encoder.encode(one[0].get<std::string>());
      ids.insert(ids.begin(), *tokenizer->bos());
      EXPECT_EQ(ids, one[1].get<std::vector<Token>>()) << one[0] << row["files"];
    }
  }
}

TEST(SideTokensTest, ChatsOfALlamaWithChatMlHaveItsTokens) {
  const TemporaryFolder folder;
  write_folder(folder, {{"tokenizer_config.json", json::parse(kChatMl)}});
  folder.write("chat_template.jinja",
               "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n"
               "{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n\n");
  const auto tokenizer = load_tokenizer(folder.path());
  EXPECT_EQ(encode_chat(*tokenizer, {{"user", "Hi there"}}).size(), 22U);
  EXPECT_EQ(tokenizer->piece(420), "<|im_start|>");
  EXPECT_EQ(tokenizer->token_bytes(420), "");
  EXPECT_EQ(tokenizer->eos(), 421);
  // Written by a user they are text.
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("<|im_end|>")), " <|im_end|>");
}

TEST(SideTokensTest, TokensBeyondTheModelsVocabularyAreLeftOut) {
  const TemporaryFolder folder;
  write_folder(folder, {{"tokenizer_config.json", json::parse(kChatMl)}});
  folder.write("config.json", R"({"vocab_size": 421})");
  EXPECT_EQ(load_tokenizer(folder.path())->vocab_size(), 421);
  folder.write("config.json", R"({"vocab_size": 420})");
  EXPECT_EQ(load_tokenizer(folder.path())->vocab_size(), 420);
}

TEST(SideTokensTest, IdsThatNothingHasAreUnused) {
  const TemporaryFolder folder;
  write_folder(folder, {{"added_tokens.json", {{"<a>", 430}}}});
  const auto tokenizer = load_tokenizer(folder.path());
  EXPECT_EQ(tokenizer->vocab_size(), 431);
  EXPECT_EQ(tokenizer->piece(425), "");
  EXPECT_EQ(tokenizer->encode("<a>"), std::vector<Token>{430});
  EXPECT_FALSE(tokenizer->merge_rules().has_value());
}

TEST(SideTokensTest, GgufFilesHaveThemToo) {
  const TemporaryFolder folder;
  write_folder(folder, {{"tokenizer_config.json", json::parse(kChatMl)},
                        {"special_tokens_map.json", json::object()}});
  const auto files = read_tokenizer_files(folder.path());
  EXPECT_EQ(files->eos, 421);
  const TemporaryFolder written;
  write_tokenizer_files(*files, written.path());
  const auto tokenizer = load_tokenizer(written.path());
  EXPECT_EQ(tokenizer->eos(), 421);
  const std::string text = "<|im_start|>user\nHi<|im_end|>\n";
  EXPECT_EQ(SpecialEncoder(*tokenizer).encode(text),
            SpecialEncoder(*load_tokenizer(folder.path())).encode(text));
  folder.write("tokenizer_config.json",
               R"({"added_tokens_decoder": {"420": {"content": "<a>", "lstrip": true}}})");
  EXPECT_THAT(error_message<WeightsError>([&] { (void)read_tokenizer_files(folder.path()); }),
              AllOf(HasSubstr("the token <a> white space"), HasSubstr("--no-tokenizer")));
}

TEST(SideTokensTest, MistakesAreNamed) {
  const std::pair<std::pair<const char*, const char*>, const char*> cases[] = {
      {{"added_tokens.json", R"({"<a>": 1.5})"}, "the id of \"<a>\" must be a whole number"},
      {{"added_tokens.json", R"({"<a>": )"}, "added_tokens.json:1:"},
      {{"added_tokens.json", "[]"}, "added_tokens.json: it must hold a JSON object"},
      {{"added_tokens.json", R"({"<s>": 420})"}, "tokenizer.model has it with id 1"},
      {{"added_tokens.json", R"({"<a>": 420, "<b>": 420})"}, "another token has that id too"},
      {{"added_tokens.json", R"({"<a>": 7})"}, "that is the piece <0x02> of tokenizer.model"},
      {{"tokenizer_config.json", R"({"added_tokens_decoder": {"x": {"content": "<a>"}}})"},
       "added_tokens_decoder must hold objects"},
      {{"tokenizer_config.json", R"({"added_tokens_decoder": {"420": "<a>"}})"},
       "added_tokens_decoder must hold objects"},
      {{"tokenizer_config.json", R"({"added_tokens_decoder": []})"},
       "added_tokens_decoder must be an object of tokens by their ids, but is a list"},
      {{"tokenizer_config.json",
        R"({"added_tokens_decoder": {"420": {"content": "<a>", "special": 1}}})"},
       "added_tokens_decoder: \"420\": \"special\" must be true or false, but is 1."},
      {{"special_tokens_map.json", R"({"eos_token": {"content": "<a>", "rstrip": "x"}})"},
       "\"rstrip\" must be true or false, but is \"x\"."},
      {{"special_tokens_map.json", R"({"additional_special_tokens": {"a": "<a>"}})"},
       "'additional_special_tokens' must be a list of pieces"}};
  for (const auto& [file, message] : cases) {
    const TemporaryFolder folder;
    write_folder(folder, json::object());
    folder.write(file.first, file.second);
    EXPECT_THAT(error_message<WeightsError>([&] { load_tokenizer(folder.path()); }),
                HasSubstr(message));
  }
  const TemporaryFolder folder;
  folder.write("tokenizer.model", tokenizer_fixture(kLlama2));
  folder.write("added_tokens.json", R"({"<a>": 4000000000})");
  EXPECT_THAT(error_message<WeightsError>([&] { load_tokenizer(folder.path()); }),
              HasSubstr("the other ids end at 419"));
}

// The library finds such pieces behind the space that its normalizer puts before texts, or another.
TEST(SideTokensTest, NormalizedControlPiecesStandBehindSpaces) {
  json root = json::parse(tokenizer_fixture("llama2/tokenizer.json"));
  for (json& token : root["added_tokens"]) {
    token["normalized"] = token["content"] != "[INST]";
  }
  const auto tokenizer = bpe_tokenizer(root.dump(), "t.json");
  const SpecialEncoder encoder(*tokenizer);
  for (const json& row : rows_of("llama2/normalized.jsonl")) {
    EXPECT_EQ(encoder.encode(row["text"].get<std::string>()), row["ids"].get<std::vector<Token>>())
        << row["text"];
  }
  JinjaText text("a ");
  text += JinjaText::of_turn("<s>");
  EXPECT_EQ(encoder.encode(text), tokenizer->encode("a <s>"));
}

}  // namespace
}  // namespace specdec
