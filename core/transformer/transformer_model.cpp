#include "core/transformer/transformer_model.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <functional>

#include "core/error.h"
#include "core/kernels/threads_during.h"
#include "core/prefill_size.h"
#include "core/transformer/adapters/adapted_ops.h"
#include "core/transformer/chain_steps.h"
#include "core/transformer/forward_checks.h"
#include "core/transformer/forward_graphs.h"
#include "core/transformer/forward_outputs.h"
#include "core/transformer/forward_parts.h"
#include "core/transformer/kv_key.h"
#include "core/transformer/layer_runner.h"
#include "core/transformer/pending_layers.h"
#include "core/transformer/workspace.h"

namespace specdec {
namespace {

std::unique_ptr<KvStore> make_store(const TransformerWeights& weights, const KvStoreFactory& make,
                                    const TransformerOptions& options) {
  KvStoreOptions store;
  store.dtype = weights.compute_dtype();
  store.device = weights.place.device;
  store.max_length =
      options.max_length > 0 ? options.max_length : weights.config.max_position_embeddings;
  return make(cache_layers(weights.plan), store);
}

void check_decodes(const TransformerWeights& weights) {
  if (weights.config.bidirectional) {
    throw Error(
        "this checkpoint sets use_bidirectional_attention (EmbeddingGemma): every token sees the "
        "later ones, so it cannot decode token by token. 'specdec embed' gives its embeddings, "
        "'specdec logits' its hidden states.");
  }
}

}  // namespace

class TransformerModel::Impl final : public Internals, public KvSnapshots {
 public:
  Impl(std::shared_ptr<const TransformerWeights> weights, const KvStoreFactory& store,
       const TransformerOptions& options)
      : weights_(first_layers(std::move(weights), options.active_layers)),
        adapters_(weights_),
        store_(make_store(*weights_, store, options)),
        adapted_(
            std::make_shared<AdaptedOps>(store_->observed(ops_of(options, *weights_)), adapters_)),
        ops_(adapted_),
        results_on_host_(options.results_on_host),
        prefill_threads_(options.prefill_threads),
        hooks_(options.hooks),
        forbidden_(weights_->config.vocab_size, options.usable_tokens, options.suppressed,
                   weights_->place.device),
        workspace_(*weights_),
        outputs_(*ops_, *weights_, forbidden_),
        graphs_(*ops_, options.graphs),
        chain_graphs_(*ops_, options.graphs),
        prefill_graphs_(*ops_, options.prefill_graphs),
        layers_(*ops_, *weights_),
        all_layers_(first_layers(num_layers())),
        first_sharing_(first_sharing(weights_->plan)) {}

  ForwardResult forward(const TokenBatch& batch, const ForwardOptions& options) {
    const int64_t nodes = check(batch, options);
    return forward_checked(batch, options, nodes, uploaded_tokens(batch));
  }

  /// A forward whose `nodes` tokens are in the vocabulary: those on a device are not read.
  /// `uploaded`: those of the host that go up with the tables.
  ForwardResult forward_checked(const TokenBatch& batch, const ForwardOptions& options,
                                int64_t nodes, TokenSpan uploaded) {
    const ThreadsDuring threads(nodes < kFewestPrefillTokens ? 0 : prefill_threads_);
    const LayerList layers = layers_of(options);
    const LayerList noted =
        options.kv_read == KvRead::kAll ? layers : upper_half_layers(*layers, num_layers());
    pending_.check_parents(batch, nodes, noted);
    store_->extend(
        {.count = nodes, .rows = batch.rows, .parents = batch.parents, .tokens = uploaded});
    const AppliedDraft draft(*adapted_, options.draft_adapters);
    try {
      const BatchTables& tables = *store_->describe(0).tables;
      Pass pass{.batch = batch,
                .options = options,
                .layers = layers,
                .nodes = nodes,
                .inputs = batch.inputs,
                .tokens = uploaded.empty() ? batch.tokens : tables.tokens.narrow(0, 0, nodes)};
      ForwardResult result = evaluate(pass, tables.longest);
      pending_.note(batch, nodes, noted);
      return result;
    } catch (...) {
      store_->undo_extend();
      throw;
    }
  }

  bool draws_chains() const {
    return results_on_host_ && hooks_.empty() && !embeds_by_layer() && ops_->sampler() != nullptr;
  }

