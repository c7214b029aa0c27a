#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "grammar/token_mask.h"

namespace specdec {

/// Which tokens stay inside a string of some language, and which close it. With many tokens inside,
/// bits; with few, lists. A token that closes the string is never inside one, so one set of bits
/// says both.
struct StringTraversal {
  /// A token that stays inside, with the number of characters that it adds.
  struct Inside {
    Token token = 0;
    uint32_t length = 0;
  };
  /// A token that closes the string; `remainder` is what it holds after the quote.
  struct Exit {
    uint32_t remainder = 0;
    Token token = 0;
    uint32_t length = 0;
  };

  std::shared_ptr<const MaskWords> bits;  ///< inside, or closing with nothing after the quote
  MaskWords closing;                      ///< with bits: a bit by index in TokenSpelling::closing
  std::vector<Inside> inside;             ///< without bits
  std::vector<Exit> exits;                ///< without bits; sorted by remainder

  void sort_exits();
  uint64_t bytes() const;
  /// The walk as words, for a file.
  std::vector<uint32_t> to_words() const;
  /// The walk that to_words() wrote, for a vocabulary of so many mask words and closing tokens;
  /// nullptr when the words are not such a walk.
  static std::unique_ptr<StringTraversal> from_words(std::span<const uint32_t> words,
                                                     size_t mask_words, size_t closing_tokens);
};

}  // namespace specdec
