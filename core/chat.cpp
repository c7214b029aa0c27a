#include "core/chat.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/chat_template.h"
#include "core/error.h"

namespace specdec {
namespace {

/// What Python's str.strip() drops, and with it the filter `trim` of templates.
constexpr std::string_view kWhiteSpace[] = {
    "\t",     "\n",     "\v",     "\f",     "\r",     "\x1C",   "\x1D",   "\x1E",
    "\x1F",   " ",      "\u0085", "\u00A0", "\u1680", "\u2000", "\u2001", "\u2002",
    "\u2003", "\u2004", "\u2005", "\u2006", "\u2007", "\u2008", "\u2009", "\u200A",
    "\u2028", "\u2029", "\u202F", "\u205F", "\u3000"};

std::string_view trimmed(std::string_view text) {
  for (size_t size = 0; size != text.size();) {
    size = text.size();
    for (const std::string_view space : kWhiteSpace) {
      text.remove_prefix(text.starts_with(space) ? space.size() : 0);
      text.remove_suffix(text.ends_with(space) ? space.size() : 0);
    }
  }
  return text;
}

std::string_view without_lines_before(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of('\n'), text.size()));
}

std::string_view without_lines_around(std::string_view text) {
  text = without_lines_before(text);
  return text.substr(0, text.find_last_not_of('\n') + 1);
}

/// A model's turn in its reasoning and what follows.
struct Answer {
  std::string_view reasoning, content;
};

Answer split_answer(std::string_view text) {
  constexpr std::string_view kBegin = "<think>";
  constexpr std::string_view kEnd = "</think>";
  const size_t end = text.rfind(kEnd);
  if (end == std::string_view::npos) {
    return {.reasoning = {}, .content = text};
  }
  std::string_view reasoning = text.substr(0, text.find(kEnd));
  const size_t begin = reasoning.rfind(kBegin);
  if (begin != std::string_view::npos) {
    reasoning.remove_prefix(begin + kBegin.size());
  }
  return {.reasoning = without_lines_around(reasoning),
          .content = without_lines_before(text.substr(end + kEnd.size()))};
}