  std::optional<DrawnChain> draw_chain(TokenSpan fed, const ChainRequest& chain,
                                       const ForwardOptions& options, const ForwardInputs& inputs,
                                       RowId row) {
    return draw_behind({.tokens = token_tensor(fed),
                        .rows = std::vector<RowId>(fed.size(), row),
                        .inputs = inputs},
                       chain, options);
  }

  void undo_forward() {
    store_->undo_extend();
    pending_.shrink_to(*store_);
  }

  void commit(std::span<const int64_t> path, RowId row) {
    pending_.check_commit(path, row, all_layers_);
    store_->commit(row, path);
    pending_.forget(row);
  }

  void truncate(int64_t length, RowId row) {
    store_->truncate(row, length);
    pending_.forget(row);
  }

  RowId open() { return store_->open(); }
  RowId fork(RowId row, int64_t length) { return store_->fork(row, length); }
  void close(RowId row) {
    store_->close(row);
    pending_.close(row);
  }

  void change_adapters(const std::function<void(AdapterStack&)>& change) {
    for (const RowId row : store_->rows()) {
      if (store_->length(row) + store_->pending(row) > 0) {
        throw Error(fmt::format(
            "the adapters cannot change while row {} holds tokens ({} kept, {} pending), whose "
            "keys and values are those of the adapters before: truncate it to 0 first",
            row, store_->length(row), store_->pending(row)));
      }
    }
    change(adapters_);
  }

  // KvSnapshots
  std::string kv_key() const override {
    return kv_key_of(*weights_, adapters_.fingerprint() + hooks_fingerprint(hooks_), *store_);
  }
  std::shared_ptr<const KvSnapshot> kv_snapshot(RowId row) override {
    return store_->snapshot(row);
  }
  void kv_restore(const KvSnapshot& snapshot, int64_t length, RowId row) override {
    store_->restore(row, snapshot, length);
    pending_.forget(row);
  }
  /// Whether layers keep states, which snapshots do not hold.
  bool keeps_states() const {
    return std::any_of(weights_->plan.begin(), weights_->plan.end(), is_recurrent);
  }
  void kv_follow(const Internals& other, int64_t length, RowId row) override {
    while (store_->length(row) < length) {
      const int64_t begin = store_->length(row);
      const TokenRange piece{begin, std::min(length, begin + kPrefillTokens)};
      store_->append(row, piece.end - begin, [&](int64_t layer) {
        const auto [keys, values] = other.key_values(layer, 0, piece);
        return std::pair(keys.cpu(), values.cpu());
      });
    }
    pending_.forget(row);
  }

  const AdapterStack& adapters() const { return adapters_; }
  const KvStore& store() const { return *store_; }
  const TransformerWeights& weights() const { return *weights_; }
  void touch_cache(int64_t tokens) { store_->touch(tokens); }
  GraphCounts graph_counts() const {
    return graphs_.counts() + chain_graphs_.counts() + prefill_graphs_.counts();
  }

  // Internals
  int64_t hidden_size() const override { return weights_->config.hidden_size; }
  int64_t num_layers() const override { return static_cast<int64_t>(weights_->plan.size()); }

  Tensor embed(const Tensor& tokens) const override {
    return embed_tokens(*ops_, *weights_, tokens);
  }
  bool embeds_by_layer() const override { return weights_->plan.front().per_layer_size > 0; }
  Tensor head(const Tensor& hidden) const override {
    Tensor logits = head_logits(*ops_, *weights_, hidden);
    ops_->forbid(forbidden_, logits);
    return logits;
  }

  std::pair<Tensor, Tensor> key_values(int64_t layer, RowId row, TokenRange tokens) const override {
    return store_->key_values(layer, row, tokens);
  }
  KvView read_keys(int64_t layer, const BatchTables& readers) const override {
    KvView view = store_->view(layer);
    view.pooled = nullptr;  // of the rows of a forward; readers see the tokens themselves
    view.tables = &readers;
    return view;
  }
  BatchTables readers(RowId row, int64_t nodes, int64_t angle) const override {
    return store_->readers(row, nodes, angle);
  }
  int64_t kept_length(RowId row) const override { return store_->length(row); }

 private:
  /// Checks all that the cache does not; returns the number of new nodes.
  int64_t check(const TokenBatch& batch, const ForwardOptions& options) const {
    const int64_t nodes = check_nodes(*weights_, batch);
    if (batch.inputs.attention_bias.defined()) {
      check_bias(batch, nodes, *store_);
    }
    const LayerList layers = layers_of(options);
    if (options.draft_adapters != nullptr) {
      options.draft_adapters->check_draft(*weights_, std::ssize(*layers));
    }
    check_captured(options.capture_layers, *layers);
    check_kv_read(options.kv_read, *store_);
    return nodes;
  }

