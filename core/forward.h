#pragma once
#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "core/types.h"

namespace specdec {

using at::Tensor;

/// What heads that live on a model are fed beside tokens, or instead of them (see
/// core/transformer/heads/). Every tensor has a row for each token; other models refuse what they
/// have no use for.
struct ForwardInputs {
  Tensor embeddings = {};  ///< [n, hidden], instead of tokens; scaled already
  /// [n, hidden], before the normed residual stream in the input of q, k and v: for layers whose
  /// projection is twice as wide (EAGLE-3).
  Tensor attention_inputs = {};
  /// [n, width], what a head that lives on a target continues from: features of the token before
  /// each one.
  Tensor features = {};
  bool own_features = false;  ///< `features` are the head's own outputs, not the target's
  /// [n, columns] float32, added to the attention scores of every layer; column j < length(row) is
  /// the row's kept token j, column length(row) + k its pending node k. Missing columns count as 0.
  Tensor attention_bias = {};
};

/// New tokens of one forward, for one or several rows (beams, requests) of unequal lengths.
///
/// Nodes of a row are numbered from 0 since the row's last commit or truncate, over forwards: the
/// first forward's nodes are 0..a-1, the next one's a..a+b-1, and a parent may lie in either.
struct TokenBatch {
  Tensor tokens;                   ///< [n] int32, host or device: drafting needs no read-back
  std::vector<int64_t> rows = {};  ///< [n], non-decreasing; empty = all row 0
  /// [n]; pending node of the same row it follows, -1 = last kept token; empty = one chain a row,
  /// after its last pending node
  std::vector<int64_t> parents = {};
  ForwardInputs inputs = {};  ///< of heads
};

/// Which positions' logits a forward computes.
enum class Logits { kAll, kLast, kNone };

/// What a forward computes.
struct ForwardOptions {
  std::vector<int64_t> capture_layers = {};  ///< residual stream after these layers (EAGLE-3)
  /// Layers that are evaluated, ascending, before the final norm and head; empty = all. Fewer of
  /// them make drafts: the first ones an early exit, others layers that are skipped.
  std::vector<int64_t> layers = {};
  Logits logits = Logits::kAll;  ///< kLast: the last node of each row in the batch
  /// Logits have a column for each token of LanguageModel::draft_vocabulary(), where there is one.
  bool draft_columns = false;
};

/// Owned by the caller: outlives commit and truncate.
struct ForwardResult {
  Tensor logits;        ///< [n, or rows in the batch, vocab], float32 (float64 for float64 models)
  Tensor final_hidden;  ///< [n, hidden], after the final norm; same dtype as logits
  std::vector<Tensor> captured;  ///< each [n, hidden], in the order of capture_layers
};

}  // namespace specdec
