#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "core/tokenizers/tokenizer.h"

namespace specdec {

/// One turn of a chat; role is "user" or "model", and in templates that have it "system".
struct ChatTurn {
  std::string role;
  std::string text;
};

/// A chat as the checkpoint's template renders it (see JinjaTemplate), up to the opening of the
/// model's turn; without a template in the format of Gemma, ChatML or Llama 3, whichever the
/// tokenizer has the turn pieces of. Control pieces written in a turn's text are text; user-defined
/// pieces are tokens there, as in any text (see Tokenizer::encode). `tools`: JSON text of the list
/// of tools that the model may call, which a template that has the name `tools` writes into the
/// prompt; "" = none. Throws Error, saying how to do without: a template that is not supported or
/// refuses the chat, no turn pieces, an unknown role, tools that are no JSON or hold integers of
/// more than 64 bits.
std::vector<Token> encode_chat(const Tokenizer& tokenizer, const std::vector<ChatTurn>& turns,
                               std::string_view tools = {});

}  // namespace specdec
