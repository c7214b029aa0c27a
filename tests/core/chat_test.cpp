// The texts are jinja2's (tests/data/chat/make_expected).
#include "core/chat.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/formats/strict_json.h"
#include "tests/support/data_lines.h"
#include "tests/support/error_message.h"
#include "tests/support/small_byte_level_model.h"

namespace specdec {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::filesystem::path kChats = std::filesystem::path(SPECDEC_SOURCE_DIR) / "tests/data/chat";

/// A tokenizer with the turn pieces of all formats.
std::unique_ptr<Tokenizer> chat_tokenizer(const std::string& chat_template) {
  ByteLevelModel model = small_byte_level_model(
      {"<bos>", "<|im_start|>", "<|im_end|>", "<start_of_turn>", "<end_of_turn>",
       "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<eos>"});
  model.bos = 258;
  model.eos = 266;
  model.chat_template = chat_template;
  return byte_level_tokenizer(model, "test");
}

std::string rendered(const Tokenizer& tokenizer, const std::vector<ChatTurn>& turns,
                     std::string_view tools = {}) {
  std::string text;
  for (const Token token : encode_chat(tokenizer, turns, tools)) {
    const auto bytes = tokenizer.token_bytes(token);
    text += bytes.empty() ? tokenizer.piece(token) : bytes;
  }
  return text;
}

TEST(ChatTest, TurnsAreThoseOfTheTemplate) {
  const std::vector<std::string> lines = data_lines(kChats / "expected.jsonl.gz");
  EXPECT_FALSE(lines.empty());
  size_t refused = 0;
  for (const std::string& line : lines) {
    const auto one = nlohmann::ordered_json::parse(line);
    const auto name = one["template"].get<std::string>();
    const auto tokenizer = chat_tokenizer(read_file(kChats / (name + ".jinja")));
    std::vector<ChatTurn> turns;
    for (const auto& turn : one["turns"]) {
      turns.push_back({turn[0].get<std::string>(), turn[1].get<std::string>()});
    }
    if (!one.contains("text")) {
      EXPECT_NE(error_message<Error>([&] { (void)encode_chat(*tokenizer, turns); }), "") << line;
      ++refused;
      continue;
    }
    const std::string tools = one.contains("tools") ? one["tools"].dump() : "";
    EXPECT_EQ(rendered(*tokenizer, turns, tools), one["text"].get<std::string>()) << line;
  }
  EXPECT_EQ(refused, 38U);
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
  const auto tokenizer = chat_tokenizer("{{ messages[0].content }}<|im_end|>");
  const auto ids = encode_chat(*tokenizer, {{"user", "<|im_end|>"}});
  EXPECT_EQ(std::count(ids.begin(), ids.end(), *tokenizer->find_piece("<|im_end|>")), 1);
}

TEST(ChatTest, ToolsCannotWriteControlPieces) {
  const auto tokenizer = chat_tokenizer("{{ tools | tojson }}<|im_end|>");
  const auto ids = encode_chat(*tokenizer, {{"user", "x"}}, R"([{"<|im_end|>":"<|im_end|>"}])");
  EXPECT_EQ(std::count(ids.begin(), ids.end(), *tokenizer->find_piece("<|im_end|>")), 1);
}

TEST(ChatTest, NumbersOfToolsAreWrittenAsInPython) {
  const auto tokenizer = chat_tokenizer("{{ tools | tojson }}{{ tools[1] is float }}");
  EXPECT_EQ(rendered(*tokenizer, {{"user", "x"}}, "[-3, 1.0, 0.1, 1e16, 12e-6, 123456.75e9]"),
            "[-3, 1.0, 0.1, 1e+16, 1.2e-05, 123456750000000.0]True");
  EXPECT_THAT(error_message<Error>([&] {
                (void)encode_chat(*tokenizer, {{"user", "x"}}, R"([{"a":9223372036854775808}])");
              }),
              HasSubstr("the number 9223372036854775808 has more than 64 bits. Give the turns"));
}

TEST(ChatTest, ToolsAreJson) {
  const auto tokenizer = chat_tokenizer("{{ tools | tojson }}");
  for (const std::string& tools :
       {std::string("[1"), std::string("[1e999]"), std::string(300, '[') + std::string(300, ']')}) {
    EXPECT_THAT(error_message<Error>([&] {
                  (void)encode_chat(*tokenizer, {{"user", "x"}}, tools);
                }),
                HasSubstr("the tools cannot be given to the chat template: "));
  }
}

TEST(ChatTest, NoControlPieceIsMadeOfTwoAuthorsParts) {
  const auto tokenizer = chat_tokenizer("<|im_{{ messages[0].content }}<|im_end|>");
  const auto ids = encode_chat(*tokenizer, {{"user", "start|>"}});
  EXPECT_EQ(tokenizer->decode(ids), "<|im_start|>");
  EXPECT_EQ(ids.back(), *tokenizer->find_piece("<|im_end|>"));
}

TEST(ChatTest, LongTemplatesTakeNoQuadraticTime) {
  const std::string before(2'000'000, '-');  // a quadratic search would take a minute
  const auto tokenizer = chat_tokenizer(before + "{{ messages[0].content }}<|im_end|>");
  const auto ids = encode_chat(*tokenizer, {{"user", "<|im_end|>"}});
  EXPECT_EQ(tokenizer->decode(ids), before + "<|im_end|>");
  EXPECT_EQ(std::count(ids.begin(), ids.end(), *tokenizer->find_piece("<|im_end|>")), 1);
}

TEST(ChatTest, PiecesThatTheVocabularyLacksAreText) {
  const auto tokenizer = byte_level_tokenizer(
      [] {
        ByteLevelModel model = small_byte_level_model({});
        model.chat_template = "<|user|>{{ messages[0].content }}";
        return model;
      }(),
      "test");
  EXPECT_EQ(encode_chat(*tokenizer, {{"user", "ab"}}), tokenizer->encode("<|user|>ab"));
}

TEST(ChatTest, OtherTemplatesSayHowToDoWithout) {
  const std::pair<const char*, const char*> cases[] = {
      {"a\n{{ messages | groupby }}",
       "the checkpoint's chat template, line 2: the filter groupby is not supported. Give"},
      {"{{ '<|im_start|>' + strftime_now('%d') }}", "writes today's date"},
      {"{{ raise_exception('Only one turn!') }}",
       "line 1: it refuses the chat: \"Only one turn!\""},
  };
  for (const auto& [text, expected] : cases) {
    EXPECT_THAT(error_message<Error>([text = text] {
                  (void)encode_chat(*chat_tokenizer(text), {{"user", "x"}});
                }),
                AllOf(HasSubstr(expected), HasSubstr("as plain text")));
  }
}

TEST(ChatTest, MistakesNameTheFileOfTheTemplate) {
  ByteLevelModel model = small_byte_level_model({"<start_of_turn>"});
  const auto message = [&model] {
    const auto tokenizer = byte_level_tokenizer(model, "test");
    return error_message<Error>([&] {
      (void)encode_chat(*tokenizer, {{"user", "a"}, {"user", "b"}});
    });
  };
  model.chat_template_file = "m/chat_template.jinja";
  model.chat_template = "\n{{ messages | groupby }}";
  EXPECT_THAT(message(),
              StartsWith("m/chat_template.jinja: the checkpoint's chat template, line 2: "
                         "the filter groupby is not supported."));
  model.chat_template = "";  // the format that goes with the pieces is in no file
  EXPECT_THAT(message(), StartsWith("the checkpoint's chat template, line 1: "));
}

TEST(ChatTest, WithoutATemplateOtherOrdersAndRolesAreNamed) {
  const auto message = [](const char* piece, const std::vector<ChatTurn>& turns) {
    const auto tokenizer = byte_level_tokenizer(small_byte_level_model({piece}), "test");
    return error_message<Error>([&] { (void)encode_chat(*tokenizer, turns); });
  };
  EXPECT_THAT(message("<start_of_turn>", {{"user", "a"}, {"user", "b"}}),
              HasSubstr("user and model take turns, the user first"));
  EXPECT_THAT(message("<start_of_turn>", {{"system", "a"}}),
              HasSubstr("user and model take turns"));
  EXPECT_THAT(message("<|im_start|>", {{"tool", "a"}}), HasSubstr("unknown role 'tool'"));
  EXPECT_THAT(message("<|start_header_id|>", {{"system", "a"}, {"user", "b"}}), "no error");
}

}  // namespace
}  // namespace specdec
