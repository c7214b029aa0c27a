#pragma once
#include <string>
#include <vector>

#include "core/tokenizer.h"

namespace specdec {

/// One turn of a chat; role is "user" or "model", and in templates that have it "system".
struct ChatTurn {
  std::string role;
  std::string text;
};

/// A chat as the checkpoint's template writes it (see read_chat_template), up to the opening of the
/// model's turn. Control pieces written in a turn's text are text. Throws Error: another template,
/// no turn pieces, an unknown role, an order of turns that the template refuses.
std::vector<Token> encode_chat(const Tokenizer& tokenizer, const std::vector<ChatTurn>& turns);

}  // namespace specdec
