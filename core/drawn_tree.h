#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/randomness.h"
#include "core/read_backs.h"
#include "core/sampling.h"
#include "core/types.h"

namespace specdec {

class DraftVocabulary;

/// A tree whose nodes are known and whose tokens a device is to find. Borrows all.
struct TreeRequest {
  /// [n] The root, node 0, has -1. Nodes come level by level, siblings together, in the order of
  /// their parents.
  std::span<const int64_t> parents;
  /// [n] Which of the best tokens after its parent a node is, from 0, ascending among siblings. Not
  /// read of drawn ones and of the root.
  std::span<const int64_t> ranks;
  const SamplingParams& sampling;  ///< without bias and penalty
  /// Siblings are drawn without replacement, with choices 0, 1, ... of Purpose::kDraft in the order
  /// of the nodes; none = they are best tokens, those of a greedy request at temperature 1.
  std::optional<DeviceRandomness> random = {};
  /// Tokens of the columns of logits, where these are not all.
  const DraftVocabulary* vocabulary = nullptr;
};

/// What a device found of it.
struct DrawnTree {
  /// [n] -1 = there is none: the distribution gives too few tokens any mass, or there is no parent.
  /// The root's is not read.
  std::vector<Token> tokens;
  /// [nodes with children, vocab or columns] float64 on the device, what the children of each were
  /// drawn from; undefined for best tokens.
  at::Tensor probs = {};
  ReadBacks read_backs = {};
};

/// The nodes of a tree that have children, level by level. InternalError for parents in another
/// order than a TreeRequest has.
std::vector<std::vector<int64_t>> branching_nodes(std::span<const int64_t> parents);

/// The nodes of a tree that are evaluated, which are those with children, in places from 0, the
/// root's, on: level by level, each in the order of the tree.
struct EvaluatedNodes {
  std::vector<int64_t> nodes;    ///< [places] of the tree
  std::vector<int64_t> parents;  ///< [places] places of their parents; -1 for the root
  std::vector<int64_t> firsts;   ///< [levels + 1] where each level begins, and the last one ends
  std::vector<int64_t> places;   ///< [n] of each node of the tree; -1 = it is not evaluated

  int64_t levels() const { return std::ssize(firsts) - 1; }
  int64_t size_of(int64_t level) const;
  /// The parents of a level's nodes, as places in the level before. InternalError for level 0.
  std::vector<int64_t> parents_in_level(int64_t level) const;
};

/// The evaluated nodes of a tree with these parents. InternalError for another order than a
/// TreeRequest has.
EvaluatedNodes evaluated_nodes(std::span<const int64_t> parents);

}  // namespace specdec
