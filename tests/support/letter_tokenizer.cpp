#include "tests/support/letter_tokenizer.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace specdec {

LetterTokenizer::LetterTokenizer(std::vector<std::string> pieces) : pieces_(std::move(pieces)) {}

int64_t LetterTokenizer::vocab_size() const { return static_cast<int64_t>(pieces_.size()); }

std::vector<Token> LetterTokenizer::encode(std::string_view /*text*/) const {
  throw InternalError("a letter tokenizer cannot encode");
}

std::string_view LetterTokenizer::token_bytes(Token token) const { return piece(token); }

std::string_view LetterTokenizer::piece(Token token) const {
  return pieces_.at(static_cast<size_t>(token));
}

std::optional<Token> LetterTokenizer::find_piece(std::string_view piece) const {
  const auto found = std::find(pieces_.begin(), pieces_.end(), piece);
  if (found == pieces_.end()) {
    return std::nullopt;
  }
  return static_cast<Token>(found - pieces_.begin());
}

std::optional<Token> LetterTokenizer::bos() const { return std::nullopt; }
std::optional<Token> LetterTokenizer::eos() const { return std::nullopt; }

}  // namespace specdec
