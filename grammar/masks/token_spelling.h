#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "grammar/json/json_string_decoder.h"
#include "grammar/masks/letters.h"
#include "grammar/masks/quote_remainders.h"
#include "grammar/tables/cache_file.h"
#include "grammar/tables/token_trie.h"
#include "grammar/token_mask.h"

namespace specdec {

/// What the tokens of a vocabulary spell inside a JSON string, by the bytes of their tree.
struct TokenSpelling {
  using Node = TokenTrie::Node;

  static constexpr char32_t kQuote = 0x110000;    ///< the end
  static constexpr char32_t kNothing = 0x110001;  ///< no string goes on so
  static constexpr char32_t kPart = 0x110002;     ///< and above: kPart + index in `parts`
  std::vector<char32_t> points;  ///< by node: the character that it completes, or one of these
  std::vector<JsonStringDecoder> parts;  ///< unfinished characters and escapes, each once
  std::vector<uint32_t> lengths;         ///< by token: characters, up to a quote
  uint32_t longest = 0;                  ///< of them
  std::vector<uint32_t> remainders;      ///< by token: of those that close
  std::vector<Token> closing;            ///< with a remainder; sorted by it
  std::vector<uint32_t> first_closing;   ///< by remainder: index in `closing`
  MaskWords inside;                      ///< not closing, some string has them
  MaskWords plain_close;                 ///< closing, without a remainder
  std::vector<std::shared_ptr<const MaskWords>> shorter;  ///< by length: tokens of at most it
  std::vector<uint32_t> letters;  ///< by node: twice `set`, and one with a quote below
  std::vector<Letters> sets;

  /// What `cache` has, if it is whole, or else found out.
  static TokenSpelling make(const TokenTrie& trie, const QuoteRemainders& remainders,
                            const Escapes& escapes, const CacheFile* cache);
  void write(CacheFileWriter& file, EscapeStyle escapes) const;
  uint64_t bytes() const;

  bool was_cached = false;
  bool all_escapes = true;  ///< EscapeStyle::kAny: after a backslash any character may come
  bool has_quote(Node node) const { return letters[node] % 2 != 0; }
  /// Which of `sets` the node's subtree holds; 0: not told.
  uint32_t set(Node node) const { return letters[node] / 2; }
  /// What the node's own byte completes or begins; unclear where more bytes decide which escapes
  /// there are.
  Letters letters_of(Node node) const;
  /// The tokens of at most that many characters.
  const MaskWords& at_most(uint64_t length);
};

}  // namespace specdec
