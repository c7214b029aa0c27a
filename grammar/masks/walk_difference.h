#pragma once
#include <optional>
#include <unordered_map>

#include "grammar/masks/letters.h"
#include "grammar/masks/token_spelling.h"
#include "grammar/regex/regex.h"
#include "grammar/tables/token_trie.h"
#include "grammar/token_mask.h"

namespace specdec {

/// Walks the tree with two languages at once, only where they differ, and turns the bits of the one
/// into the bits of the other.
class WalkDifference {
 public:
  /// Borrows all of it.
  struct Tools {
    const TokenTrie& trie;
    RegexStore& regexes;
    LanguageLetters& letters;
    const TokenSpelling& spelling;
    Escapes escapes;
  };

  /// `inside`, `close`: bits of the tokens that stay inside and of those that close.
  WalkDifference(const Tools& tools, MaskWords& inside, MaskWords& close)
      : tools_(tools), inside_(inside), close_(close) {}

  void run(RegexId from, RegexId to);

 private:
  using Node = TokenTrie::Node;
  /// The two languages before a node.
  struct Pair {
    RegexId from = 0;
    RegexId to = 0;
    bool told = false;  ///< by letters: texts with none of these go on in both, or in neither
    Letters differing;
    bool same_inside = false;  ///< from here on only the ends of strings differ
  };
  /// What follows after characters beyond ASCII.
  struct High {
    bool one = false;     ///< the same after all of them: `target`
    bool always = false;  ///< something after each of them
    RegexId target = RegexStore::kNothing;
  };

  /// What was asked of a language so far.
  struct Facts {
    const std::optional<Letters>* never = nullptr;
    const Letters* always = nullptr;
    std::optional<High> high;
  };

  const std::optional<Letters>& never(RegexId language);
  const Letters& always(RegexId language);
  Pair pair(RegexId from, RegexId to);
  /// True when the subtree needs no look: nothing below differs, or all of it was set.
  bool skip(const Pair& before, Node node, bool same_inside);
  bool stays_alike(const Pair& before, Node node) const;
  bool stays_inside(RegexId language, Node node);
  void clear_below(Node node, MaskWords& words) const;
  bool closes(RegexId language) const;
  RegexId step(RegexId language, Node node, char32_t point);
  const High& above_ascii(RegexId language);
  bool same_above_ascii(RegexId a, RegexId b);
  void quote(Node node, bool before, bool now);

  Tools tools_;
  MaskWords& inside_;
  MaskWords& close_;
  std::unordered_map<RegexId, Facts> facts_;  ///< looked up without a lock
};

}  // namespace specdec
