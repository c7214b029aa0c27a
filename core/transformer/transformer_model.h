#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "core/kernels/ops.h"
#include "core/kv_store.h"
#include "core/language_model.h"
#include "core/transformer/adapters/adapter_stack.h"
#include "core/transformer/forward_graphs.h"
#include "core/transformer/forward_parts.h"
#include "core/transformer/layer_hook.h"
#include "core/transformer/weights.h"

namespace specdec {

struct TransformerOptions {
  int64_t max_length = 0;  ///< most tokens of a row; 0 = the config's max_position_embeddings
  /// Tokens that may be generated: later rows of the embedding only pad it, and their logits are
  /// -inf. 0 = the whole vocabulary.
  int64_t usable_tokens = 0;
  std::vector<Token> suppressed = {};  ///< tokens whose logits are -inf too
  std::shared_ptr<Ops> ops = nullptr;  ///< what runs the forward; nullptr = the device's own
  /// Copies results to the host, where strategies read them; a head's layer keeps them where its
  /// next op wants them.
  bool results_on_host = true;
  int64_t active_layers = 0;  ///< the first of the file's layers, as first_layers; 0 = all
  /// CPU threads of forwards of at least kFewestPrefillTokens, while one runs; 0 = as many as
  /// at::get_num_threads() says. Bits do not depend on it.
  int64_t prefill_threads = 0;
  /// Forwards of up to 64 nodes that a device records as graphs at a time, where its ops do
  /// (Ops::records), and as many drafts of such forwards beside them; 0 = none.
  /// Bits do not depend on it. Forwards with adapters, hooks or a bias of attention run without.
  int64_t graphs = 32;
  /// The same of larger forwards: a key is a number of nodes and a power of two of positions, which
  /// the pieces of a long prompt have in common with those of another one.
  int64_t prefill_graphs = 0;
  LayerHooks hooks = {};  ///< stages of one's own around the layers; without them none is looked at
};

struct DraftSteps;
struct StepSurroundings;

/// The cached forward of every family whose layers a LayerPlan can say: weights + a store of keys
/// and values + workspace. Cheap to make, one per thread; weights are shared.
class TransformerModel final : public LanguageModel {
 public:
  TransformerModel(std::shared_ptr<const TransformerWeights> weights, const KvStoreFactory& store,
                   const TransformerOptions& options = {});
  ~TransformerModel() override;

  ForwardResult forward(const TokenBatch& batch, const ForwardOptions& options = {}) override;
  void commit(std::span<const int64_t> path, RowId row = 0) override;
  void truncate(int64_t length, RowId row = 0) override;
  int64_t rewindable_to(int64_t length, RowId row = 0) const override;
  /// Not with hooks, nor where layers look up inputs of their own for each token on the host.
  bool draws_drafts() const override;
  std::optional<DrawnChain> draw_chain(TokenSpan fed, const ChainRequest& chain,
                                       const ForwardOptions& options = {},
                                       const ForwardInputs& inputs = {}, RowId row = 0) override;
  std::optional<DrawnTree> draw_tree(TokenSpan fed, const TreeRequest& tree,
                                     const ForwardOptions& options = {},
                                     const ForwardInputs& inputs = {}, RowId row = 0) override;
  RowId open() override;
  RowId fork(RowId row, int64_t length) override;
  void close(RowId row) override;
  int64_t length(RowId row = 0) const override;
  int64_t pending(RowId row = 0) const override;
  int64_t vocab_size() const override;
  int64_t max_length() const override;
  const Internals* internals() const override;
  KvSnapshots* snapshots() override;
  /// Evaluates and draws a head's draft as draw_chain does one of its own as a graph: behind the
  /// tokens `fed`, of its vocabulary, and with what the head does `around` the layers. False, and
  /// nothing is evaluated, where the draft is no graph now, or not yet.
  bool draw_graph(const TokenBatch& fed, const DraftSteps& steps, const StepSurroundings& around);
  /// Whether a graph may hold forwards of so many nodes, and what is done between them.
  bool can_step(int64_t nodes) const;
  /// Makes room for the nodes of a forward, whose tokens are in the vocabulary, and adds to a
  /// graph's key what their evaluation by run_step(0, ...) depends on. The tokens [n] int32, where
  /// the graph reads them; nothing, and nothing is pending, where can_step says so, and where the
  /// pages are not all in memory at once.
  std::optional<Tensor> begin_forward(const TokenBatch& batch, GraphKey& key);
  /// Makes room for tokens `fed` to row 0, which has no pending ones, and the nodes of the next
  /// `count` steps of a draft behind them, where can_step says so, and adds to a graph's key what
  /// their evaluation depends on. The tokens [n] int32, where the graph reads them; nothing, and
  /// nothing is pending, where the pages are not all in memory at once.
  std::optional<Tensor> begin_steps(TokenSpan fed, const DraftSteps& steps, int64_t count,
                                    GraphKey& key);
  /// Evaluates the nodes of one of these steps, the `first` one of all and those behind it, by
  /// their embeddings [k, hidden]: what the layers come to, [k, hidden], in memory that the next
  /// step of as many nodes overwrites. Calls ops only.
  Tensor run_step(int64_t first, const ForwardInputs& inputs);
  /// Forgets the nodes of the newest forward, as if it had not been: for a head that fails after
  /// its layer, or another module of its draft. Only between that forward and the next call that
  /// changes the model.
  void undo_forward();

  const TransformerWeights& weights() const;
  /// Keys and values, to be looked at.
  const KvStore& cache() const;
  /// See KvStore::touch.
  void touch_cache(int64_t tokens);
  /// How many forwards ran as graphs.
  GraphCounts graph_counts() const;

  /// Adapters of this instance, applied beside its weights, which stay as they are. They throw
  /// Error while a row holds tokens: its keys and values are those of the adapters before.
  void push_adapter(ScaledAdapter adapter);
  void pop_adapter();
  void clear_adapters();
  /// Its fingerprint() says which weights and adapters a forward runs.
  const AdapterStack& adapters() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Those of the options, or the device's own; throws Error for a device that has none.
std::shared_ptr<Ops> ops_of(const TransformerOptions& options, const TransformerInfo& model);

}  // namespace specdec
