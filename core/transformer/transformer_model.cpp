#include "core/transformer/transformer_model.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>

#include "core/error.h"
#include "core/kernels/threads_during.h"
#include "core/prefill_size.h"
#include "core/transformer/adapters/adapted_ops.h"
#include "core/transformer/draft_steps.h"
#include "core/transformer/extended_store.h"
#include "core/transformer/forward_checks.h"
#include "core/transformer/forward_evaluation.h"
#include "core/transformer/forward_parts.h"
#include "core/transformer/kv_key.h"
#include "core/transformer/model_store.h"
#include "core/transformer/pending_layers.h"

namespace specdec {
namespace {

NewNodes new_nodes(const TokenBatch& batch, int64_t nodes, TokenSpan tokens) {
  return {.count = nodes, .rows = batch.rows, .parents = batch.parents, .tokens = tokens};
}

}  // namespace

class TransformerModel::Impl final : public Internals, public KvSnapshots {
 public:
  Impl(std::shared_ptr<const TransformerWeights> weights, const KvStoreFactory& store,
       const TransformerOptions& options)
      : weights_(first_layers(std::move(weights), options.active_layers)),
        adapters_(weights_),
        store_(make_store(*weights_, store, options.max_length)),
        adapted_(
            std::make_shared<AdaptedOps>(store_->observed(ops_of(options, *weights_)), adapters_)),
        ops_(adapted_),
        results_on_host_(options.results_on_host),
        prefill_threads_(options.prefill_threads),
        hooks_(options.hooks),
        evaluation_(*ops_, *weights_, *store_, options) {}

  ForwardResult forward(const TokenBatch& batch, const ForwardOptions& options) {
    const int64_t nodes = check(batch, options);
    return forward_checked(batch, options, nodes, uploaded_tokens(batch));
  }

  /// A forward whose `nodes` tokens are in the vocabulary: those on a device are not read.
  /// `uploaded`: those of the host that go up with the tables.
  ForwardResult forward_checked(const TokenBatch& batch, const ForwardOptions& options,
                                int64_t nodes, TokenSpan uploaded) {
    const ThreadsDuring threads(nodes < kFewestPrefillTokens ? 0 : prefill_threads_);
    const LayerList layers = evaluation_.layers_of(options);
    const LayerList noted = noted_layers(layers, options);
    pending_.check_parents(batch, nodes, noted);
    const AppliedDraft draft(*adapted_, options.draft_adapters);
    return with_new_nodes(*store_, new_nodes(batch, nodes, uploaded), [&] {
      ForwardResult result = evaluation_.run(batch, options, layers, nodes, !uploaded.empty());
      pending_.note(batch, nodes, noted);
      return result;
    });
  }

  bool draws_drafts() const {
    return results_on_host_ && hooks_.empty() && !embeds_by_layer() && ops_->sampler() != nullptr;
  }

  std::optional<DrawnChain> draw_chain(const TokenBatch& fed, const ChainRequest& chain,
                                       const ForwardOptions& options) {
    const auto drawing = ops_->sampler()->begin_chain(chain, weights_->config.vocab_size);
    draw_behind(fed, steps_of(*drawing, chain.count), options);
    return drawing->read();
  }

  std::optional<DrawnTree> draw_tree(const TokenBatch& fed, const TreeRequest& tree,
                                     const ForwardOptions& options) {
    const auto drawing = ops_->sampler()->begin_tree(tree, weights_->config.vocab_size);
    const DraftSteps steps = steps_of(*drawing, tree.parents);
    draw_behind(fed, steps, options);
    return drawing->read(std::ssize(steps.sizes) + 1);
  }

