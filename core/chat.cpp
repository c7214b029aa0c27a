#include "core/chat.h"

#include <fmt/format.h>

#include <utility>

#include "core/error.h"

namespace specdec {
namespace {

constexpr const char* kPlainText =
    "Give the turns as plain text instead: leave out --chat (in a config: chat: false).";

/// System messages that templates put before a chat that has none.
constexpr std::string_view kDefaultSystems[] = {
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face",
    "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."};
/// What Llama 3.1 and later put at the beginning of the system message. Templates that would take
/// today's date where they can (Llama 3.2) get this one too, so that results do not depend on the
/// day.
constexpr std::string_view kLlamaDates =
    "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n";

std::string_view trimmed_turn(std::string_view text) {
  constexpr std::string_view kSpace = " \t\n\v\f\r";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) {
    return {};
  }
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

/// Writes a chat as tokens: control pieces by id, text as text.
class ChatWriter {
 public:
  explicit ChatWriter(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void control(std::string_view piece) {
    const auto token = tokenizer_.find_piece(piece);
    if (!token) {
      throw Error(fmt::format("the tokenizer has no piece {}, so it cannot write chat turns. {}",
                              piece, kPlainText));
    }
    tokens_.push_back(*token);
  }
  /// Every text of a chat comes after a control piece.
  void text(std::string_view text) {
    const auto encoded = tokenizer_.encode_after(TextStart::kAfterControl, text);
    tokens_.insert(tokens_.end(), encoded.begin(), encoded.end());
  }
  std::vector<Token> take() { return std::move(tokens_); }

 private:
  const Tokenizer& tokenizer_;
  std::vector<Token> tokens_;
};

/// The role's name in the format, where the model's turns are called `model`.
std::string_view role_name(const ChatTurn& turn, std::string_view model, bool system) {
  if (turn.role == "user" || (system && turn.role == "system")) {
    return turn.role;
  }
  if (turn.role != "model") {
    throw Error(fmt::format("unknown role '{}' of a chat turn; known: user, model{}.", turn.role,
                            system ? ", system" : ""));
  }
  return model;
}

std::vector<Token> gemma_chat(const Tokenizer& tokenizer, const std::vector<ChatTurn>& turns) {
  ChatWriter chat(tokenizer);
  chat.control("<bos>");
  for (const ChatTurn& turn : turns) {
    const std::string_view role = role_name(turn, "model", /*system=*/false);
    chat.control("<start_of_turn>");
    chat.text(fmt::format("{}\n{}", role, trimmed_turn(turn.text)));
    chat.control("<end_of_turn>");
    chat.text("\n");
  }
  chat.control("<start_of_turn>");
  chat.text("model\n");
  return chat.take();
}

/// The turns after the default system message of the template, if it has one and they have none.
std::vector<ChatTurn> with_system(const Tokenizer& tokenizer, std::vector<ChatTurn> turns) {
  if (!turns.empty() && turns.front().role == "system") {
    return turns;
  }
  for (const std::string_view system : kDefaultSystems) {
    if (tokenizer.chat_template().find(system) != std::string_view::npos) {
      turns.insert(turns.begin(), {"system", std::string(system)});
      break;
    }
  }
  return turns;
}

std::vector<Token> chatml_chat(const Tokenizer& tokenizer, const std::vector<ChatTurn>& turns) {
  ChatWriter chat(tokenizer);
  for (const ChatTurn& turn : with_system(tokenizer, turns)) {
    const std::string_view role = role_name(turn, "assistant", /*system=*/true);
    chat.control("<|im_start|>");
    chat.text(fmt::format("{}\n{}", role, turn.text));
    chat.control("<|im_end|>");
    chat.text("\n");
  }
  chat.control("<|im_start|>");
  chat.text("assistant\n");
  return chat.take();
}

void write_llama3_header(ChatWriter& chat, std::string_view role) {
  chat.control("<|start_header_id|>");
  chat.text(role);
  chat.control("<|end_header_id|>");
}

std::vector<Token> llama3_chat(const Tokenizer& tokenizer, std::vector<ChatTurn> turns) {
  const bool dates = tokenizer.chat_template().find("Cutting Knowledge") != std::string_view::npos;
  if (dates && (turns.empty() || turns.front().role != "system")) {
    turns.insert(turns.begin(), {"system", ""});
  }
  ChatWriter chat(tokenizer);
  chat.control("<|begin_of_text|>");
  for (const ChatTurn& turn : turns) {
    write_llama3_header(chat, role_name(turn, "assistant", /*system=*/true));
    const bool first = dates && &turn == &turns.front();
    chat.text(fmt::format("\n\n{}{}", first ? kLlamaDates : "", trimmed_turn(turn.text)));
    chat.control("<|eot_id|>");
  }
  write_llama3_header(chat, "assistant");
  chat.text("\n\n");
  return chat.take();
}

struct KnownFormat {
  ChatFormat format;
  std::string_view piece;  ///< that begins a turn
};
constexpr KnownFormat kFormats[] = {{ChatFormat::kGemma, "<start_of_turn>"},
                                    {ChatFormat::kChatMl, "<|im_start|>"},
                                    {ChatFormat::kLlama3, "<|start_header_id|>"}};

}  // namespace

ChatFormat chat_format(const Tokenizer& tokenizer) {
  const std::string_view text = tokenizer.chat_template();
  for (const KnownFormat& known : kFormats) {
    const bool fits = text.empty() ? tokenizer.find_piece(known.piece).has_value()
                                   : text.find(known.piece) != std::string_view::npos;
    if (fits) {
      return known.format;
    }
  }
  if (!text.empty()) {
    throw Error(
        fmt::format("the checkpoint's chat template is none of those known here (Gemma, "
                    "ChatML, Llama 3). {}",
                    kPlainText));
  }
  throw Error(
      fmt::format("the tokenizer has no piece <start_of_turn> (nor <|im_start|>, nor "
                  "<|start_header_id|>), so it cannot write chat turns. {}",
                  kPlainText));
}

std::vector<Token> encode_chat(const Tokenizer& tokenizer, const std::vector<ChatTurn>& turns) {
  switch (chat_format(tokenizer)) {
    case ChatFormat::kChatMl:
      return chatml_chat(tokenizer, turns);
    case ChatFormat::kLlama3:
      return llama3_chat(tokenizer, turns);
    case ChatFormat::kGemma:
      break;
  }
  return gemma_chat(tokenizer, turns);
}

}  // namespace specdec
