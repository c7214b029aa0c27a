#pragma once
#include <optional>
#include <string_view>
#include <vector>

#include "core/tokenizers/tokenizer.h"

namespace specdec {

/// True for pieces that steer a model and stand for no text of its answer (<start_of_turn>,
/// <unused7>, <mask>, images), even where the tokenizer takes them for text.
bool is_control_piece(std::string_view piece);

/// The tokens with which a model ends its answer: <eos>, and those of <end_of_turn>, <|im_end|>,
/// <|eot_id|>, <|eom_id|>, <|endoftext|>, <turn|> and <|tool_response> that there are.
std::vector<Token> answer_end_tokens(const Tokenizer& tokenizer);

/// The tokens between which a model thinks before it answers.
struct ThinkingTokens {
  Token begin = 0;
  Token end = 0;
};
/// The thinking tokens of the chat format: <|channel> and <channel|> (Gemma 4) or <think> and
/// </think>; none where the vocabulary does not have both.
std::optional<ThinkingTokens> thinking_tokens(const Tokenizer& tokenizer);

}  // namespace specdec