/// Writes a chat as tokens: control pieces by id, text as text.
class ChatWriter {
 public:
  explicit ChatWriter(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void control(std::string_view piece) {
    const auto token = tokenizer_.find_piece(piece);
    if (!token) {
      throw Error(fmt::format("the tokenizer has no piece {}, so it cannot write chat turns. {}",
                              piece, kChatAsPlainText));
    }
    tokens_.push_back(*token);
  }
  void token(Token token) { tokens_.push_back(token); }
  /// Every text of a chat comes after a control piece.
  void text(std::string_view text) {
    const auto encoded = tokenizer_.encode_after(TextStart::kAfterControl, text);
    tokens_.insert(tokens_.end(), encoded.begin(), encoded.end());
  }
  /// A text of the template itself, where "<think>" may be one piece.
  void written(std::string_view text) {
    constexpr std::string_view kThink = "<think>";
    const size_t at = text.find(kThink);
    const auto token = tokenizer_.find_piece(kThink);
    if (at == std::string_view::npos || !token) {
      this->text(text);
      return;
    }
    this->text(text.substr(0, at));
    tokens_.push_back(*token);
    this->text(text.substr(at + kThink.size()));
  }
  std::vector<Token> take() { return std::move(tokens_); }

 private:
  const Tokenizer& tokenizer_;
  std::vector<Token> tokens_;
};

/// The turns, with the template's default system message where they have none.
std::vector<ChatTurn> with_system(const ChatTemplate& chat, std::vector<ChatTurn> turns) {
  if (chat.default_system && (turns.empty() || turns.front().role != "system")) {
    turns.insert(turns.begin(), {"system", *chat.default_system});
  }
  return turns;
}

/// The role's name in a format where turns come in any order and the model's are the assistant's.
std::string_view role_name(const ChatTurn& turn) {
  if (turn.role == "user" || turn.role == "system") {
    return turn.role;
  }
  if (turn.role != "model") {
    throw Error(
        fmt::format("unknown role '{}' of a chat turn; known: user, model, system.", turn.role));
  }
  return "assistant";
}

/// Throws for turns that do not alternate, beginning with the user's; `begin` of them are no such
/// turns.
void check_order(const ChatTemplate& chat, const std::vector<ChatTurn>& turns, size_t begin) {
  for (size_t i = begin; i < turns.size(); ++i) {
    const std::string& role = turns[i].role;
    if (role != "user" && role != "model") {
      throw Error(fmt::format("unknown role '{}' of turn {} of a chat; known: user, model{}.", role,
                              i + 1, chat.system ? ", and system for the first" : ""));
    }
    if ((role == "user") != ((i - begin) % 2 == 0)) {
      throw Error(fmt::format(
          "turn {} of a chat is the {}'s, but in this checkpoint's template user and model take "
          "turns, the user first. Join turns that follow one another.",
          i + 1, role));
    }
  }
  if (begin == turns.size() && begin > 0) {
    throw Error(
        "a chat has only a system turn, but this checkpoint's template writes it into the user's "
        "first. Add a user turn.");
  }
}

std::vector<Token> gemma_chat(const Tokenizer& tokenizer, const ChatTemplate& chat,
                              const std::vector<ChatTurn>& turns) {
  const bool system = chat.system && !turns.empty() && turns.front().role == "system";
  const size_t begin = system ? 1 : 0;
  check_order(chat, turns, begin);
  ChatWriter writer(tokenizer);
  writer.control("<bos>");
  for (size_t i = begin; i < turns.size(); ++i) {
    writer.control("<start_of_turn>");
    const std::string before = system && i == begin ? turns.front().text + "\n\n" : "";
    writer.text(fmt::format("{}\n{}{}", turns[i].role, before, trimmed(turns[i].text)));
    writer.control("<end_of_turn>");
    writer.text("\n");
  }
  writer.control("<start_of_turn>");
  writer.text("model\n");
  return writer.take();
}

/// A model's turn as a template with reasoning writes it again.
std::string answer_text(ChatReasoning reasoning, std::string_view text, bool asked, bool last) {
  const Answer answer = split_answer(text);
  switch (reasoning) {
    case ChatReasoning::kKept:
      return std::string(text);
    case ChatReasoning::kDropped:
      return std::string(without_lines_before(answer.content));
    case ChatReasoning::kDroppedOnceAsked:
      break;
  }
  if (asked || (answer.reasoning.empty() && !last)) {
    return std::string(answer.content);
  }
  return fmt::format("<think>\n{}\n</think>\n\n{}", answer.reasoning,
                     without_lines_before(answer.content));
}

std::vector<Token> chatml_chat(const Tokenizer& tokenizer, const ChatTemplate& chat,
                               const std::vector<ChatTurn>& turns) {
  ChatWriter writer(tokenizer);
  if (chat.bos) {
    writer.token(*tokenizer.bos());
  }
  const auto last_user = std::find_if(turns.rbegin(), turns.rend(), [](const ChatTurn& turn) {
                           return turn.role == "user";
                         }).base();
  for (auto turn = turns.begin(); turn != turns.end(); ++turn) {
    const std::string_view role = role_name(*turn);
    const std::string_view text = chat.trims ? trimmed(turn->text) : turn->text;
    const bool asked = turn < last_user || last_user == turns.begin();
    writer.control("<|im_start|>");
    writer.text(fmt::format("{}\n{}", role,
                            turn->role == "model"
                                ? answer_text(chat.reasoning, text, asked, turn + 1 == turns.end())
                                : std::string(text)));
    writer.control("<|im_end|>");
    writer.text("\n");
  }
  writer.control("<|im_start|>");
  writer.written("assistant\n" + chat.opening);
  return writer.take();
}

void write_llama3_header(ChatWriter& writer, std::string_view role) {
  writer.control("<|start_header_id|>");
  writer.text(role);
  writer.control("<|end_header_id|>");
}

std::vector<Token> llama3_chat(const Tokenizer& tokenizer, const ChatTemplate& chat,
                               const std::vector<ChatTurn>& turns) {
  ChatWriter writer(tokenizer);
  writer.control("<|begin_of_text|>");
  for (const ChatTurn& turn : turns) {
    write_llama3_header(writer, role_name(turn));
    const bool first = turn.role == "system" && &turn == &turns.front();
    writer.text(
        fmt::format("\n\n{}{}", first ? chat.system_prefix : std::string(), trimmed(turn.text)));
    writer.control("<|eot_id|>");
  }
  write_llama3_header(writer, "assistant");
  writer.text("\n\n");
  return writer.take();
}

}  // namespace

std::vector<Token> encode_chat(const Tokenizer& tokenizer, const std::vector<ChatTurn>& turns) {
  const ChatTemplate chat = read_chat_template(tokenizer);
  switch (chat.format) {
    case ChatFormat::kChatMl:
      return chatml_chat(tokenizer, chat, with_system(chat, turns));
    case ChatFormat::kLlama3:
      return llama3_chat(tokenizer, chat, with_system(chat, turns));
    case ChatFormat::kGemma:
      break;
  }
  return gemma_chat(tokenizer, chat, turns);
}

}  // namespace specdec
