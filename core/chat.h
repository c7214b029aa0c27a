#pragma once
#include <string>
#include <vector>

#include "core/tokenizer.h"

namespace specdec {

/// The chat formats known here.
enum class ChatFormat {
  kGemma,   ///< <start_of_turn>role\ntext<end_of_turn>\n
  kChatMl,  ///< <|im_start|>role\ntext<|im_end|>\n: SmolLM2, Qwen
  kLlama3,  ///< <|start_header_id|>role<|end_header_id|>\n\ntext<|eot_id|>
};

/// The format of a tokenizer's chat template, or where its files have none, the one that its turn
/// pieces belong to. Throws Error for others, saying how to do without.
ChatFormat chat_format(const Tokenizer& tokenizer);

/// One turn of a chat; role is "user" or "model", and in formats that have it "system".
struct ChatTurn {
  std::string role;
  std::string text;
};

/// A chat in the tokenizer's format, up to the opening of the model's turn, with what the
/// checkpoint's template puts before it: <bos>, a default system turn. White space around a turn's
/// text is dropped where the template does (not in ChatML). Control pieces written in a turn's text
/// are text. Throws Error when the tokenizer has no turn pieces or a role is another.
std::vector<Token> encode_chat(const Tokenizer& tokenizer, const std::vector<ChatTurn>& turns);

}  // namespace specdec