  /// `fed`: of one row.
  std::optional<DrawnChain> draw_behind(const TokenBatch& fed, const ChainRequest& chain,
                                        const ForwardOptions& options) {
    const ForwardOptions own{.layers = options.layers,
                             .draft_adapters = options.draft_adapters,
                             .kv_read = options.kv_read,
                             .logits = Logits::kLast,
                             .keep_logits = true};
    const auto logits = [&](const Tensor& newest) {
      return newest.defined()
                 ? forward_checked({.tokens = newest, .rows = {fed.rows.front()}}, own, 1, {})
                       .logits
                 : forward(fed, own).logits;
    };
    const auto drawing = ops_->sampler()->begin_chain(chain, weights_->config.vocab_size);
    if (!draw_as_graph(fed, own, chain.count, *drawing)) {
      draw_steps(*drawing, chain.count, logits);
    }
    return drawing->read();
  }

  /// Evaluates and draws a chain as one graph, whose nodes go to the cache together: its tables are
  /// those of a forward of them all, of which each step reads its own. False, and nothing is
  /// evaluated, where a graph cannot hold it, and the first time: chains of many lengths would
  /// else run op by op.
  bool draw_as_graph(const TokenBatch& fed, const ForwardOptions& options, int64_t count,
                     ChainDrawing& drawing) {
    const int64_t size = check(fed, options);
    const int64_t nodes = size + count - 1;
    const AppliedDraft draft(*adapted_, options.draft_adapters);
    find_last_nodes(fed, size, last_);
    const ForwardInputs& inputs = fed.inputs;
    if (nodes > Workspace::kMostSelected || !chain_graphs_.enabled() ||
        weights_->source != nullptr || keeps_states() || leaves_out(fed, options, size) ||
        inputs.embeddings.defined() || inputs.attention_inputs.defined() ||
        inputs.attention_bias.defined()) {
      return false;
    }
    std::vector<Token> tokens(static_cast<size_t>(nodes));  // the drawn ones are read elsewhere
    std::copy_n(fed.tokens.const_data_ptr<Token>(), size, tokens.begin());
    const TokenBatch all{.tokens = token_tensor(tokens),
                         .rows = std::vector<RowId>(tokens.size(), fed.rows.front())};
    store_->extend({.count = nodes, .rows = all.rows, .parents = {}, .tokens = tokens});
    try {
      const LayerList layers = layers_of(options);
      const bool has_means = std::any_of(layers->begin(), layers->end(), [&](int64_t layer) {
        return store_->describe(layer).pooled != nullptr;
      });
      // Means are made for the nodes of a forward.
      if (has_means || !evaluate_chain(fed, options, layers, count, drawing)) {
        store_->undo_extend();
        return false;
      }
      pending_.note(
          all, nodes,
          options.kv_read == KvRead::kAll ? layers : upper_half_layers(*layers, num_layers()));
      return true;
    } catch (...) {
      store_->undo_extend();
      throw;
    }
  }

  /// Of nodes that are in the cache: `fed`, and one before each token but the first. False, and
  /// nothing is evaluated, for a new key.
  bool evaluate_chain(const TokenBatch& fed, const ForwardOptions& options, const LayerList& layers,
                      int64_t count, ChainDrawing& drawing) {
    const BatchTables& tables = *store_->describe(0).tables;
    const int64_t size = fed.tokens.size(0);
    Pass pass{.batch = fed,
              .options = options,
              .layers = layers,
              .nodes = size,
              .inputs = {},
              .tokens = tables.tokens.narrow(0, 0, size),
              .context = launched_context(tables.longest)};
    layers_.reserve_positions(tables.longest);
    outputs_.reserve(options, size, 1);
    Activations& of_fed = workspace_.activations(size);
    Activations& of_one = workspace_.activations(1);
    key_of(pass, of_fed);
    add_address(of_one.residual, key_);
    const std::vector<int64_t> draws = drawing.key();
    key_.insert(key_.end(), draws.begin(), draws.end());
    if (!chain_graphs_.knows(key_)) {
      outputs_.release();
      return false;
    }
    chain_graphs_.run(key_, [&] {
      evaluate_all(size == 1, pass, of_fed);
      for (int64_t index = 0; index + 1 < count; ++index) {
        pass.tokens = drawing.draw(index, outputs_.logits());
        pass.first = size + index;
        pass.nodes = 1;
        evaluate_all(true, pass, of_one);
      }
      drawing.draw(count - 1, outputs_.logits());
    });
    outputs_.release();
    return true;
  }

