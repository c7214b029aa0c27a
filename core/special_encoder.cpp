#include "core/special_encoder.h"

namespace specdec {

SpecialEncoder::SpecialEncoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {
  for (Token token = 0; token < tokenizer.vocab_size(); ++token) {
    if (tokenizer.token_bytes(token).empty() && !tokenizer.piece(token).empty()) {
      control_.add(tokenizer.piece(token), token);
    }
  }
}

std::vector<Token> SpecialEncoder::encode(std::string_view text) const {
  std::vector<Token> tokens;
  split_pieces(text, control_, tokens, [&](std::string_view plain) {
    const bool first = plain.data() == text.data();
    const auto encoded =
        tokenizer_.encode_after(first ? TextStart::kInput : TextStart::kAfterControl, plain);
    tokens.insert(tokens.end(), encoded.begin(), encoded.end());
  });
  return tokens;
}

}  // namespace specdec
