#include "core/transformer/encoder.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "core/error.h"
#include "core/transformer/forward_checks.h"
#include "core/transformer/forward_parts.h"
#include "core/transformer/model_store.h"

namespace specdec {
namespace {

std::shared_ptr<const TransformerWeights> checked_encoder(
    std::shared_ptr<const TransformerWeights> weights) {
  SPECDEC_CHECK(weights->config.bidirectional, "an encoder of weights that decode");
  return weights;
}

/// Where each text of a batch ends, by node: the index of the first node after it.
std::vector<int64_t> text_ends(const TokenBatch& batch, int64_t nodes) {
  std::vector<int64_t> ends;
  std::vector<int64_t> last_nodes;
  find_last_nodes(batch, nodes, last_nodes);
  for (const int64_t last : last_nodes) {
    ends.resize(static_cast<size_t>(last) + 1, last + 1);
  }
  return ends;
}

/// A batch's texts: each node's place in its own, and how long that is.
struct TextPlaces {
  TextPlaces(const TokenBatch& batch, int64_t nodes) {
    const std::vector<int64_t> ends = text_ends(batch, nodes);
    for (int64_t node = 0, begin = 0; node < nodes; ++node) {
      begin = node > 0 && ends[static_cast<size_t>(node - 1)] == node ? node : begin;
      const int64_t length = ends[static_cast<size_t>(node)] - begin;
      places.push_back(node - begin);
      last_places.push_back(static_cast<int32_t>(length - 1));
      longest = std::max(longest, length);
    }
  }

  std::vector<int64_t> places;
  std::vector<int32_t> last_places;  ///< of the node's text
  int64_t longest = 0;
};

/// Tables in which every node sees what the last one of its text does: all of it.
BatchTables whole_texts(const BatchTables& causal, const TextPlaces& texts) {
  BatchTables tables = causal;
  tables.positions = at::tensor(texts.last_places, at::kInt).to(causal.positions.device());
  return tables;
}

/// The bias [n, longest] that hides keys `window` or more away on either side; undefined where no
/// text is longer than the window.
Tensor window_bias(const TextPlaces& texts, int64_t window, const at::Device& device) {
  if (window <= 0 || texts.longest <= window) {
    return {};
  }
  const Tensor places = at::tensor(texts.places, at::kLong).unsqueeze(1);
  const Tensor distance = (places - at::arange(texts.longest, at::kLong)).abs();
  return at::zeros({places.size(0), texts.longest}, at::kFloat)
      .masked_fill(distance.ge(window), -std::numeric_limits<double>::infinity())
      .to(device);
}

}  // namespace

Encoder::Encoder(std::shared_ptr<const TransformerWeights> weights, const KvStoreFactory& store,
                 const TransformerOptions& options)
    : weights_(checked_encoder(std::move(weights))),
      ops_(ops_of(options, *weights_)),
      store_(make_store(*weights_, store, options.max_length)),
      workspace_(*weights_),
      layers_(*ops_, *weights_) {}

void Encoder::run_layers(const TokenBatch& batch, Activations& a) {
  const TextPlaces texts(batch, batch.tokens.size(0));
  layers_.reserve_positions(texts.longest);
  const BatchTables tables = whole_texts(*store_->describe(0).tables, texts);
  std::map<int64_t, ForwardInputs> inputs;  // by window
  for (size_t layer = 0; layer < weights_->plan.size(); ++layer) {
    KvView view = store_->view(static_cast<int64_t>(layer));
    const int64_t window = std::exchange(view.window, 0);
    view.tables = &tables;
    const auto [own, is_new] = inputs.try_emplace(window);
    if (is_new) {
      own->second.attention_bias = window_bias(texts, window, weights_->place.device);
    }
    layers_.run(layer, view, own->second, a);
  }
}

Tensor Encoder::forward(const TokenBatch& batch) {
  SPECDEC_CHECK(batch.tokens.defined() && batch.tokens.dim() == 1 &&
                    batch.tokens.scalar_type() == at::kInt && batch.tokens.size(0) > 0,
                "encode: tokens should be [n] int32");
  SPECDEC_CHECK(batch.parents.empty() && !batch.inputs.embeddings.defined() &&
                    !batch.inputs.attention_bias.defined(),
                "encode: a batch of texts has neither parents nor other inputs");
  check_vocabulary(*weights_, batch.tokens);
  for (const RowId row : store_->rows()) {
    store_->truncate(row, 0);
  }
  while (!batch.rows.empty() && batch.rows.back() >= std::ssize(store_->rows())) {
    store_->open();  // none is ever closed, so their names are the texts' numbers
  }
  store_->extend({.count = batch.tokens.size(0), .rows = batch.rows});
  Activations& a = workspace_.activations(batch.tokens.size(0));
  ops_->embed_rows(weights_->embedding, batch.tokens, weights_->embedding_scale, a.residual);
  layers_.look_up(batch.tokens, a);
  layers_.begin(a);
  run_layers(batch, a);
  layers_.leave(a);
  return ops_->rms_norm(a.residual, weights_->final_norm, weights_->config.rms_norm_eps).cpu();
}

}  // namespace specdec
