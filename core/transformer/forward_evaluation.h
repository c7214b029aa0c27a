#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "core/forward.h"
#include "core/kernels/forbidden_tokens.h"
#include "core/kv_store.h"
#include "core/transformer/draft_steps.h"
#include "core/transformer/forward_graphs.h"
#include "core/transformer/forward_outputs.h"
#include "core/transformer/layer_runner.h"
#include "core/transformer/pending_layers.h"
#include "core/transformer/transformer_model.h"
#include "core/transformer/workspace.h"

namespace specdec {

/// Evaluates a model's forwards over nodes that are in its cache: from token ids to what is asked
/// for, op by op or as graphs. Memory of activations and results is kept from one to the next.
/// Borrows all it is made with.
class ForwardEvaluation {
 public:
  ForwardEvaluation(Ops& ops, const TransformerWeights& weights, KvStore& store,
                    const TransformerOptions& options);

  const LayerList& all_layers() const { return all_layers_; }
  /// Those that a forward with these options evaluates.
  LayerList layers_of(const ForwardOptions& options) const;

  /// The cache's newest nodes, of which the batch has `nodes`. `are_uploaded`: their tokens lie in
  /// the cache's tables.
  ForwardResult run(const TokenBatch& batch, const ForwardOptions& options, const LayerList& layers,
                    int64_t nodes, bool are_uploaded);

  /// Whether a graph can hold a draft that is drawn behind `size` tokens `fed` of a row, `nodes`
  /// nodes in all.
  bool can_run_draft(const TokenBatch& fed, const ForwardOptions& options, int64_t size,
                     int64_t nodes);
  /// Evaluates and draws a draft as one graph: `fed`, and the nodes of the steps behind it, all of
  /// which are in the cache. Follows can_run_draft of the same draft. False, and nothing is
  /// evaluated, for a new key, and where the layers' pages are not all in memory at once.
  /// Tokens lie in the cache's tables. `around`: of a head; nullptr = the model's own embedding and
  /// logits.
  bool run_draft(const TokenBatch& fed, const ForwardOptions& options, const LayerList& layers,
                 const DraftSteps& steps, const StepSurroundings* around);

  /// See TransformerModel::can_step, begin_steps and run_step: of the cache's newest nodes.
  bool can_step(int64_t nodes) const { return records_nodes(*all_layers_, nodes); }
  /// `sizes`: nodes of each step.
  bool begin_steps(std::span<const int64_t> sizes, GraphKey& key);
  /// The tokens [nodes] int32 of the newest extend where a graph reads them, in the cache's tables:
  /// copies those there that lie elsewhere.
  Tensor placed_tokens(const Tensor& tokens);
  Tensor run_step(int64_t first, const ForwardInputs& inputs);

  /// Logits [n, vocab] of final-normed hidden states, with those of forbidden tokens at -infinity.
  Tensor head(const Tensor& hidden) const;
  GraphCounts graph_counts() const;

 private:
  /// A forward that is being evaluated.
  struct Pass {
    const TokenBatch& batch;
    const ForwardOptions& options;
    const LayerList& layers;
    int64_t nodes;
    ForwardInputs inputs;  ///< those of the batch
    Tensor tokens;         ///< the same, or where they lie in the tables
    /// Attention is launched for so many positions, as a graph has to: the store holds the layers'
    /// pages. 0 = for those there are; each layer's pages are brought when its turn comes.
    int64_t context = 0;
    bool scores_all = false;  ///< whether each node has logits, not the last of each row alone
    bool by_library = false;  ///< whether it multiplies; see LayerRunner::run
    int64_t first = 0;        ///< node of the tables, which may have more than these
    ForwardResult result = {};
  };

  /// Steps of a draft that are evaluated one by one.
  struct Steps {
    TokenBatch batch;
    ForwardOptions options = {.logits = Logits::kNone};
    int64_t context = 0;  ///< see Pass
  };

  /// Whether a graph of a draft may hold so many nodes of these layers.
  bool records_nodes(const std::vector<int64_t>& layers, int64_t nodes) const;
  /// Of nodes from `first` on, as many as there are embeddings.
  Pass pass_of_step(int64_t first, const ForwardInputs& inputs) const;
  /// Says which layers on disk the forward is going to evaluate.
  void read_ahead(const std::vector<int64_t>& layers);
  /// Copies what a graph reads to where it lies in every forward of so many nodes, but for tokens
  /// that are there.
  void place_inputs(Pass& pass, Activations& a);
  /// All layers of all nodes, and the results of those that have logits.
  void evaluate_all(Pass& pass, Activations& a);
  /// The same without logits: the residual stream is left in `a`.
  void evaluate_layers(Pass& pass, Activations& a);
  /// The last layers, which only read keys and values, for the last node of each row.
  void evaluate_last(Pass& pass, Activations& a);
  /// Those that are wanted of so many nodes; nullptr where evaluate_all does not call ops alone
  /// (the host waits for layers on disk), or its results lie elsewhere in each forward.
  ForwardGraphs* graphs_for(const Pass& pass);
  /// What evaluate_all depends on beside the model. The activations `a` of a number of nodes lie in
  /// one piece of memory, or never move.
  const GraphKey& key_of(const Pass& pass, const Activations& a);
  /// Whether layers that share keys and values are evaluated for the last node of each row only:
  /// nobody reads what the others come to there.
  bool leaves_out(const TokenBatch& batch, const ForwardOptions& options, int64_t nodes) const;
  /// `chosen`: the nodes that `a` has, where these are not all.
  void run_layers(std::span<const int64_t> layers, const Tensor& chosen, Activations& a,
                  Pass& pass);
  void begin(const Pass& pass, Activations& a);

  Ops& ops_;
  const TransformerWeights& weights_;
  KvStore& store_;
  bool results_on_host_;
  LayerHooks hooks_;
  ForbiddenTokens forbidden_;
  Workspace workspace_;
  ForwardOutputs outputs_;
  ForwardGraphs graphs_, draft_graphs_, prefill_graphs_;
  GraphKey key_;  ///< of the forward; kept to allocate nothing
  LayerRunner layers_;
  LayerList all_layers_;
  Steps steps_;                   ///< the newest
  int64_t first_sharing_;         ///< from it on no layer has keys and values of its own
  std::vector<int64_t> last_;     ///< nodes of the forward, one a row; kept to allocate nothing
  std::vector<int64_t> on_disk_;  ///< the forward's layers that a source brings; kept likewise
};

}  // namespace specdec
