#pragma once
#include <bitset>
#include <cstdint>
#include <span>
#include <vector>

#include "core/tokenizers/tokenizer.h"
#include "core/types.h"
#include "grammar/token_mask.h"

namespace specdec {

/// Which tokens a tokenizer that joins neighbours by rank leaves side by side. A text's own
/// encoding is a run of merges in which none crosses a border of two tokens; up to the first that
/// would cross, both sides do what they do alone. So a sequence is the tokenizer's own exactly when
/// each two neighbours are (Vieira et al. 2025, arXiv:2506.07956), and a pair is when no piece at
/// the left token's end meets one at the right token's beginning that it is joined to before either
/// is gone. Pieces that are found whole are not looked at here.
class MergePairs {
 public:
  using Bytes = std::bitset<256>;

  MergePairs(const Tokenizer& tokenizer, const MergeRules& rules);

  /// True when merges make the token of its own text, or it is a character.
  bool is_reachable(Token token) const { return token_of(token).reachable; }
  /// Clears the bits of the tokens that cannot stand behind `left`, a reachable token.
  void remove_after(Token left, MaskWords& words) const;
  /// The first bytes of pieces that the end of `left` might be joined to, where nothing is known of
  /// what follows them. `roughly`: more than these, found faster.
  Bytes joining_bytes(Token left, bool roughly) const;

 private:
  struct Merge {
    Token right = 0, result = 0;
    uint32_t rank = 0;
  };
  /// Ranks are at least 1 here; 0 stands for a character, which is there from the beginning.
  struct Node {
    Token left = -1, right = -1;  ///< the merge that makes the token last; -1 of a character
    uint32_t rank = 0;            ///< of that merge: when the token comes to be
    bool reachable = false;
    bool in_order = true;         ///< no merge on the way has a smaller rank than one before it
    uint32_t begin = 0, end = 0;  ///< in `order_`: the tokens that begin as this one, by merges
    uint32_t first_child = 0, children = 0;
  };
  struct Range {
    uint32_t begin = 0, end = 0;
  };

  const Node& token_of(Token token) const { return nodes_[static_cast<size_t>(token)]; }
  Node& token_of(Token token) { return nodes_[static_cast<size_t>(token)]; }
  std::span<const Merge> merges_of(Token left) const;
  const Merge* find(Token left, Token right) const;
  void add_merges(const MergeRules& rules, const std::vector<bool>& whole);
  void find_splits(const Tokenizer& tokenizer, const std::vector<bool>& whole);
  void plant_forest();
  void add_ranges(Token left, Token right, uint32_t until, const Merge& merge,
                  std::vector<Range>& ranges) const;
  /// Joins as the tokenizer does; the last merge is noted in `last`.
  void join(std::vector<Token>& symbols, Node& last) const;
  bool stay_apart(Token left, Token right) const;
  void append_characters(Token token, std::vector<Token>& symbols) const;
  void remove_in(std::vector<Range> ranges, MaskWords& words) const;

  std::vector<Merge> merges_;          ///< by left token, then by right
  std::vector<uint32_t> first_merge_;  ///< [vocab + 1]
  std::vector<Bytes> first_bytes_;     ///< of the right tokens of a left one
  std::vector<uint8_t> first_byte_;    ///< of a token
  std::vector<Node> nodes_;
  std::vector<Token> children_;  ///< of each token those that it begins, by rank
  std::vector<Token> order_;     ///< the forest, depth first, children by rank
  std::vector<Token> odd_;       ///< reachable tokens that are not in order: tried one by one
};

}  // namespace specdec
