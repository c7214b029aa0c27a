#include "tests/support/letter_tokenizer.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace specdec {

LetterTokenizer::LetterTokenizer(std::vector<std::string> pieces, std::optional<MergeRules> merges)
    : pieces_(std::move(pieces)), merges_(std::move(merges)) {}

int64_t LetterTokenizer::vocab_size() const { return static_cast<int64_t>(pieces_.size()); }

std::vector<Token> LetterTokenizer::encode_after(TextStart /*start*/, std::string_view text) const {
  std::vector<Token> tokens;
  while (!text.empty()) {
    size_t best = pieces_.size();
    for (size_t i = 0; i < pieces_.size(); ++i) {
      const size_t size = best == pieces_.size() ? 0 : pieces_[best].size();
      best = pieces_[i].size() > size && text.starts_with(pieces_[i]) ? i : best;
    }
    if (best == pieces_.size()) {
      throw InternalError("a letter tokenizer has no piece for this text");
    }
    tokens.push_back(static_cast<Token>(best));
    text.remove_prefix(pieces_[best].size());
  }
  return tokens;
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
