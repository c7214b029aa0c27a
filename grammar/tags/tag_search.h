#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "grammar/tags/tag_symbols.h"

namespace specdec {

/// Finds texts in free text as it comes in (Aho and Corasick 1975). A text counts at the first
/// place where it is whole; of several that end at one place the longest does. After a trigger, and
/// after a token, the rest of one of the texts must come.
class TagSearch {
 public:
  using Node = TagTexts::Node;
  static constexpr Node kNone = GrowingTrie::kNone;

  /// Throws GrammarError for a text that is found before it is whole, for an excluded text that is
  /// empty or one of the texts, and for a trigger with which none of them begins.
  TagSearch(TagTexts texts, const std::vector<std::string>& triggers,
            const std::vector<std::string>& excludes);

  /// The node after one more symbol, where texts are found that end there; kNone: it may not come.
  Node next(Node node, uint32_t symbol) const;
  const std::vector<TagEntry>& ends(Node node) const { return texts_.ends(node); }
  const TagTexts& texts() const { return texts_; }
  /// True when the rest of a text must come.
  bool is_committed(Node node) const { return nodes_[node].committed; }
  /// True when a character may have no end, because an excluded text ends with it.
  bool excludes_characters() const { return excludes_characters_; }
  /// The tokens that may come.
  std::vector<Token> tokens(Node node) const;

 private:
  struct Links {
    Node fail = GrowingTrie::kRoot;  ///< the longest proper ending that is in the tree
    Node found = kNone;              ///< the longest ending at which something is found
    bool committed = false;
    bool trigger = false;
    bool excluded = false;
  };

  void mark_triggers(const std::vector<std::string>& triggers);
  bool begins_with_trigger(const std::string& text) const;
  void mark_excluded(const std::vector<std::string>& excludes);
  void link();
  void check_wholes() const;
  /// The child of the node, or of its longest ending that has one; kRoot, for a token kNone.
  Node child_of_ending(Node node, uint32_t symbol) const;

  TagTexts texts_;
  std::vector<Links> nodes_;
  bool excludes_characters_ = false;
};

}  // namespace specdec
