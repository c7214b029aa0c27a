#include "core/transformer/transformer_model.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "core/transformer/layer_runner.h"
#include "core/transformer/pending_layers.h"
#include "core/transformer/workspace.h"

namespace specdec {
namespace {

std::vector<LayerKv> cache_layers(const std::vector<LayerPlan>& plan) {
  std::vector<LayerKv> layers;
  layers.reserve(plan.size());
  for (const LayerPlan& layer : plan) {
    layers.push_back({layer.kv_heads, layer.head_dim, layer.window, layer.kv_source});
  }
  return layers;
}

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
        "later ones, so it cannot decode token by token. 'specdec logits' works on it.");
  }
}

int64_t usable_tokens(const TransformerInfo& model, const TransformerOptions& options) {
  const int64_t vocab = model.config.vocab_size;
  SPECDEC_CHECK(options.usable_tokens >= 0 && options.usable_tokens <= vocab,
                "{} usable tokens of a vocabulary of {}", options.usable_tokens, vocab);
  return options.usable_tokens == 0 ? vocab : options.usable_tokens;
}

LayerList first_layers(int64_t count) {
  std::vector<int64_t> layers(static_cast<size_t>(count));
  std::iota(layers.begin(), layers.end(), 0);
  return std::make_shared<const std::vector<int64_t>>(std::move(layers));
}

}  // namespace

class TransformerModel::Impl final : public Internals {
 public:
  Impl(std::shared_ptr<const TransformerWeights> weights, const KvStoreFactory& store,
       const TransformerOptions& options)
      : weights_(std::move(weights)),
        ops_(ops_of(options, *weights_)),
        store_(make_store(*weights_, store, options)),
        usable_tokens_(usable_tokens(*weights_, options)),
        results_on_host_(options.results_on_host),
        workspace_(*weights_),
        layers_(*ops_, *weights_),
        all_layers_(first_layers(num_layers())) {}

  ForwardResult forward(const TokenBatch& batch, const ForwardOptions& options) {
    const int64_t nodes = check(batch, options);
    const LayerList layers = evaluated_layers(options);
    pending_.check_parents(batch, nodes, layers);
    extend(batch, nodes);
    try {
      ForwardResult result = evaluate(batch, options, nodes, layers);
      pending_.note(*store_, batch, nodes, layers);
      return result;
    } catch (...) {
      store_->undo_extend();
      throw;
    }
  }

  void undo_forward() {
    store_->undo_extend();
    pending_.shrink_to(*store_);
  }

  void commit(std::span<const int64_t> path, int64_t row) {
    pending_.check_commit(path, row, all_layers_);
    store_->commit(row, path);
    pending_.forget(row);
  }

  void truncate(int64_t length, int64_t row) {
    store_->truncate(row, length);
    pending_.forget(row);
  }

  void reorder(std::span<const int64_t> parents) {
    store_->reorder(parents);
    pending_.forget_all();
  }

  const KvStore& store() const { return *store_; }
  const TransformerWeights& weights() const { return *weights_; }

  // Internals
  int64_t hidden_size() const override { return weights_->config.hidden_size; }
  int64_t num_layers() const override { return static_cast<int64_t>(weights_->plan.size()); }

  Tensor embed(const Tensor& tokens) const override {
    return embed_tokens(*ops_, *weights_, tokens);
  }
  Tensor head(const Tensor& hidden) const override {
    Tensor logits = head_logits(*ops_, *weights_, hidden);
    if (const int64_t padding = logits.size(1) - usable_tokens_; padding > 0) {
      logits.narrow(1, usable_tokens_, padding).fill_(-std::numeric_limits<double>::infinity());
    }
    return logits;
  }

  std::pair<Tensor, Tensor> key_values(int64_t layer, int64_t row) const override {
    return store_->key_values(layer, row);
  }
  KvView read_keys(int64_t layer, const BatchTables& readers) const override {
    KvView view = store_->view(layer);
    view.tables = &readers;
    return view;
  }
  BatchTables readers(int64_t row, int64_t nodes, int64_t angle) const override {
    return store_->readers(row, nodes, angle);
  }
  int64_t kept_length(int64_t row) const override { return store_->length(row); }