  LayerList layers_of(const ForwardOptions& options) const {
    return options.layers.empty() ? all_layers_ : evaluated_layers(options.layers, weights_->plan);
  }

  /// Says which layers on disk the forward is going to evaluate.
  void read_ahead(const std::vector<int64_t>& layers) {
    if (weights_->source == nullptr) {
      return;
    }
    on_disk_.clear();
    for (const int64_t layer : layers) {
      const int64_t number = weights_->layers[static_cast<size_t>(layer)].in_source;
      if (number >= 0) {
        on_disk_.push_back(number);
      }
    }
    weights_->source->prefetch(on_disk_);
  }

  /// A forward that is being evaluated.
  struct Pass {
    const TokenBatch& batch;
    const ForwardOptions& options;
    const LayerList& layers;
    int64_t nodes;
    ForwardInputs inputs;  ///< those of the batch
    Tensor tokens;         ///< the same, or where they lie in the tables
    int64_t context = 0;   ///< attention is launched for so many positions; 0 = for those there are
    int64_t first = 0;     ///< node of the tables, which may have more than these
    ForwardResult result = {};
  };

  /// Tokens of a batch that go up with the tables: where there is a device that reads them there.
  TokenSpan uploaded_tokens(const TokenBatch& batch) const {
    const Tensor& tokens = batch.tokens;
    return ops_->records() && !batch.inputs.embeddings.defined() && tokens.is_cpu() &&
                   tokens.is_contiguous()
               ? TokenSpan(tokens.const_data_ptr<Token>(), static_cast<size_t>(tokens.size(0)))
               : TokenSpan();
  }

  ForwardResult evaluate(Pass& pass, int64_t longest) {
    const ForwardOptions& options = pass.options;
    layers_.reserve_positions(longest);
    Activations& a = workspace_.activations(pass.nodes);
    find_last_nodes(pass.batch, pass.nodes, last_);
    const bool all = options.logits == Logits::kAll || std::ssize(last_) == pass.nodes;
    outputs_.reserve(options, pass.nodes, all ? pass.nodes : std::ssize(last_));
    layers_.look_up(pass.batch.tokens, a);
    read_ahead(*pass.layers);
    if (leaves_out(pass.batch, options, pass.nodes)) {
      evaluate_last(pass, a);
    } else if (ForwardGraphs* graphs = graphs_for(pass, all)) {
      SPECDEC_CHECK(longest > 0, "forward: tables that do not say how long their rows are");
      pass.context = launched_context(longest);
      place_inputs(pass, a);
      graphs->run(key_of(pass, a), [&] { evaluate_all(all, pass, a); });
    } else {
      evaluate_all(all, pass, a);
    }
    outputs_.give(options, pass.result);
    if (results_on_host_) {
      copy_to_host(*ops_, options, pass.result);
    }
    return std::move(pass.result);
  }

  /// Copies what a graph reads to where it lies in every forward of so many nodes, but for tokens
  /// that are there.
  void place_inputs(Pass& pass, Activations& a) {
    ForwardInputs& inputs = pass.inputs;
    if (inputs.attention_inputs.defined()) {
      ops_->copy(plain_input(inputs.attention_inputs, a.residual), a.attention_inputs);
      inputs.attention_inputs = a.attention_inputs;
    }
    if (inputs.embeddings.defined()) {
      ops_->copy(plain_input(inputs.embeddings, a.residual), a.residual);
      inputs.embeddings = a.residual;
      return;
    }
    Tensor placed = store_->describe(0).tables->tokens.narrow(0, 0, pass.nodes);
    if (placed.const_data_ptr() != pass.tokens.const_data_ptr()) {
      // Tensors made in inference mode may not be written outside of it.
      const c10::InferenceMode inference;
      placed.copy_(pass.tokens);
      pass.tokens = placed;
    }
  }

  /// All layers of all nodes. `all`: of which each has logits.
  void evaluate_all(bool all, Pass& pass, Activations& a) {
    begin(pass, a);
    run(*pass.layers, {}, a, pass);
    layers_.leave(a);
    if (all) {
      outputs_.write(a.residual, a.residual);
    } else {
      outputs_.write(a.residual, last_.size() == 1 ? a.last : rows_of_nodes(a.residual, last_));
    }
  }