  /// Evaluates and draws a draft as one graph, whose nodes go to the cache together: its tables are
  /// those of a forward of them all, of which each step reads its own. False, and nothing is
  /// evaluated, where a graph cannot hold it, and the first time: drafts of many sizes would else
  /// run op by op.
  bool draw_as_graph(const TokenBatch& fed, const ForwardOptions& options, const DraftSteps& steps,
                     const StepSurroundings* around) {
    const int64_t size = around == nullptr ? check(fed, options) : fed.tokens.size(0);
    const int64_t nodes = size + steps.nodes();
    const AppliedDraft draft(*adapted_, options.draft_adapters);
    if (steps.key.empty() || !evaluation_.can_run_draft(fed, options, size, nodes)) {
      return false;
    }
    std::vector<Token> tokens(static_cast<size_t>(nodes));  // the drawn ones are read elsewhere
    std::copy_n(fed.tokens.const_data_ptr<Token>(), size, tokens.begin());
    const TokenBatch all{.tokens = token_tensor(tokens),
                         .rows = std::vector<RowId>(tokens.size(), fed.rows.front()),
                         .parents = steps.all_parents(size)};
    return with_new_nodes(*store_, new_nodes(all, nodes, tokens), [&] {
      const LayerList layers = evaluation_.layers_of(options);
      if (!evaluation_.run_draft(fed, options, layers, steps, around)) {
        return false;
      }
      pending_.note(all, nodes, noted_layers(layers, options));
      return true;
    });
  }

  bool can_step(int64_t nodes) const { return evaluation_.can_step(nodes); }

  std::optional<Tensor> begin_forward(const TokenBatch& batch, GraphKey& key) {
    const int64_t nodes = batch.tokens.size(0);
    if (!can_step(nodes)) {
      return std::nullopt;
    }
    const LayerList& layers = evaluation_.all_layers();
    pending_.check_parents(batch, nodes, layers);
    const auto begin = [&]() -> std::optional<Tensor> {
      if (!evaluation_.begin_steps({&nodes, 1}, key)) {
        return std::nullopt;
      }
      Tensor placed = evaluation_.placed_tokens(batch.tokens);
      pending_.note(batch, nodes, layers);
      return placed;
    };
    return with_new_nodes(*store_, new_nodes(batch, nodes, uploaded_tokens(batch)), begin);
  }

  std::optional<Tensor> begin_steps(TokenSpan fed, const DraftSteps& steps, int64_t count,
                                    GraphKey& key) {
    std::vector<int64_t> sizes = {std::ssize(fed)};
    sizes.insert(sizes.end(), steps.sizes.begin(), steps.sizes.begin() + count);
    const int64_t nodes = sizes.front() + steps.first_of(count + 1) - 1;
    SPECDEC_CHECK(!fed.empty() && can_step(nodes) && store_->pending(0) == 0,
                  "{} nodes of a draft behind {} pending nodes", nodes, store_->pending(0));
    std::vector<Token> tokens(fed.begin(), fed.end());
    tokens.resize(static_cast<size_t>(nodes));  // the drawn ones are read elsewhere
    std::vector<int64_t> parents = steps.all_parents(sizes.front());
    parents.resize(tokens.size());
    const TokenBatch draft{.tokens = token_tensor(tokens),
                           .rows = std::vector<RowId>(tokens.size()),
                           .parents = std::move(parents)};
    const auto begin = [&]() -> std::optional<Tensor> {
      if (!evaluation_.begin_steps(sizes, key)) {
        return std::nullopt;
      }
      pending_.note(draft, nodes, evaluation_.all_layers());
      return store_->describe(0).tables->tokens.narrow(0, 0, sizes.front());
    };
    return with_new_nodes(*store_, new_nodes(draft, nodes, tokens), begin);
  }

  Tensor run_step(int64_t first, const ForwardInputs& inputs) {
    return evaluation_.run_step(first, inputs);
  }

  void undo_forward() {
    store_->undo_extend();
    pending_.shrink_to(*store_);
  }

