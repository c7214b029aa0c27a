#include "core/chat_template.h"

#include <fmt/format.h>

#include <string_view>

#include "core/error.h"

namespace specdec {
namespace {

constexpr size_t kNowhere = std::string_view::npos;

/// What Llama 3.1 and later put at the beginning of the system message. Templates that would take
/// today's date where they can (Llama 3.2) get this one too, so that results do not depend on the
/// day.
constexpr const char* kLlamaDates =
    "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n";

bool has(std::string_view text, std::string_view part) { return text.find(part) != kNowhere; }

/// Output text of a template from a place in it on: up to the end of the string literal around the
/// place, its escapes read, or in text between the tags up to the next tag.
std::string output_text(std::string_view text, size_t at) {
  const size_t before = at == 0 ? kNowhere : text.find_last_of("'\"}", at - 1);
  const char end = before == kNowhere || text[before] == '}' ? '{' : text[before];
  std::string result;
  for (; at < text.size() && text[at] != end; ++at) {
    const bool escape = end != '{' && text[at] == '\\' && at + 1 < text.size();
    at += escape ? 1 : 0;
    result += escape && text[at] == 'n' ? '\n' : text[at];
  }
  return result;
}

/// The text of a system turn that the template itself writes whole, or sets a variable to.
std::optional<std::string> default_system(std::string_view text) {
  constexpr std::string_view kBegin = "<|im_start|>system";
  for (size_t at = text.find(kBegin); at != kNowhere; at = text.find(kBegin, at + 1)) {
    const std::string turn = output_text(text, at + kBegin.size());
    const size_t end = turn.find("<|im_end|>");
    if (turn.starts_with('\n') && end != kNowhere) {
      return turn.substr(1, end - 1);
    }
  }
  for (const std::string_view name : {"system_message", "system_prompt"}) {
    for (size_t at = text.find(name); at != kNowhere; at = text.find(name, at + 1)) {
      size_t value = text.find_first_not_of(' ', at + name.size());
      value = value != kNowhere && text[value] == '=' ? text.find_first_not_of(' ', value + 1)
                                                      : kNowhere;
      if (value != kNowhere && (text[value] == '\'' || text[value] == '"')) {
        std::string set = output_text(text, value + 1);
        if (!set.empty()) {
          return set;
        }
      }
    }
  }
  return std::nullopt;
}

/// What follows "assistant\n" where the model's turn is opened, thinking where that can be chosen.
std::string opening(std::string_view text) {
  const size_t asked = text.rfind("add_generation_prompt");
  if (asked == kNowhere) {
    return "";
  }
  const std::string_view tail = text.substr(asked);
  constexpr std::string_view kThink = "<think>";
  for (size_t at = tail.find(kThink); at != kNowhere; at = tail.find(kThink, at + 1)) {
    if (output_text(tail, at) == "<think>\n") {
      return "<think>\n";
    }
  }
  constexpr std::string_view kBegin = "<|im_start|>assistant";
  const size_t begin = tail.find(kBegin);
  if (begin == kNowhere || has(tail, "enable_thinking")) {
    return "";
  }
  const std::string turn = output_text(tail, begin + kBegin.size());
  return turn.starts_with('\n') ? turn.substr(1) : "";
}

ChatReasoning reasoning(std::string_view text) {
  if (!has(text, "split('</think>')") && !has(text, "split(\"</think>\")")) {
    return ChatReasoning::kKept;
  }
  return has(text, "last_query_index") ? ChatReasoning::kDroppedOnceAsked : ChatReasoning::kDropped;
}

[[noreturn]] void refuse(std::string_view why) {
  throw Error(fmt::format("the checkpoint's chat template {}. {}", why, kChatAsPlainText));
}

ChatTemplate chatml_template(const Tokenizer& tokenizer, std::string_view text) {
  if (has(text, "<|im_sep|>")) {
    refuse("writes <|im_start|>role<|im_sep|>text, which is none of the formats known here");
  }
  if (has(text, "strftime_now")) {
    refuse("writes today's date, so that results would depend on the day");
  }
  ChatTemplate chat;
  chat.format = ChatFormat::kChatMl;
  chat.system = true;
  const std::string_view head = text.substr(0, text.find("<|im_start|>"));
  chat.bos = tokenizer.bos() && !text.empty() &&
             (has(head, "bos_token") || has(head, tokenizer.piece(*tokenizer.bos())));
  chat.trims = has(text, "|trim") || has(text, "| trim");
  chat.default_system = default_system(text);
  chat.opening = opening(text);
  chat.reasoning = reasoning(text);
  return chat;
}

ChatTemplate llama3_template(std::string_view text) {
  ChatTemplate chat;
  chat.format = ChatFormat::kLlama3;
  chat.system = true;
  if (has(text, "Cutting Knowledge")) {
    chat.default_system = "";
    chat.system_prefix = kLlamaDates;
  }
  return chat;
}

struct KnownFormat {
  ChatFormat format;
  std::string_view piece;  ///< that begins a turn
};
constexpr KnownFormat kFormats[] = {{ChatFormat::kGemma, "<start_of_turn>"},
                                    {ChatFormat::kChatMl, "<|im_start|>"},
                                    {ChatFormat::kLlama3, "<|start_header_id|>"}};

ChatFormat format_of(const Tokenizer& tokenizer, std::string_view text) {
  for (const KnownFormat& known : kFormats) {
    if (text.empty() ? tokenizer.find_piece(known.piece).has_value() : has(text, known.piece)) {
      return known.format;
    }
  }
  if (!text.empty()) {
    refuse("is none of those known here (Gemma, ChatML, Llama 3)");
  }
  throw Error(
      fmt::format("the tokenizer has no piece <start_of_turn> (nor <|im_start|>, nor "
                  "<|start_header_id|>), so it cannot write chat turns. {}",
                  kChatAsPlainText));
}

}  // namespace

ChatTemplate read_chat_template(const Tokenizer& tokenizer) {
  const std::string_view text = tokenizer.chat_template();
  switch (format_of(tokenizer, text)) {
    case ChatFormat::kChatMl:
      return chatml_template(tokenizer, text);
    case ChatFormat::kLlama3:
      return llama3_template(text);
    case ChatFormat::kGemma:
      break;
  }
  ChatTemplate chat;
  chat.system = has(text, "first_user_prefix");
  return chat;
}

}  // namespace specdec
