#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/types.h"
#include "grammar/tables/growing_trie.h"

namespace specdec {

/// What a text is made of where tokens may stand between its bytes: bytes, and tokens as
/// themselves.
using TagSymbols = std::vector<uint32_t>;

inline constexpr uint32_t kFirstTokenSymbol = 256;  ///< below are the bytes

inline uint32_t symbol_of(Token token) { return kFirstTokenSymbol + static_cast<uint32_t>(token); }
inline bool is_token(uint32_t symbol) { return symbol >= kFirstTokenSymbol; }
inline Token token_of(uint32_t symbol) { return static_cast<Token>(symbol - kFirstTokenSymbol); }

TagSymbols symbols_of(std::string_view text);
/// Symbols as a text for people: bytes as they are, a token as <[ID]>.
std::string symbols_text(const TagSymbols& symbols);

/// What may follow some texts.
using TagEntry = uint32_t;

/// Texts as a tree, with what follows each.
class TagTexts {
 public:
  using Node = GrowingTrie::Node;

  Node add(const TagSymbols& symbols);
  Node add(const TagSymbols& symbols, TagEntry then);
  const GrowingTrie& trie() const { return trie_; }
  Node child(Node node, uint32_t symbol) const { return trie_.child(node, symbol); }
  bool has_children(Node node) const { return trie_.newest_child(node) != GrowingTrie::kNone; }
  /// What follows the texts that end here.
  const std::vector<TagEntry>& ends(Node node) const { return ends_[node]; }
  /// The whole text of a node.
  TagSymbols symbols(Node node) const;
  std::vector<uint32_t> child_symbols(Node node) const;
  bool empty() const { return trie_.size() == 1; }

 private:
  GrowingTrie trie_;
  std::vector<std::vector<TagEntry>> ends_ = std::vector<std::vector<TagEntry>>(1);
};

}  // namespace specdec
