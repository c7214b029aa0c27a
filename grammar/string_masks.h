#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "grammar/json_string_decoder.h"
#include "grammar/regex.h"
#include "grammar/token_mask.h"
#include "grammar/token_trie.h"

namespace specdec {

/// Which tokens stay inside a JSON string of some language, and which close it. One walk over the
/// vocabulary for each such place, ever: all grammars of a vocabulary share them.
class StringMasks {
 public:
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
    bool escaped = false;  ///< its characters are not what its bytes say
  };
  struct Walk {
    std::vector<Inside> inside;
    std::vector<Exit> exits;  ///< sorted by remainder
    uint32_t longest = 0;
    std::map<uint32_t, std::shared_ptr<const MaskWords>> words;  ///< by the greatest length
  };

  StringMasks(const TokenTrie& trie, RegexStore& regexes);

  /// The tokens below a node of the trie, as seen from a place in a string that the node's own text
  /// has led to.
  Walk& walk(TokenTrie::Node node, RegexId language, const JsonStringDecoder& decoder,
             EscapeStyle escapes);
  /// The bits of all `inside` tokens of at most that length.
  std::shared_ptr<const MaskWords> words(Walk& walk, uint64_t max_length);
  /// What may stand after a quote in some token; remainder 0 is nothing.
  const TokenTrie& remainders() const { return *remainders_; }

  uint64_t walks() const { return walks_; }  ///< made so far

 private:
  void collect_remainders();
  void make(TokenTrie::Node node, RegexId language, const JsonStringDecoder& decoder,
            EscapeStyle escapes, Walk& walk);
  uint32_t remainder_after(TokenTrie::Node quote, TokenTrie::Node node) const;

  const TokenTrie& trie_;
  RegexStore& regexes_;
  std::map<std::tuple<TokenTrie::Node, RegexId, uint64_t, EscapeStyle>, std::unique_ptr<Walk>>
      cache_;
  std::unique_ptr<TokenTrie> remainders_;
  uint64_t walks_ = 0;
};

}  // namespace specdec