  void commit(std::span<const int64_t> path, RowId row) {
    pending_.check_commit(path, row, evaluation_.all_layers());
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
    check_adapters_may_change(*store_);
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
  GraphCounts graph_counts() const { return evaluation_.graph_counts(); }

  // Internals
  int64_t hidden_size() const override { return weights_->config.hidden_size; }
  int64_t num_layers() const override { return static_cast<int64_t>(weights_->plan.size()); }

  Tensor embed(const Tensor& tokens) const override {
    return embed_tokens(*ops_, *weights_, tokens);
  }
  bool embeds_by_layer() const override { return weights_->plan.front().per_layer_size > 0; }
  Tensor head(const Tensor& hidden) const override { return evaluation_.head(hidden); }

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
  bool keys_may_be_recorded() const override {
    return ops_->records() && store_->row_tiers() == nullptr;  // tiers move what readers read
  }
  int64_t kept_length(RowId row) const override { return store_->length(row); }

 private:
  /// Checks all that the cache does not; returns the number of new nodes.
  int64_t check(const TokenBatch& batch, const ForwardOptions& options) const {
    const int64_t nodes = check_nodes(*weights_, batch);
    if (batch.inputs.attention_bias.defined()) {
      check_bias(batch, nodes, *store_);
    }
    const LayerList layers = evaluation_.layers_of(options);
    if (options.draft_adapters != nullptr) {
      options.draft_adapters->check_draft(*weights_, std::ssize(*layers));
    }
    check_captured(options.capture_layers, *layers);
    check_kv_read(options.kv_read, *store_);
    check_library_products(batch, options, *ops_, *store_);
    return nodes;
  }

  /// Draws behind `fed`, of one row: as a graph, or forward by forward.
  void draw_behind(const TokenBatch& fed, const DraftSteps& steps, const ForwardOptions& options) {
    ForwardOptions own{.layers = options.layers,
                       .draft_adapters = options.draft_adapters,
                       .kv_read = options.kv_read,
                       .logits = Logits::kLast,
                       .logits_use = LogitsUse::kSampler};
    if (draw_as_graph(fed, own, steps, nullptr)) {
      return;
    }
    draw_steps(steps, [&](int64_t step, const Tensor& tokens) {
      if (step == 0) {
        return forward(fed, own).logits;
      }
      own.logits = Logits::kAll;
      return forward_checked(steps.batch(step, tokens, fed), own, tokens.size(0), {}).logits;
    });
  }

  /// What is noted of pending nodes that layers have evaluated.
  LayerList noted_layers(const LayerList& layers, const ForwardOptions& options) const {
    return options.kv_read == KvRead::kAll ? layers : upper_half_layers(*layers, num_layers());
  }

  /// Tokens of a batch that go up with the tables: where there is a device that reads them there.
  TokenSpan uploaded_tokens(const TokenBatch& batch) const {
    const Tensor& tokens = batch.tokens;
    return ops_->records() && !batch.inputs.embeddings.defined() && tokens.is_cpu() &&
                   tokens.is_contiguous()
               ? TokenSpan(tokens.const_data_ptr<Token>(), static_cast<size_t>(tokens.size(0)))
               : TokenSpan();
  }

  std::shared_ptr<const TransformerWeights> weights_;
  AdapterStack adapters_;
  std::unique_ptr<KvStore> store_;
  std::shared_ptr<AdaptedOps> adapted_;
  std::shared_ptr<Ops> ops_;  ///< the same
  bool results_on_host_;
  int64_t prefill_threads_;
  LayerHooks hooks_;
  ForwardEvaluation evaluation_;
  PendingLayers pending_;
};

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
bool TransformerModel::draws_drafts() const { return impl_->draws_drafts(); }
std::optional<DrawnChain> TransformerModel::draw_chain(TokenSpan fed, const ChainRequest& chain,
                                                       const ForwardOptions& options,
                                                       const ForwardInputs& inputs, RowId row) {
  return draw_in_row(
      *this, row, [&] { return impl_->draw_chain(fed_batch(fed, inputs, row), chain, options); });
}
std::optional<DrawnTree> TransformerModel::draw_tree(TokenSpan fed, const TreeRequest& tree,
                                                     const ForwardOptions& options,
                                                     const ForwardInputs& inputs, RowId row) {
  return draw_in_row(*this, row,
                     [&] { return impl_->draw_tree(fed_batch(fed, inputs, row), tree, options); });
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
bool TransformerModel::draw_graph(const TokenBatch& fed, const DraftSteps& steps,
                                  const StepSurroundings& around) {
  return impl_->draw_as_graph(fed, {.logits = Logits::kNone}, steps, &around);
}
bool TransformerModel::can_step(int64_t nodes) const { return impl_->can_step(nodes); }
std::optional<Tensor> TransformerModel::begin_forward(const TokenBatch& batch, GraphKey& key) {
  return impl_->begin_forward(batch, key);
}
std::optional<Tensor> TransformerModel::begin_steps(TokenSpan fed, const DraftSteps& steps,
                                                    int64_t count, GraphKey& key) {
  return impl_->begin_steps(fed, steps, count, key);
}
Tensor TransformerModel::run_step(int64_t first, const ForwardInputs& inputs) {
  return impl_->run_step(first, inputs);
}
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
