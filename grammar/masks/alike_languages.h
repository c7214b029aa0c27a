#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>
#include <vector>

#include "grammar/masks/token_spelling.h"
#include "grammar/regex/regex.h"
#include "grammar/tables/token_trie.h"

namespace specdec {

/// Tells that two languages have the same walk, where that is quicker than to make it: languages
/// with large counts are different ones after each character, but a token is too short to tell.
/// The characters are put into the few classes that such languages tell apart, and the vocabulary's
/// tree is cut down to the sequences of classes in it.
class AlikeLanguages {
 public:
  /// Borrows both.
  AlikeLanguages(const TokenTrie& trie, RegexStore& regexes) : trie_(trie), regexes_(regexes) {}

  /// False when the walks differ, or when nothing can be told.
  bool alike(RegexId a, RegexId b, const TokenSpelling& spelling, EscapeStyle escapes);
  uint64_t bytes() const;

 private:
  static constexpr size_t kMaxClasses = 12;
  using Targets = std::array<RegexId, kMaxClasses>;  ///< by class
  /// All code points in ranges, and the class of each.
  struct Classes {
    std::vector<char32_t> lasts;
    std::vector<uint8_t> of_range;
    uint8_t count = 0;
    bool operator==(const Classes&) const = default;
    uint8_t of(char32_t point) const;
  };
  /// The sequences of classes in the tokens, by their beginnings; 0 is the empty one.
  struct Tree {
    Classes classes;
    EscapeStyle escapes = EscapeStyle::kAny;
    int met = 0;  ///< by languages, before the tree was made
    std::vector<std::array<uint32_t, kMaxClasses>> children;
    std::unordered_map<RegexId, std::optional<Targets>> targets;  ///< of states that were met
  };

  std::optional<Classes> classes_of(RegexId language);
  Tree* tree_for(Classes classes, const TokenSpelling& spelling, EscapeStyle escapes);
  void plant(const TokenSpelling& spelling, Tree& tree) const;
  const std::optional<Targets>& targets(RegexId state, Tree& tree);
  std::optional<Targets> find_targets(RegexId state, const Classes& classes);

  const TokenTrie& trie_;
  RegexStore& regexes_;
  std::deque<Tree> trees_;  ///< the latest used first
};

}  // namespace specdec
