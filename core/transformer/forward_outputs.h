#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "core/forward.h"
#include "core/kernels/forbidden_tokens.h"
#include "core/kernels/ops.h"
#include "core/result_memory.h"
#include "core/transformer/forward_graphs.h"
#include "core/transformer/weights.h"

namespace specdec {

/// What a forward gives: captured layers, final norm, head and best tokens. The memory of these
/// results is taken before the layers run, so that a graph may hold all ops between. Borrows all it
/// is made with.
class ForwardOutputs {
 public:
  ForwardOutputs(Ops& ops, const TransformerWeights& weights, const ForbiddenTokens& forbidden);

  /// Takes memory for what is asked of a forward of `nodes` nodes, of which `scored` may have
  /// logits.
  void reserve(const ForwardOptions& options, int64_t nodes, int64_t scored);
  /// Whether results lie in memory that is handed out again: more rows than ResultMemory::kMostRows
  /// are not.
  bool are_kept() const;
  /// Adds where the results' memory lies, which says what was asked for.
  void add_addresses(GraphKey& key) const;
  /// Where layer `layer` is to be captured, writes the residual stream [nodes, hidden] after it:
  /// calls ops only, as write does.
  void capture(int64_t layer, const Tensor& residual);
  /// Writes the others. `residual` [nodes, hidden] is what the layers came to, `scored`
  /// [scored, hidden] its rows with logits, of which a draft's step may have fewer. Logits of
  /// forbidden tokens are -inf, and best tokens are found, where they are enough and the ops find
  /// them.
  void write(const Tensor& residual, const Tensor& scored);
  /// Where write() leaves the logits [rows, vocab] of so many scored rows.
  Tensor logits(int64_t rows) const;
  /// Moves what the options ask for to the result: best tokens alone where these are enough.
  void give(const ForwardOptions& options, ForwardResult& result);
  /// Lets go of the memory, of which nothing is given.
  void release();

 private:
  /// A layer that is to be captured.
  struct Captured {
    int64_t layer;
    Tensor memory;  ///< [nodes, hidden]
  };

  void final_norm(const Tensor& residual, Tensor& hidden) const;

  Ops& ops_;
  const TransformerWeights& weights_;
  const ForbiddenTokens& forbidden_;
  ResultMemory logits_memory_, best_memory_;
  ResultMemory hidden_memory_, scored_memory_;  ///< of all nodes, of those with logits
  std::vector<ResultMemory> captured_memory_;
  std::vector<Captured> captured_;
  Tensor hidden_;  ///< [nodes, hidden] final-normed states; undefined = not asked for
  Tensor scored_;  ///< [scored, hidden] those with logits, where there are logits
  Tensor logits_;  ///< [scored, vocab]; undefined = not asked for
  Tensor best_;    ///< [scored, 3] int32 of Ops::find_best; undefined = logits are read
};

}  // namespace specdec
