#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/types.h"
#include "grammar/tables/cache_file.h"

namespace specdec {

/// The bytes of a vocabulary's tokens as a tree, in depth-first order: node i's subtree is
/// [i, end(i)). Node 0 is the empty text. Immutable.
class TokenTrie {
 public:
  using Node = uint32_t;
  static constexpr Node kNone = ~Node{0};

  /// `bytes[i]`: what token i stands for; tokens that stand for nothing (control pieces) are in no
  /// node.
  explicit TokenTrie(const std::vector<std::string_view>& bytes);
  /// What `write` has written below a key; nothing when the file does not have it whole.
  static std::optional<TokenTrie> read(const CacheFile& file, const CacheKey& key);
  void write(CacheFileWriter& file, const CacheKey& key) const;

  int64_t vocab_size() const { return vocab_size_; }
  Node size() const { return static_cast<Node>(bytes_.size()); }
  uint8_t byte(Node node) const { return bytes_[node]; }
  /// Length of the node's text.
  uint32_t depth(Node node) const { return depths_[node]; }
  Node end(Node node) const { return ends_[node]; }
  /// Children of a node: its first is node + 1 when end(node) > node + 1, the next end(child).
  Node child(Node node, uint8_t byte) const;
  /// The node of a text below another one, or kNone.
  Node find(Node from, std::string_view text) const;
  /// Tokens whose bytes are this node's text (byte pieces double others), ascending.
  std::span<const Token> tokens(Node node) const;
  /// All tokens in the node's subtree, in depth-first order.
  std::span<const Token> tokens_below(Node node) const;

 private:
  int64_t vocab_size_ = 0;
  std::vector<uint8_t> bytes_;
  std::vector<uint32_t> depths_;
  std::vector<Node> ends_;
  std::vector<uint32_t> first_token_;  ///< [size + 1]
  std::vector<Token> tokens_;
  std::vector<Node> root_children_;  ///< by byte, or kNone
};

}  // namespace specdec