 private:
  /// Checks all that the cache does not; returns the number of new nodes.
  int64_t check(const TokenBatch& batch, const ForwardOptions& options) const {
    const bool embedded = batch.inputs.embeddings.defined();
    SPECDEC_CHECK(embedded || batch.tokens.defined(), "forward: neither tokens nor embeddings");
    if (embedded) {
      SPECDEC_CHECK(
          batch.inputs.embeddings.dim() == 2 && batch.inputs.embeddings.size(1) == hidden_size(),
          "forward: embeddings should be [n, {}]", hidden_size());
    } else {
      SPECDEC_CHECK(batch.tokens.dim() == 1 && batch.tokens.scalar_type() == at::kInt,
                    "forward: tokens should be [n] int32");
      check_vocabulary(*weights_, batch.tokens);
    }
    const int64_t nodes = embedded ? batch.inputs.embeddings.size(0) : batch.tokens.size(0);
    SPECDEC_CHECK(nodes > 0, "forward: no tokens");
    SPECDEC_CHECK(!batch.inputs.features.defined(),
                  "forward: this model decodes tokens; it does not continue a target's features");
    const Tensor& joined = batch.inputs.attention_inputs;
    SPECDEC_CHECK(joined.defined() == weights_->plan.front().joined_inputs &&
                      (!joined.defined() || (joined.dim() == 2 && joined.size(0) == nodes &&
                                             joined.size(1) == hidden_size())),
                  "forward: attention_inputs should be [{}, {}] where the layers join them, and "
                  "undefined elsewhere",
                  nodes, hidden_size());
    const Tensor& bias = batch.inputs.attention_bias;
    SPECDEC_CHECK(!bias.defined() || (bias.dim() == 2 && bias.size(0) == nodes),
                  "forward: attention_bias should be [{}, columns]", nodes);
    const LayerList layers = evaluated_layers(options);
    for (const int64_t layer : options.capture_layers) {
      SPECDEC_CHECK(std::find(layers->begin(), layers->end(), layer) != layers->end(),
                    "forward: cannot capture layer {}, which is not evaluated", layer);
    }
    return nodes;
  }

  LayerList evaluated_layers(const ForwardOptions& options) const {
    if (options.layers.empty()) {
      return all_layers_;
    }
    const std::vector<int64_t>& layers = options.layers;
    SPECDEC_CHECK(layers.front() >= 0 && layers.back() < num_layers() &&
                      std::adjacent_find(layers.begin(), layers.end(), std::greater_equal<>()) ==
                          layers.end(),
                  "forward: the layers [{}] of a model with {}, which should ascend",
                  fmt::join(layers, ", "), num_layers());
    for (const int64_t layer : layers) {
      const int64_t source = weights_->plan[static_cast<size_t>(layer)].kv_source;
      if (source >= 0 && !std::binary_search(layers.begin(), layers.end(), source)) {
        throw Error(fmt::format("layer {} reads the keys and values of layer {}, which is left out",
                                layer, source));
      }
    }
    return std::make_shared<const std::vector<int64_t>>(layers);
  }

  void extend(const TokenBatch& batch, int64_t nodes) {
    if (!batch.inputs.embeddings.defined()) {
      store_->extend(batch);
    } else {
      TokenBatch placeholder = batch;
      placeholder.tokens = at::zeros({nodes}, at::kInt);
      store_->extend(placeholder);
    }
  }

  ForwardResult evaluate(const TokenBatch& batch, const ForwardOptions& options, int64_t nodes,
                         const LayerList& layers) {
    layers_.reserve_positions(longest_row());
    Activations& a = workspace_.activations(nodes);
    begin(batch, a);
    layers_.begin(batch.tokens, a);
    ForwardResult result;
    result.captured.resize(options.capture_layers.size());
    for (const int64_t layer : *layers) {
      layers_.run(static_cast<size_t>(layer), store_->view(layer), batch.inputs, a);
      capture(layer, options, a.residual, result);
    }
    layers_.leave(a);
    finish(batch, options, a.residual, result);
    if (results_on_host_) {
      copy_to_host(result);
    }
    return result;
  }

  /// Nothing where the device is the host.
  static void copy_to_host(ForwardResult& result) {
    const auto copy = [](Tensor& tensor) { tensor = tensor.defined() ? tensor.cpu() : tensor; };
    copy(result.logits);
    copy(result.final_hidden);
    for (Tensor& captured : result.captured) {
      copy(captured);
    }
  }

  int64_t longest_row() const {
    int64_t longest = 0;
    for (int64_t row = 0; row < store_->rows(); ++row) {
      longest = std::max(longest, store_->length(row) + store_->pending(row));
    }
    return longest;
  }

