#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/types.h"

namespace specdec {

/// What the tokens of a vocabulary stand for, and which of them end a text. Immutable.
class VocabularyTokens {
 public:
  /// `bytes[i]`: what token i stands for; empty for control pieces.
  VocabularyTokens(const std::vector<std::string_view>& bytes, std::vector<Token> end_tokens);

  std::string_view bytes(Token token) const {
    const auto index = static_cast<size_t>(token);
    return std::string_view(text_).substr(ends_[index], ends_[index + 1] - ends_[index]);
  }
  int64_t size() const { return static_cast<int64_t>(ends_.size()) - 1; }
  const std::vector<Token>& end_tokens() const { return end_tokens_; }  ///< sorted
  /// The bytes of all tokens, and where in them one ends and the next begins: [size + 1].
  std::string_view text() const { return text_; }
  std::span<const uint32_t> ends() const { return ends_; }

 private:
  std::string text_;
  std::vector<uint32_t> ends_;
  std::vector<Token> end_tokens_;
};

}  // namespace specdec
