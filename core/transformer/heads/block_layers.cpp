#include "core/transformer/heads/block_layers.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "core/draft.h"
#include "core/error.h"
#include "core/kernels/linear_rows.h"
#include "core/transformer/extended_store.h"

namespace specdec {
namespace {

/// Context rows that are projected at once.
constexpr int64_t kContextPiece = 256;

/// A score that leaves nothing of a key; finite, so that keys which are all hidden make no NaN.
constexpr double kHiddenScore = -1e30;

std::unique_ptr<KvStore> make_block_store(const TransformerWeights& weights,
                                          const KvStoreFactory& make, int64_t max_length) {
  std::vector<LayerKv> layers;
  for (const LayerPlan& plan : weights.plan) {
    layers.push_back({plan.kv_heads, plan.head_dim, plan.window});
  }
  return make(
      layers,
      {.dtype = weights.compute_dtype(), .device = weights.place.device, .max_length = max_length});
}

/// The rows of the fused projection below the queries, by themselves: a context has no queries.
Linear key_value_rows(const LayerWeights& layer, const LayerPlan& plan, const Placement& place) {
  const Tensor ids = at::arange(query_rows(plan), qkv_rows(plan), at::kLong);
  const WeightFormat format = layer.qkv.format();
  return pack(linear_rows(layer.qkv, ids.to(layer.qkv.device())),
              {.dtype = is_in_blocks(format) ? at::kChar : scalar_type(format),
               .activations = layer.qkv.activations(),
               .place = place});
}

/// Summand of the scores [rows, kept + rows] that hides what a window of a block hides beyond what
/// positions alone say: keys after a row, too, or as seen from the first row.
Tensor window_bias(int64_t kept, int64_t rows, int64_t window, bool from_anchor) {
  const Tensor keys = at::arange(kept + rows, at::kLong).unsqueeze(0).expand({rows, -1});
  const Tensor queries = keys[0].slice(0, kept).unsqueeze(1);
  const Tensor hidden = from_anchor ? keys < kept - window : (queries - keys).abs() >= window;
  return at::zeros(keys.sizes(), at::kFloat).masked_fill_(hidden, kHiddenScore);
}

}  // namespace

BlockLayers::BlockLayers(std::shared_ptr<const BlockBackbone> backbone, int64_t block,
                         const KvStoreFactory& store, const TransformerOptions& options)
    : backbone_(std::move(backbone)),
      ops_(ops_of(options, backbone_->weights)),
      store_(make_block_store(backbone_->weights, store, options.max_length + block)),
      workspace_(backbone_->weights),
      layers_(*ops_, backbone_->weights) {
  const TransformerWeights& weights = backbone_->weights;
  SPECDEC_CHECK(backbone_->causal.size() == weights.plan.size() && options.max_length > 0,
                "a block drafter of {} layers", weights.plan.size());
  for (size_t layer = 0; layer < weights.plan.size(); ++layer) {
    key_values_.push_back(
        key_value_rows(weights.layers[layer], weights.plan[layer], weights.place));
  }
}

void BlockLayers::keep(const Tensor& context) {
  for (int64_t first = 0; first < context.size(0); first += kContextPiece) {
    keep_piece(context.narrow(0, first, std::min(kContextPiece, context.size(0) - first)));
  }
}

void BlockLayers::keep_piece(const Tensor& context) {
  const int64_t kept = length();
  const Tensor input = context.to(backbone_->weights.place.device).contiguous();
  with_new_nodes(*store_, {.count = context.size(0)}, [&] {
    layers_.reserve_positions(kept + context.size(0));
    for (size_t layer = 0; layer < key_values_.size(); ++layer) {
      layers_.write_keys(layer, ops_->linear(key_values_[layer], input),
                         store_->view(static_cast<int64_t>(layer)));
    }
  });
  store_->commit(0, chain_path(context.size(0)));
}

/// The rows of a block have the windows of its first and its last row both.
void BlockLayers::check_window_slack(int64_t block) const {
  const int64_t first = std::max<int64_t>(0, length() - block);
  if (store_->rewindable_to(0, first) != first) {
    throw Error(fmt::format(
        "a drafted block of {} tokens sees more of its cache than window_slack keeps: raise it to "
        "{} or more, or give the drafter a cache of its own",
        block, block));
  }
}

Tensor BlockLayers::evaluate(const Tensor& block) {
  check_window_slack(block.size(0));
  return with_new_nodes(*store_, {.count = block.size(0)}, [&] {
    Tensor states = run(block);
    store_->truncate(0, length());
    return states;
  });
}

Tensor BlockLayers::run(const Tensor& block) {
  const TransformerWeights& weights = backbone_->weights;
  const int64_t kept = length();
  const int64_t rows = block.size(0);
  layers_.reserve_positions(kept + rows);
  Activations& a = workspace_.activations(rows);
  ops_->copy(plain_input(block, a.residual), a.residual);
  layers_.begin(a);
  // A row that sees all of the block is one at its end, rotated by its own position.
  BatchTables at_end = *store_->describe(0).tables;
  at_end.positions = at::full_like(at_end.positions, kept + rows - 1);
  for (size_t layer = 0; layer < weights.plan.size(); ++layer) {
    KvView view = store_->view(static_cast<int64_t>(layer));
    ForwardInputs inputs;
    const bool causal = backbone_->causal[layer];
    if (!causal) {
      view.tables = &at_end;
    }
    const bool from_anchor = backbone_->window_from_anchor;
    if (view.window > 0 && (from_anchor || !causal)) {
      inputs.attention_bias = window_bias(kept, rows, view.window, from_anchor);
      view.window += rows;
    }
    layers_.run(layer, view, inputs, a);
  }
  layers_.leave(a);
  return ops_->rms_norm(a.residual, weights.final_norm, weights.config.rms_norm_eps);
}

}  // namespace specdec
