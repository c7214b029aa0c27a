#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "core/types.h"

namespace specdec {

/// Texts by their tokens, as a radix tree: an edge is a run of tokens, nodes lie where texts end or
/// part. Finding what a prompt shares with all of them takes time by the prompt's length, not by
/// their number. It knows texts by ids, which the caller chooses.
///
/// A text serves the first n tokens of itself for n from its `shortest` to its length: a snapshot
/// of keys and values whose windows have left much behind has no shorter beginnings.
class PrefixTree {
 public:
  using Id = int64_t;

  struct Match {
    /// Id of the text that serves most of the prompt's tokens, of several the one with the least
    /// `shortest`; -1 = none serves any.
    Id id = -1;
    int64_t length = 0;  ///< first tokens that it serves
  };

  PrefixTree();
  ~PrefixTree();
  PrefixTree(const PrefixTree&) = delete;
  PrefixTree& operator=(const PrefixTree&) = delete;

  /// What the texts serve of these tokens.
  Match match(TokenSpan tokens) const;
  /// Texts that `tokens` begin with, themselves among them, shortest first.
  std::vector<Id> beginnings(TokenSpan tokens) const;
  /// Adds a text, whose id is new. Throws InternalError for an empty one and for one that is there.
  void insert(TokenSpan tokens, Id id, int64_t shortest = 0);
  /// Throws InternalError for an unknown id.
  void erase(Id id);

  int64_t texts() const { return static_cast<int64_t>(places_.size()); }
  /// Nodes, without the root: at most twice as many as texts.
  int64_t nodes() const { return nodes_; }
  /// Tokens of all edges: those that texts begin with alike are there once.
  int64_t tokens() const { return tokens_; }

 private:
  struct Node;
  /// A node on the way along some tokens, and how many of them lead into its edge, from the root.
  struct Step {
    Node* node;
    int64_t common;
  };

  std::vector<Step> walk(TokenSpan tokens) const;
  Node& split(Node& node, int64_t depth);
  Node& attach(Node& parent, TokenSpan edge);
  void detach(Node& node);
  static void update_least(Node* node);

  std::unique_ptr<Node> root_;
  std::unordered_map<Id, Node*> places_;
  int64_t nodes_ = 0;
  int64_t tokens_ = 0;
};

}  // namespace specdec