  void begin(const TokenBatch& batch, Activations& a) {
    if (batch.inputs.embeddings.defined()) {
      ops_->copy(plain_input(batch.inputs.embeddings, a.residual), a.residual);
    } else {
      ops_->embed_rows(weights_->embedding, batch.tokens, weights_->embedding_scale, a.residual);
    }
  }

  static void capture(int64_t layer, const ForwardOptions& options, const Tensor& residual,
                      ForwardResult& result) {
    for (size_t i = 0; i < options.capture_layers.size(); ++i) {
      if (options.capture_layers[i] == layer) {
        result.captured[i] = residual.clone();
      }
    }
  }

  void finish(const TokenBatch& batch, const ForwardOptions& options, const Tensor& residual,
              ForwardResult& result) {
    if (weights_->final_norm.defined()) {
      result.final_hidden =
          ops_->rms_norm(residual, weights_->final_norm, weights_->config.rms_norm_eps);
    } else {
      result.final_hidden = residual.clone();
    }
    if (options.logits == Logits::kAll) {
      result.logits = head(result.final_hidden);
    } else if (options.logits == Logits::kLast) {
      result.logits = head(last_of_rows(batch, result.final_hidden));
    }
  }

  std::shared_ptr<const TransformerWeights> weights_;
  std::shared_ptr<Ops> ops_;
  std::unique_ptr<KvStore> store_;
  int64_t usable_tokens_;
  bool results_on_host_;
  Workspace workspace_;
  LayerRunner layers_;
  LayerList all_layers_;
  PendingLayers pending_;
};

std::shared_ptr<Ops> ops_of(const TransformerOptions& options, const TransformerInfo& model) {
  return options.ops != nullptr ? options.ops : device_ops(model.place.device);
}

Tensor embed_tokens(Ops& ops, const TransformerWeights& weights, const Tensor& tokens) {
  return ops.embed_rows(weights.embedding, tokens, weights.embedding_scale);
}

Tensor head_logits(Ops& ops, const TransformerWeights& weights, const Tensor& hidden) {
  Tensor logits = ops.linear(weights.head, hidden);
  if (const double cap = weights.config.final_soft_cap; cap > 0.0) {
    ops.soft_cap(logits, cap);
  }
  return logits;
}

Tensor last_of_rows(const TokenBatch& batch, const Tensor& values) {
  const int64_t nodes = values.size(0);
  std::vector<int64_t> last;
  for (int64_t node = 0; node < nodes; ++node) {
    const auto index = static_cast<size_t>(node);
    if (node + 1 == nodes || (!batch.rows.empty() && batch.rows[index + 1] != batch.rows[index])) {
      last.push_back(node);
    }
  }
  return last.size() == 1 ? values.narrow(0, last[0], 1)
                          : values.index_select(0, at::tensor(last, at::kLong).to(values.device()));
}

void check_vocabulary(const TransformerInfo& model, const Tensor& tokens) {
  const Tensor host = tokens.cpu().contiguous();
  const Token* values = host.const_data_ptr<Token>();
  const int64_t vocab = model.config.vocab_size;
  for (int64_t i = 0; i < host.size(0); ++i) {
    if (values[i] < 0 || values[i] >= vocab) {
      throw Error(
          fmt::format("token {} lies outside the model's vocabulary of {} entries (0 to {})",
                      values[i], vocab, vocab - 1));
    }
  }
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
void TransformerModel::commit(std::span<const int64_t> path, int64_t row) {
  impl_->commit(path, row);
}
void TransformerModel::truncate(int64_t length, int64_t row) { impl_->truncate(length, row); }
void TransformerModel::reorder(std::span<const int64_t> parents) { impl_->reorder(parents); }
int64_t TransformerModel::length(int64_t row) const { return impl_->store().length(row); }
int64_t TransformerModel::pending(int64_t row) const { return impl_->store().pending(row); }
int64_t TransformerModel::vocab_size() const { return impl_->weights().config.vocab_size; }
int64_t TransformerModel::max_length() const { return impl_->store().max_length(); }
const Internals* TransformerModel::internals() const { return impl_.get(); }
void TransformerModel::undo_forward() { impl_->undo_forward(); }
const TransformerWeights& TransformerModel::weights() const { return impl_->weights(); }

}  // namespace specdec
