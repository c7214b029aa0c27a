#pragma once
#include <bitset>
#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/tokenizers/tokenizer.h"
#include "core/types.h"
#include "grammar/canonical/merge_pairs.h"
#include "grammar/tables/bounded_cache.h"
#include "grammar/tables/growing_trie.h"
#include "grammar/tables/token_trie.h"
#include "grammar/token_mask.h"

namespace specdec {

/// Which tokens may follow one another in a tokenizer's own encoding of a text, exactly: neighbours
/// that merges leave apart (see MergePairs), no piece that is found whole spelt by others, bytes
/// only of characters that have no piece. For any number of threads: the lock is held while one
/// token is read, not while all of them are.
class CanonicalCuts {
 public:
  using Bytes = MergePairs::Bytes;
  /// What the tokens so far mean for the next one.
  using LeftId = uint32_t;
  static constexpr LeftId kStart = 0;  ///< no tokens so far

  /// Borrows the trie, which holds the tokens that texts may have. Throws ConfigError when the
  /// tokenizer does not say what it goes by.
  CanonicalCuts(const Tokenizer& tokenizer, const TokenTrie& trie);
  CanonicalCuts(const CanonicalCuts&) = delete;
  CanonicalCuts& operator=(const CanonicalCuts&) = delete;

  const TokenTrie& trie() const { return trie_; }
  /// One bit a token of the trie; the others are 0.
  std::shared_ptr<const MaskWords> allowed_after(LeftId left);
  LeftId next(LeftId left, Token token);
  /// Bytes with which the next token cannot be relied on to stand apart; all of them in the middle
  /// of a character. Where another byte comes next, every cut of what follows is a cut after this.
  Bytes joining_bytes(LeftId left);
  /// The joining bytes and more, found faster.
  Bytes roughly_joining_bytes(LeftId left) const { return find_joining(left_at(left), true); }
  /// Tokens that end inside a JSON string as they begin there: whole characters and escapes (but
  /// for \u, of which it may take two), no quote.
  const MaskWords& inner() const { return inner_; }
  /// Tokens of inner() after which some printable ASCII character but '"' and '\' begins a new
  /// token; tokens that begin an escape of which the letter does; first bytes of characters without
  /// piece.
  const MaskWords& loose() const { return loose_; }

 private:
  using Node = GrowingTrie::Node;
  struct Left {
    Token token = -1;           ///< that merges may join to the next one; else -1
    std::vector<Node> pending;  ///< what the text so far has of pieces that would be found whole
    std::string partial;        ///< bytes of a character that is not finished
    auto operator<=>(const Left&) const = default;  // NOLINT(modernize-use-nullptr)
  };

  CanonicalCuts(const Tokenizer& tokenizer, const TokenTrie& trie, const MergeRules& rules);
  void plant(const MergeRules& rules, const Tokenizer& tokenizer);
  void find_byte_pieces(const Tokenizer& tokenizer);
  void find_alone(const Tokenizer& tokenizer);
  void find_inner();
  bool some_has_no_piece(uint8_t first_byte) const;
  bool is_whole(Token token) const { return whole_[static_cast<size_t>(token)]; }
  /// -1 for tokens that are not byte pieces.
  int byte_value(Token token) const { return byte_values_[static_cast<size_t>(token)]; }
  bool byte_may_come(const std::string& partial, uint8_t byte) const;
  bool goes_on(Node node) const { return whole_pieces_.newest_child(node) != GrowingTrie::kNone; }
  /// The node after `bytes`, 0 when none; `found`: a whole piece ended on the way.
  Node follow(Node from, std::string_view bytes, bool& found) const;
  bool holds_whole(std::string_view bytes) const;
  std::vector<Node> pending_after(Token token) const;
  Left left_of(Token token) const;
  LeftId intern(Left left);
  Left left_at(LeftId left) const;
  void remove_found(Node pending, TokenTrie::Node at, MaskWords& words) const;
  std::shared_ptr<const MaskWords> find_allowed(const Left& left) const;
  Bytes find_joining(const Left& left, bool roughly) const;

  const TokenTrie& trie_;
  MergePairs pairs_;
  std::vector<std::string> bytes_;
  std::vector<bool> whole_;
  GrowingTrie whole_pieces_;
  std::vector<bool> ends_ = {false};  ///< a whole piece ends at the node
  std::vector<int> byte_values_;
  std::unordered_map<std::string, bool> has_piece_;  ///< characters
  MaskWords alone_, inner_, loose_;
  mutable std::mutex mutex_;  ///< of all below
  std::vector<Left> lefts_;
  std::map<Left, LeftId> ids_;
  std::vector<LeftId> usual_;  ///< after each token where nothing else matters; kStart: not known
  BoundedCache<LeftId, std::shared_ptr<const MaskWords>> allowed_{uint64_t{64} << 20};
  BoundedCache<LeftId, Bytes> joining_{uint64_t{4} << 20};
};

}  // namespace specdec
