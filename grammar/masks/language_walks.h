#pragma once
#include <list>
#include <memory>

#include "grammar/masks/letters.h"
#include "grammar/masks/quote_remainders.h"
#include "grammar/masks/string_traversal.h"
#include "grammar/masks/token_spelling.h"
#include "grammar/regex/regex.h"
#include "grammar/tables/token_trie.h"

namespace specdec {

/// Makes walks: finds out which tokens stay inside the strings of a language, and which close them.
class LanguageWalks {
 public:
  using Node = TokenTrie::Node;

  /// Borrows all three.
  LanguageWalks(const TokenTrie& trie, const QuoteRemainders& remainders, RegexStore& regexes)
      : trie_(trie), remainders_(remainders), regexes_(regexes), letters_(regexes) {}

  /// The tokens below a node of the tree, each followed to its end.
  std::unique_ptr<StringTraversal> below(Node root, RegexId language, const Escapes& escapes);
  /// All tokens, listed as they are met; nullptr when there may be too many for lists.
  std::unique_ptr<StringTraversal> few(RegexId language, const TokenSpelling& spelling,
                                       const Escapes& escapes);
  /// A language whose walk has bits.
  struct Known {
    RegexId language = RegexStore::kNothing;  ///< kNothing: no tokens, without a walk
    std::shared_ptr<const StringTraversal> walk;
  };
  /// All tokens, by what differs from the walk of another language.
  std::unique_ptr<StringTraversal> differing(RegexId language, const Known& from,
                                             const TokenSpelling& spelling, const Escapes& escapes);
  /// The walk of these tokens, which stay inside, and these, which close.
  std::unique_ptr<StringTraversal> keep(const MaskWords& inside, const MaskWords& close,
                                        const TokenSpelling& spelling) const;
  /// The one of `candidates` whose walk differs least from the language's, because it goes on to
  /// the same after most characters, or dies of the same letters; kAll only if `with_all`; kNothing
  /// when none is near.
  RegexId nearest(RegexId language, const TokenSpelling& spelling,
                  const std::list<RegexId>& candidates, bool with_all);
  uint64_t bytes() const { return letters_.bytes(); }

  size_t word_count() const { return static_cast<size_t>((trie_.vocab_size() + 31) / 32); }

 private:
  void list_from(Node root, RegexId language, const TokenSpelling& spelling, const Escapes& escapes,
                 StringTraversal& walk);

  const TokenTrie& trie_;
  const QuoteRemainders& remainders_;
  RegexStore& regexes_;
  LanguageLetters letters_;
};

}  // namespace specdec
