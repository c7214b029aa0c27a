#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/types.h"

namespace specdec {

/// One bit per vocabulary entry, 32 to a word, the lowest bit first. Shared between masks.
using MaskWords = std::vector<uint32_t>;

inline bool has_token(const MaskWords& words, Token token) {
  const auto index = static_cast<size_t>(token);
  return (words[index / 32] >> (index % 32) & 1) != 0;
}

inline void set_token(MaskWords& words, Token token, bool value = true) {
  const auto index = static_cast<size_t>(token);
  const uint32_t bit = 1U << (index % 32);
  words[index / 32] = value ? words[index / 32] | bit : words[index / 32] & ~bit;
}

/// Set of the tokens that may come next: a base that many masks share, and a few exceptions to it.
/// Cheap to copy: nothing of the vocabulary's size is.
class TokenMask {
 public:
  struct Content {
    std::shared_ptr<const MaskWords> base;  ///< nullptr: nothing
    std::vector<Token> added;               ///< allowed beside the base; sorted
    std::vector<Token> removed;             ///< tokens of the base that are forbidden; sorted
    bool is_fallback = false;
  };

  TokenMask() = default;
  TokenMask(std::shared_ptr<const Content> content, int64_t vocab_size)
      : content_(std::move(content)), vocab_size_(vocab_size) {}

  int64_t vocab_size() const { return vocab_size_; }
  bool allows(Token token) const;
  /// True when no token is allowed.
  bool empty() const { return content_->base == nullptr && content_->added.empty(); }
  /// Number of allowed tokens.
  int64_t count() const;
  /// Allowed tokens, ascending.
  std::vector<Token> tokens() const;
  /// The one token that is allowed, or -1 when there are none or several.
  Token single() const;
  /// Writes the bits: [ceil(vocab_size / 32)] words.
  void write(std::span<uint32_t> words) const;
  /// True when a canonical grammar found no way on in the tokenizer's own cut (see CanonicalMasks).
  bool is_fallback() const { return content_->is_fallback; }
  const Content& content() const { return *content_; }

 private:
  std::shared_ptr<const Content> content_ = std::make_shared<const Content>();
  int64_t vocab_size_ = 0;
};

/// Sets the logits of all forbidden tokens to -inf, in place; logits beyond the mask's vocabulary
/// too. Costs what the exceptions cost beside one pass over the row.
void apply_mask(const TokenMask& mask, std::span<float> logits);
void apply_mask(const TokenMask& mask, std::span<double> logits);

}  // namespace specdec
