#include "experiments/cli/chat.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "tests/support/fake_model.h"
#include "tests/support/small_byte_level_model.h"

namespace specdec {
namespace {

/// Gives its scripted answers one after the other.
class ScriptedStrategy final : public DecodingStrategy {
 public:
  explicit ScriptedStrategy(std::vector<std::vector<Token>> script) : script_(std::move(script)) {}
  Generation generate(const Request& request) override {
    prompts.emplace_back(request.prompt.begin(), request.prompt.end());
    const std::vector<Token>& tokens = script_.at(prompts.size() - 1);
    for (const Token token : tokens) {
      request.on_tokens({&token, 1});
    }
    Generation generation;
    generation.tokens = tokens;
    generation.stop_reason = StopReason::kEndOfSequence;
    return generation;
  }

  std::vector<std::vector<Token>> prompts;

 private:
  std::vector<std::vector<Token>> script_;
};

class ThinkingChatTest : public testing::Test {
 protected:
  ThinkingChatTest() {
    files_.tokenizer = byte_level_tokenizer(
        small_byte_level_model({"<|im_start|>", "<|im_end|>", "<think>", "</think>"}), "test");
  }
  Token id(const std::string& piece) const { return *files_.tokenizer->find_piece(piece); }
  std::vector<Token> script(const std::vector<std::string>& parts) const {
    std::vector<Token> tokens;
    for (const std::string& part : parts) {
      const auto piece = files_.tokenizer->find_piece(part);
      const auto text = piece ? std::vector<Token>{*piece} : files_.tokenizer->encode(part);
      tokens.insert(tokens.end(), text.begin(), text.end());
    }
    return tokens;
  }
  Chat chat(ScriptedStrategy& strategy) {
    return Chat({.files = files_,
                 .target = target_,
                 .strategy = strategy,
                 .stop = {.end_ids = {id("<|im_end|>")}}},
                "");
  }

  ModelFiles files_;
  PrefixCachedModel target_{std::make_unique<FakeModel>(300, random_table(300, 1), 4096)};
};

TEST_F(ThinkingChatTest, ThinkingIsShownApartAndNotPutIntoTheNextPrompt) {
  ScriptedStrategy strategy(
      {script({"<think>", "\nhm, two", "</think>", "\n\nIt is 2.", "<|im_end|>"}),
       script({"No.", "<|im_end|>"})});
  Chat chat = this->chat(strategy);
  std::string thought;
  std::string said;
  const auto write = [&](std::string_view text, bool is_thinking) {
    (is_thinking ? thought : said) += text;
  };
  const ChatAnswer answer = chat.answer("1 + 1?", write);
  EXPECT_EQ(answer.thinking, "hm, two");
  EXPECT_EQ(answer.text, "It is 2.");
  EXPECT_EQ(thought, answer.thinking);
  EXPECT_EQ(said, answer.text);
  EXPECT_EQ(chat.answer("Sure?", write).text, "No.");
  EXPECT_EQ(chat.turns()[1].text, "It is 2.");
  const auto mark = id("<think>");
  EXPECT_EQ(std::count(strategy.prompts[1].begin(), strategy.prompts[1].end(), mark), 0);
}

TEST_F(ThinkingChatTest, UnendedThinkingIsNoAnswer) {
  ScriptedStrategy strategy({script({"<think>", "hm"})});
  const ChatAnswer answer = chat(strategy).answer("1 + 1?", [](std::string_view, bool) {});
  EXPECT_EQ(answer.thinking, "hm");
  EXPECT_EQ(answer.text, "");
}

TEST_F(ThinkingChatTest, AFailedAnswerLeavesTheChatAsItWas) {
  ScriptedStrategy strategy({script({"a"})});
  Chat chat = this->chat(strategy);
  const auto write = [](std::string_view, bool) {};
  EXPECT_THROW(chat.retry(write), Error);
  (void)chat.answer("first", write);
  EXPECT_THROW(chat.answer("no script for it", write), std::out_of_range);
  EXPECT_EQ(chat.turns().size(), 2U);
  EXPECT_THROW(chat.retry(write), std::out_of_range);
  EXPECT_EQ(chat.turns().size(), 2U);
  EXPECT_TRUE(chat.undo());
  EXPECT_FALSE(chat.undo());
}

}  // namespace
}  // namespace specdec
