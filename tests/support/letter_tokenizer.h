#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/tokenizers/tokenizer.h"

namespace specdec {

/// A tokenizer of a few given pieces: token i stands for pieces[i]. It cuts a text from the left,
/// the longest piece first. With merges these must lead to the same.
class LetterTokenizer final : public Tokenizer {
 public:
  explicit LetterTokenizer(std::vector<std::string> pieces,
                           std::optional<MergeRules> merges = std::nullopt);

  int64_t vocab_size() const override;
  std::vector<Token> encode_after(TextStart start, std::string_view text) const override;
  std::string_view token_bytes(Token token) const override;
  std::string_view piece(Token token) const override;
  std::optional<Token> find_piece(std::string_view piece) const override;
  std::optional<Token> bos() const override;
  std::optional<Token> eos() const override;
  bool adds_bos() const override { return true; }
  std::optional<MergeRules> merge_rules() const override { return merges_; }

 private:
  std::vector<std::string> pieces_;
  std::optional<MergeRules> merges_;
};

}  // namespace specdec
