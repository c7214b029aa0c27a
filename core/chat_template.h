#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "core/tokenizer.h"

namespace specdec {

/// The chat formats known here.
enum class ChatFormat : uint8_t {
  kGemma,   ///< <start_of_turn>role\ntext<end_of_turn>\n
  kChatMl,  ///< <|im_start|>role\ntext<|im_end|>\n: SmolLM2, Qwen
  kLlama3,  ///< <|start_header_id|>role<|end_header_id|>\n\ntext<|eot_id|>
};

/// What becomes of the reasoning that a model's turn begins with, up to </think>.
enum class ChatReasoning : uint8_t {
  kKept,
  kDropped,           ///< QwQ
  kDroppedOnceAsked,  ///< dropped before the last user turn, written anew behind it: Qwen 3
};

/// What a checkpoint's template makes of the turns of a chat.
struct ChatTemplate {
  ChatFormat format = ChatFormat::kGemma;
  bool bos = true;                            ///< the chat begins with <bos>
  bool trims = true;                          ///< white space around a turn's text is dropped
  bool system = false;                        ///< there are system turns
  std::optional<std::string> default_system;  ///< of a chat that has none
  std::string system_prefix;                  ///< before the first turn's text if it is a system's
  std::string opening;                        ///< what the model's turn is given: "<think>\n"
  ChatReasoning reasoning = ChatReasoning::kKept;
};

/// Of a tokenizer: its chat template's format and, read from the template's text, where that
/// differs within the format. Without a template the format is the one that its turn pieces belong
/// to. Throws Error for others, saying how to do without.
ChatTemplate read_chat_template(const Tokenizer& tokenizer);

/// Ends an error about chats.
inline constexpr const char* kChatAsPlainText =
    "Give the turns as plain text instead: leave out --chat (in a config: chat: false).";

}  // namespace specdec
