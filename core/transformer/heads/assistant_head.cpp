#include "core/transformer/heads/assistant_head.h"

#include <ATen/ATen.h>

#include <limits>
#include <utility>

#include "core/error.h"
#include "core/kernels/linear_rows.h"
#include "core/transformer/forward_parts.h"
#include "core/transformer/random_weights.h"

namespace specdec {
namespace {

std::shared_ptr<Ops> own_ops(std::shared_ptr<Ops> ops, const AssistantHead& head) {
  return ops != nullptr ? std::move(ops) : device_ops(head.weights.place.device);
}

}  // namespace

AssistantModel::AssistantModel(std::shared_ptr<const AssistantHead> head,
                               const AssistantOptions& options, std::shared_ptr<Ops> ops)
    : head_(std::move(head)),
      options_(options),
      ops_(own_ops(std::move(ops), *head_)),
      workspace_(head_->weights),
      layers_(*ops_, head_->weights) {
  if (head_->ordered.centroids.defined()) {
    ordering_ = head_->ordered.ordering.to(head_->weights.place.device);
  }
}

AssistantModel::Step AssistantModel::step(const Tensor& embeddings, const Tensor& hidden,
                                          const Internals& target, int64_t row) {
  Step on_device = device_step(embeddings, hidden, target, row);
  ForwardResult result{.logits = std::move(on_device.logits),
                       .final_hidden = std::move(on_device.hidden)};
  copy_to_host(*ops_, {}, result);
  return {.logits = result.logits, .hidden = result.final_hidden, .read_backs = result.read_backs};
}

AssistantModel::Step AssistantModel::device_step(const Tensor& embeddings, const Tensor& hidden,
                                                 const Internals& target, int64_t row) {
  const TransformerWeights& weights = head_->weights;
  const int64_t nodes = embeddings.size(0);
  SPECDEC_CHECK(embeddings.dim() == 2 && embeddings.sizes() == hidden.sizes() &&
                    embeddings.size(1) == head_->target_hidden,
                "assistant: embeddings and hidden states should be [n, {}]", head_->target_hidden);
  const int64_t position = target.kept_length(row);
  const BatchTables tables = target.readers(row, nodes, position);
  layers_.reserve_positions(position + 1);
  Activations& a = workspace_.activations(nodes);
  const Tensor like = a.residual;
  ops_->linear(head_->pre_projection,
               ops_->concat(plain_input(embeddings, like), plain_input(hidden, like)), a.residual);
  layers_.begin(a);
  for (size_t layer = 0; layer < weights.plan.size(); ++layer) {
    const LayerPlan& plan = weights.plan[layer];
    KvView view = target.read_keys(plan.kv_source, tables);
    if (plan.window > 0) {
      view.window = options_.sliding_keys > 0 ? options_.sliding_keys : plan.window + 1;
    }
    layers_.run(layer, view, {}, a);
  }
  layers_.leave(a);
  const Tensor states = ops_->rms_norm(a.residual, weights.final_norm, weights.config.rms_norm_eps);
  return {.logits = logits(states), .hidden = ops_->linear(head_->post_projection, states)};
}

Tensor AssistantModel::logits(const Tensor& states) const {
  return head_->ordered.centroids.defined() ? ordered_logits(states)
                                            : ops_->linear(head_->weights.head, states);
}

Tensor AssistantModel::ordered_logits(const Tensor& states) const {
  const CentroidHead& ordered = head_->ordered;
  const Tensor clusters =
      std::get<1>(ops_->linear(ordered.centroids, states).topk(ordered.chosen, 1));
  const int64_t vocab = head_->weights.config.vocab_size;
  Tensor logits = at::empty({states.size(0), vocab}, states.options());
  for (int64_t node = 0; node < states.size(0); ++node) {
    const Tensor tokens = ordering_.index_select(0, clusters[node]).flatten();
    const Tensor scores = at::mv(linear_rows(head_->weights.head, tokens), states[node]);
    Tensor out = logits[node];
    if (options_.fill == CentroidFill::kNothing) {
      out.fill_(-std::numeric_limits<double>::infinity());
    } else {
      out.copy_(scores.min() - 1.0);
    }
    out.index_copy_(0, tokens, scores);
  }
  return logits;
}

int64_t assistant_source(const std::vector<LayerPlan>& target, bool sliding) {
  for (int64_t layer = std::ssize(target) - 1; layer >= 0; --layer) {
    const LayerPlan& plan = target[static_cast<size_t>(layer)];
    if (plan.kv_source < 0 && (plan.window > 0) == sliding) {
      return layer;
    }
  }
  return -1;
}

std::shared_ptr<AssistantHead> random_assistant(const TransformerInfo& target,
                                                const AssistantShape& shape,
                                                const RandomWeightsOptions& options) {
  TransformerTensors tensors;
  tensors.weight_dtype = options.dtype;
  tensors.config = target.config;
  tensors.config.hidden_size = shape.hidden_size;
  tensors.config.num_layers = shape.layers;
  tensors.config.per_layer_count = tensors.config.per_layer_vocab = 0;
  tensors.config.final_soft_cap = 0.0;
  RandomTensors random(options);
  const int64_t sources[] = {assistant_source(target.plan, true),
                             assistant_source(target.plan, false)};
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    const bool last = layer + 1 == shape.layers;
    const int64_t wanted = sources[last ? 1 : 0];
    const int64_t source = wanted >= 0 ? wanted : sources[last ? 0 : 1];
    const LayerPlan& read = target.plan[static_cast<size_t>(source)];
    LayerPlan plan;
    plan.heads = shape.heads * read.kv_heads;
    plan.kv_heads = read.kv_heads;
    plan.head_dim = read.head_dim;
    plan.window = read.window;
    plan.rope = read.rope;
    plan.intermediate_size = shape.intermediate_size;
    plan.qk_norm = plan.post_norms = plan.layer_scalar = true;
    plan.kv_source = source;
    tensors.layers.push_back(random_layer(random, plan, shape.hidden_size));
    tensors.plan.push_back(plan);
  }
  tensors.embedding = tensors.head = random.matrix(target.config.vocab_size, shape.hidden_size);
  tensors.final_norm = random.norm(shape.hidden_size);
  auto head = std::make_shared<AssistantHead>();
  const PackOptions packing{.place = target.place};
  head->weights = *pack(tensors, packing);
  head->target_hidden = target.config.hidden_size;
  head->pre_projection = pack(random.matrix(shape.hidden_size, 2 * head->target_hidden), packing);
  head->post_projection = pack(random.matrix(head->target_hidden, shape.hidden_size), packing);
  if (shape.clusters > 0) {
    head->ordered.centroids = pack(random.matrix(shape.clusters, shape.hidden_size), packing);
    head->ordered.ordering =
        at::arange(target.config.vocab_size, at::kLong).view({shape.clusters, -1});
    head->ordered.chosen = shape.chosen;
  }
  return head;
}

}  // namespace specdec
