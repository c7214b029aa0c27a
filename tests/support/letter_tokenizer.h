#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/tokenizer.h"

namespace specdec {

/// A tokenizer of a few given pieces: token i stands for pieces[i]. It cuts a text from the left,
/// the longest piece first.
class LetterTokenizer final : public Tokenizer {
 public:
  explicit LetterTokenizer(std::vector<std::string> pieces);

  int64_t vocab_size() const override;
  std::vector<Token> encode(std::string_view text) const override;
  std::string_view token_bytes(Token token) const override;
  std::string_view piece(Token token) const override;
  std::optional<Token> find_piece(std::string_view piece) const override;
  std::optional<Token> bos() const override;
  std::optional<Token> eos() const override;

 private:
  std::vector<std::string> pieces_;
};

}  // namespace specdec
