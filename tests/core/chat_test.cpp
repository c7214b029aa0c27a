// The texts are jinja2's (tests/data/chat/make_expected).
#include "core/chat.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "core/chat_template.h"
#include "core/error.h"
#include "core/formats/strict_json.h"
#include "tests/support/error_message.h"
#include "tests/support/small_byte_level_model.h"

namespace specdec {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const std::filesystem::path kChats = std::filesystem::path(SPECDEC_SOURCE_DIR) / "tests/data/chat";

/// A tokenizer with the turn pieces of all formats.
std::unique_ptr<Tokenizer> chat_tokenizer(const std::string& chat_template) {
  ByteLevelModel model = small_byte_level_model(
      {"<bos>", "<|im_start|>", "<|im_end|>", "<start_of_turn>", "<end_of_turn>",
       "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"});
  model.bos = 258;
  model.chat_template = chat_template;
  return byte_level_tokenizer(model, "test");
}

std::string rendered(const Tokenizer& tokenizer, const std::vector<ChatTurn>& turns) {
  std::string text;
  for (const Token token : encode_chat(tokenizer, turns)) {
    const auto bytes = tokenizer.token_bytes(token);
    text += bytes.empty() ? tokenizer.piece(token) : bytes;
  }
  return text;
}

TEST(ChatTest, TurnsAreThoseOfTheTemplate) {
  std::istringstream lines(read_file(kChats / "expected.jsonl"));
  size_t refused = 0;
  for (std::string line; std::getline(lines, line);) {
    const json one = json::parse(line);
    const auto name = one["template"].get<std::string>();
    const auto tokenizer = chat_tokenizer(read_file(kChats / (name + ".jinja")));
    std::vector<ChatTurn> turns;
    for (const json& turn : one["turns"]) {
      turns.push_back({turn[0].get<std::string>(), turn[1].get<std::string>()});
    }
    if (!one.contains("text")) {
      EXPECT_NE(error_message<Error>([&] { (void)encode_chat(*tokenizer, turns); }), "") << line;
      ++refused;
      continue;
    }
    auto expected = one["text"].get<std::string>();
    if (name == "llama3") {
      expected.replace(0, std::string("<bos>").size(), "<|begin_of_text|>");
    }
    EXPECT_EQ(rendered(*tokenizer, turns), expected) << line;
  }
  EXPECT_EQ(refused, 6U);
}

TEST(ChatTest, ALineOfThoughtIsOnePieceWhereThereIsOne) {
  ByteLevelModel model = small_byte_level_model({"<|im_start|>", "<|im_end|>", "<think>"});
  model.chat_template = read_file(kChats / "chatml_thinking.jinja");
  const auto tokenizer = byte_level_tokenizer(model, "test");
  const auto ids = encode_chat(*tokenizer, {{"user", "<think>"}});
  EXPECT_EQ(std::count(ids.begin(), ids.end(), *tokenizer->find_piece("<think>")), 1);
  EXPECT_EQ(ids[ids.size() - 2], *tokenizer->find_piece("<think>"));
}

TEST(ChatTest, WithoutATemplateTheTurnPiecesSay) {
  const auto tokenizer =
      byte_level_tokenizer(small_byte_level_model({"<|im_start|>", "<|im_end|>"}), "test");
  EXPECT_EQ(rendered(*tokenizer, {{"user", " Hi "}}),
            "<|im_start|>user\n Hi <|im_end|>\n<|im_start|>assistant\n");
}

TEST(ChatTest, UsersCannotWriteControlPieces) {
  const auto tokenizer = chat_tokenizer("<|im_start|>");
  const auto ids = encode_chat(*tokenizer, {{"user", "<|im_end|>"}});
  EXPECT_EQ(std::count(ids.begin(), ids.end(), *tokenizer->find_piece("<|im_end|>")), 1);
}

TEST(ChatTest, Llama3WithDates) {
  EXPECT_EQ(rendered(*chat_tokenizer("<|start_header_id|> Cutting Knowledge Date: December 2023"),
                     {{"system", "Be brief."}}),
            "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge "
            "Date: December 2023\nToday Date: 26 Jul 2024\n\nBe brief.<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
}

TEST(ChatTest, OtherTemplatesSayHowToDoWithout) {
  const std::pair<const char*, const char*> cases[] = {
      {"[INST] {{ content }} [/INST]",
       "is none of those known here (Gemma, ChatML, Llama 3). Give"},
      {"{{ '<|im_start|>user<|im_sep|>' }}", "writes <|im_start|>role<|im_sep|>text"},
      {"{{ '<|im_start|>' + strftime_now('%d') }}", "writes today's date"},
  };
  for (const auto& [text, expected] : cases) {
    EXPECT_THAT(error_message<Error>([text = text] {
                  (void)encode_chat(*chat_tokenizer(text), {{"user", "x"}});
                }),
                AllOf(HasSubstr(expected), HasSubstr("as plain text")));
  }
}

TEST(ChatTest, TurnsInAnotherOrderAreNamed) {
  const auto message = [](const char* name, const std::vector<ChatTurn>& turns) {
    const auto tokenizer = chat_tokenizer(read_file(kChats / name));
    return error_message<Error>([&] { (void)encode_chat(*tokenizer, turns); });
  };
  EXPECT_THAT(message("gemma.jinja", {{"user", "a"}, {"user", "b"}}),
              HasSubstr("turn 2 of a chat is the user's, but"));
  EXPECT_THAT(message("gemma.jinja", {{"system", "a"}}), HasSubstr("known: user, model."));
  EXPECT_THAT(message("gemma_system.jinja", {{"system", "a"}}), HasSubstr("Add a user turn"));
  EXPECT_THAT(message("chatml.jinja", {{"tool", "a"}}), HasSubstr("unknown role 'tool'"));
}

}  // namespace
}  // namespace specdec
