#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "core/token_probs.h"
#include "core/types.h"

namespace specdec {

using at::Tensor;

/// Tokens proposed after the newest committed token, which is tokens[0] (not cached yet). A draft
/// of one token proposes nothing.
struct Draft {
  std::vector<Token> tokens;     ///< [n]
  std::vector<int64_t> parents;  ///< [n]; parents[0] == -1, else parents[i] < i; a chain: -1, 0, 1
  std::vector<TokenProbs> probs = {};  ///< the distributions that children were drawn from
  /// Index, [n], of that of `probs` that node i's CHILDREN were drawn from, in order, without
  /// replacement; -1 = chosen deterministically (one-hot), or node i has no children.
  std::vector<int64_t> child_probs = {};

  /// A draft that proposes nothing: only the newest committed token.
  static Draft root(Token newest);
  /// Appends a node under `parent`; returns its index. Its own child_probs is -1.
  int64_t add(Token token, int64_t parent);
  int64_t size() const { return static_cast<int64_t>(tokens.size()); }
  /// Proposed tokens: size() - 1.
  int64_t proposed() const { return size() - 1; }
  /// What the children of `node` were drawn from; nullptr = they were chosen deterministically.
  const TokenProbs* drawn_from(int64_t node) const;
  /// Children of `node`, in order.
  std::vector<int64_t> children(int64_t node) const;
  /// Depth of each node, [n]; 0 for the root.
  std::vector<int64_t> depths() const;
  /// Depth of the deepest node; 0 for a draft that proposes nothing.
  int64_t depth() const;
  /// The nodes from the root to `node`, both included.
  std::vector<int64_t> path_to(int64_t node) const;
  /// Everything before the token that follows `node`: `committed`, whose last token is the draft's
  /// root, then the drafted tokens down to `node`.
  std::vector<Token> history(TokenSpan committed, int64_t node) const;
};

/// What a verifier decided about a draft.
struct VerifyResult {
  std::vector<int64_t> path;  ///< accepted nodes, root (node 0) first; never empty
  Token next = 0;             ///< correction token, or bonus token when a whole path is accepted
};

/// The path of a whole chain: 0, 1, ... n - 1.
std::vector<int64_t> chain_path(int64_t nodes);

}  // namespace specdec