  /// The last layers, which only read keys and values, for the last node of each row.
  void evaluate_last(Pass& pass, Activations& a) {
    begin(pass, a);
    const std::span<const int64_t> layers(*pass.layers);
    const auto first = std::lower_bound(layers.begin(), layers.end(), first_sharing_);
    const auto before = static_cast<size_t>(first - layers.begin());
    run(layers.first(before), {}, a, pass);
    if (pass.options.logits == Logits::kNone) {
      return;
    }
    const Tensor chosen = at::tensor(last_, at::kLong).to(weights_->place.device);
    Activations& own = workspace_.selected(a, chosen);
    run(layers.subspan(before), chosen, own, pass);
    layers_.leave(own);
    outputs_.write(own.residual, own.residual);
  }

  /// Those that are wanted of so many nodes; nullptr where evaluate_all does not call ops alone
  /// (the host waits for layers on disk), or its results lie elsewhere in each forward.
  ForwardGraphs* graphs_for(const Pass& pass, bool all) {
    ForwardGraphs& graphs = pass.nodes <= Workspace::kMostSelected ? graphs_ : prefill_graphs_;
    const bool is_recordable = graphs.enabled() && on_disk_.empty() && outputs_.are_kept() &&
                               hooks_.empty() && (all || last_.size() == 1) &&
                               !pass.inputs.attention_bias.defined();
    return is_recordable ? &graphs : nullptr;
  }

  /// What evaluate_all depends on beside the model. The activations `a` of a number of nodes lie in
  /// one piece of memory, or never move.
  const GraphKey& key_of(const Pass& pass, const Activations& a) {
    key_.assign({pass.nodes, pass.context, static_cast<int64_t>(pass.options.kv_read),
                 pass.inputs.embeddings.defined() ? 1 : 0});
    add_address(a.residual, key_);
    outputs_.add_addresses(key_);
    add_tables(*store_->describe(0).tables, key_);
    for (const RopeTable& table : layers_.rotary_tables()) {
      add_address(table.cos(), key_);
      add_address(table.sin(), key_);
    }
    for (const int64_t layer : *pass.layers) {
      key_.push_back(layer);
      const KvView view = store_->describe(layer);
      add_pages(view, key_);
      if (view.states != nullptr) {
        add_states(*view.states, key_);
      }
    }
    return key_;
  }

  /// Whether layers that share keys and values are evaluated for the last node of each row only:
  /// nobody reads what the others come to there.
  bool leaves_out(const TokenBatch& batch, const ForwardOptions& options, int64_t nodes) const {
    const int64_t rows = std::ssize(last_);
    const bool captured = std::any_of(options.capture_layers.begin(), options.capture_layers.end(),
                                      [this](int64_t layer) { return layer >= first_sharing_; });
    return first_sharing_ < num_layers() && hooks_.empty() && options.hidden != Hidden::kAll &&
           options.logits != Logits::kAll && !captured && rows < nodes &&
           rows <= Workspace::kMostSelected && !batch.inputs.attention_bias.defined() &&
           !batch.inputs.attention_inputs.defined();
  }

  /// `chosen`: the nodes that `a` has, where these are not all.
  void run(std::span<const int64_t> layers, const Tensor& chosen, Activations& a, Pass& pass) {
    BatchTables tables;
    for (const int64_t layer : layers) {
      KvView view = store_->view(layer);
      view.read = pass.options.kv_read;
      if (chosen.defined() || pass.context > 0) {
        if (tables.nodes == 0) {  // the same for all layers
          tables = chosen.defined() ? selected_nodes(*view.tables, chosen)
                                    : neighbouring_nodes(*view.tables, pass.first, pass.nodes);
          tables.longest = std::max(tables.longest, pass.context);
        }
        view.tables = &tables;
      }
      if (hooks_.empty()) {
        layers_.run(static_cast<size_t>(layer), view, pass.inputs, a);
      } else {
        layers_.run(hooks_, static_cast<size_t>(layer), view, pass.batch, a);
      }
      outputs_.capture(layer, a.residual);
    }
  }

  void begin(const Pass& pass, Activations& a) {
    const Tensor& embeddings = pass.inputs.embeddings;
    if (!embeddings.defined()) {
      ops_->embed_rows(weights_->embedding, pass.tokens, weights_->embedding_scale, a.residual);
    } else if (!embeddings.is_same(a.residual)) {
      ops_->copy(plain_input(embeddings, a.residual), a.residual);
    }
    layers_.begin(a);
  }

