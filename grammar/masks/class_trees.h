#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "grammar/masks/token_spelling.h"
#include "grammar/regex/regex.h"
#include "grammar/tables/token_trie.h"
#include "grammar/token_mask.h"

namespace specdec {

/// Walks of languages that tell few classes of characters apart. The vocabulary's tree is cut down
/// to the sequences of classes in it, once for all languages of the same classes. Languages with
/// large counts profit: they are different ones after each character. For any number of threads,
/// one at a time for each tree.
class ClassTrees {
 public:
  /// Borrows both.
  ClassTrees(const TokenTrie& trie, RegexStore& regexes) : trie_(trie), regexes_(regexes) {}

  class Tree;
  /// The tree of the language's classes; nullptr when there are many of them, or too few languages
  /// have met them to be worth a tree.
  std::shared_ptr<Tree> find(RegexId language, const TokenSpelling& spelling,
                             const Escapes& escapes);
  /// True when both have the same walk; false when they differ, or when the tree cannot tell.
  bool alike(RegexId a, RegexId b, Tree& tree);
  /// Sets the tokens inside the language's strings, and those that close them, which hold nothing
  /// else before; false when the tree cannot tell.
  bool walk(RegexId language, const TokenSpelling& spelling, Tree& tree, MaskWords& inside,
            MaskWords& close);
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
  std::optional<Classes> classes_of(RegexId language);
  std::shared_ptr<Tree> latest(Classes classes, const Escapes& escapes);
  void plant(const TokenSpelling& spelling, Tree& tree) const;
  const std::optional<Targets>& targets(RegexId state, Tree& tree);
  std::optional<Targets> find_targets(RegexId state, const Classes& classes);

  const TokenTrie& trie_;
  RegexStore& regexes_;
  mutable std::mutex mutex_;
  std::list<std::shared_ptr<Tree>> trees_;  ///< the latest used first; under the lock
};

/// The sequences of classes in the tokens, by their beginnings; node 0 is the empty one.
class ClassTrees::Tree {
 private:
  friend class ClassTrees;
  /// Where a token ends: after a sequence, and in the middle of a character unless `part` is 0.
  struct End {
    uint32_t node = 0;
    char32_t part = 0;
  };

  uint64_t bytes() const;

  Classes classes_;
  Escapes escapes_;
  std::mutex mutex_;  ///< of all below
  int met_ = 0;       ///< by languages, before the tree was made
  std::vector<std::array<uint32_t, kMaxClasses>> children_;
  std::vector<End> ends_ = {{}};    ///< the first one: tokens that are in no string
  std::vector<uint32_t> end_of_;    ///< by token: in `ends_`
  std::vector<uint32_t> quote_of_;  ///< by token: one more than the node before its quote; 0: none
  std::unordered_map<RegexId, std::optional<Targets>> targets_;  ///< of states that were met
  std::atomic<uint64_t> bytes_ = 0;
};

}  // namespace specdec
