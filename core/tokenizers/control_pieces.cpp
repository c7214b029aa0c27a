#include "core/tokenizers/control_pieces.h"

#include <algorithm>
#include <array>

namespace specdec {

bool is_control_piece(std::string_view piece) {
  static constexpr std::array<std::string_view, 18> kPrefixes = {
      "<start_of_", "<end_of_", "<unused", "<mask>", "<image_soft_token>", "<audio_soft_token>",
      "[multimodal]", "[@BOS@]", "[toxicity=", "<2mass>",
      // Gemma 4's; <|tool_call> and <|channel> are text of its answers.
      "<|turn>", "<turn|>", "<|tool_response>", "<|image", "<image|>", "<|audio", "<audio|>",
      "<|video"};
  return (piece.starts_with('<') || piece.starts_with('[')) &&
         std::any_of(kPrefixes.begin(), kPrefixes.end(),
                     [&](std::string_view prefix) { return piece.starts_with(prefix); });
}

std::vector<Token> answer_end_tokens(const Tokenizer& tokenizer) {
  std::vector<Token> ends;
  for (const auto& token :
       {tokenizer.eos(), tokenizer.find_piece("<end_of_turn>"), tokenizer.find_piece("<|im_end|>"),
        tokenizer.find_piece("<|eot_id|>"), tokenizer.find_piece("<|eom_id|>"),
        tokenizer.find_piece("<|endoftext|>"), tokenizer.find_piece("<turn|>"),
        tokenizer.find_piece("<|tool_response>")}) {
    if (token && std::find(ends.begin(), ends.end(), *token) == ends.end()) {
      ends.push_back(*token);
    }
  }
  return ends;
}

std::optional<ThinkingTokens> thinking_tokens(const Tokenizer& tokenizer) {
  static constexpr std::array<std::array<std::string_view, 2>, 2> kFormats = {
      {{"<|channel>", "<channel|>"}, {"<think>", "</think>"}}};
  for (const auto& [opening, ending] : kFormats) {
    const auto begin = tokenizer.find_piece(opening);
    const auto end = tokenizer.find_piece(ending);
    if (begin && end) {
      return ThinkingTokens{*begin, *end};
    }
  }
  return std::nullopt;
}

}  // namespace specdec