  std::shared_ptr<const TransformerWeights> weights_;
  AdapterStack adapters_;
  std::unique_ptr<KvStore> store_;
  std::shared_ptr<AdaptedOps> adapted_;
  std::shared_ptr<Ops> ops_;  ///< the same
  bool results_on_host_;
  int64_t prefill_threads_;
  LayerHooks hooks_;
  ForbiddenTokens forbidden_;
  Workspace workspace_;
  ForwardOutputs outputs_;
  ForwardGraphs graphs_, chain_graphs_, prefill_graphs_;
  GraphKey key_;  ///< of the forward; kept to allocate nothing
  LayerRunner layers_;
  LayerList all_layers_;
  int64_t first_sharing_;  ///< from it on no layer has keys and values of its own
  PendingLayers pending_;
  std::vector<int64_t> last_;     ///< nodes of the forward, one a row; kept to allocate nothing
  std::vector<int64_t> on_disk_;  ///< the forward's layers that a source brings; kept likewise
};

std::vector<LayerKv> cache_layers(const std::vector<LayerPlan>& plan) {
  std::vector<LayerKv> layers;
  layers.reserve(plan.size());
  for (const LayerPlan& layer : plan) {
    layers.push_back({.kv_heads = layer.kv_heads,
                      .head_dim = layer.head_dim,
                      .window = layer.window,
                      .source_layer = layer.kv_source,
                      .state_size = state_size(layer)});
  }
  return layers;
}

std::shared_ptr<Ops> ops_of(const TransformerOptions& options, const TransformerInfo& model) {
  return options.ops != nullptr ? options.ops : device_ops(model.place.device);
}

TransformerModel::TransformerModel(std::shared_ptr<const TransformerWeights> weights,
                                   const KvStoreFactory& store, const TransformerOptions& options) {
  check_decodes(*weights);
  impl_ = std::make_unique<Impl>(std::move(weights), store, options);
}

TransformerModel::~TransformerModel() = default;

ForwardResult TransformerModel::forward(const TokenBatch& batch, const ForwardOptions& options) {
  return impl_->forward(batch, options);
}
void TransformerModel::commit(std::span<const int64_t> path, RowId row) {
  impl_->commit(path, row);
}
void TransformerModel::truncate(int64_t length, RowId row) { impl_->truncate(length, row); }
int64_t TransformerModel::rewindable_to(int64_t length, RowId row) const {
  return impl_->store().rewindable_to(row, length);
}
bool TransformerModel::draws_chains() const { return impl_->draws_chains(); }
std::optional<DrawnChain> TransformerModel::draw_chain(TokenSpan fed, const ChainRequest& chain,
                                                       const ForwardOptions& options,
                                                       const ForwardInputs& inputs, RowId row) {
  return draw_in_row(*this, row,
                     [&] { return impl_->draw_chain(fed, chain, options, inputs, row); });
}
RowId TransformerModel::open() { return impl_->open(); }
RowId TransformerModel::fork(RowId row, int64_t length) { return impl_->fork(row, length); }
void TransformerModel::close(RowId row) { impl_->close(row); }
int64_t TransformerModel::length(RowId row) const { return impl_->store().length(row); }
int64_t TransformerModel::pending(RowId row) const { return impl_->store().pending(row); }
int64_t TransformerModel::vocab_size() const { return impl_->weights().config.vocab_size; }
int64_t TransformerModel::max_length() const { return impl_->store().max_length(); }
const Internals* TransformerModel::internals() const { return impl_.get(); }
KvSnapshots* TransformerModel::snapshots() { return impl_->keeps_states() ? nullptr : impl_.get(); }
void TransformerModel::undo_forward() { impl_->undo_forward(); }
const TransformerWeights& TransformerModel::weights() const { return impl_->weights(); }
void TransformerModel::touch_cache(int64_t tokens) { impl_->touch_cache(tokens); }
const KvStore& TransformerModel::cache() const { return impl_->store(); }
GraphCounts TransformerModel::graph_counts() const { return impl_->graph_counts(); }
void TransformerModel::push_adapter(ScaledAdapter adapter) {
  impl_->change_adapters([&](AdapterStack& stack) { stack.push(std::move(adapter)); });
}
void TransformerModel::pop_adapter() {
  impl_->change_adapters([](AdapterStack& stack) { stack.pop(); });
}
void TransformerModel::clear_adapters() {
  impl_->change_adapters([](AdapterStack& stack) { stack.clear(); });
}
const AdapterStack& TransformerModel::adapters() const { return impl_->adapters(); }

}  // namespace specdec
