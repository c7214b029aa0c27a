#include "core/transformer/heads/assistant_head.h"

#include <ATen/ATen.h>

#include <utility>

#include "core/error.h"
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
      layers_(*ops_, head_->weights),
      step_memories_(ops_),
      graphs_(*ops_, options.graphs) {
  if (head_->ordered.centroids.defined()) {
    clusters_ = token_clusters(head_->ordered.ordering, head_->weights.place.device);
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
  const int64_t nodes = embeddings.size(0);
  SPECDEC_CHECK(embeddings.dim() == 2 && embeddings.sizes() == hidden.sizes() &&
                    embeddings.size(1) == head_->target_hidden,
                "assistant: embeddings and hidden states should be [n, {}]", head_->target_hidden);
  const int64_t position = target.kept_length(row);
  const BatchTables tables = target.readers(row, nodes, position);
  layers_.reserve_positions(position + 1);
  const Tensor& like = workspace_.activations(nodes).residual;
  return take_step(*ops_, ops_->concat(plain_input(embeddings, like), plain_input(hidden, like)),
                   tables, target);
}

AssistantModel::Step AssistantModel::take_step(Ops& ops, const Tensor& entered,
                                               const BatchTables& tables, const Internals& target) {
  const TransformerWeights& weights = head_->weights;
  Activations& a = workspace_.activations(entered.size(0));
  ops.linear(head_->pre_projection, entered, a.residual);
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
  const Tensor states = ops.rms_norm(a.residual, weights.final_norm, weights.config.rms_norm_eps);
  return {.logits = logits(ops, states), .hidden = ops.linear(head_->post_projection, states)};
}

DeviceSampler& AssistantModel::drawing_sampler() const {
  SPECDEC_CHECK(draws_drafts(), "assistant: this one draws no chains and trees");
  return *ops_->sampler();
}

std::optional<DrawnChain> AssistantModel::draw_chain(const ChainRequest& chain, Token token,
                                                     const Tensor& hidden, const Internals& target,
                                                     int64_t row) {
  const auto drawing = drawing_sampler().begin_chain(chain, head_->weights.config.vocab_size);
  draw(steps_of(*drawing, chain.count), token, hidden, target, row);
  return drawing->read();
}

std::optional<DrawnTree> AssistantModel::draw_tree(const TreeRequest& tree, Token token,
                                                   const Tensor& hidden, const Internals& target,
                                                   int64_t row) {
  const auto drawing = drawing_sampler().begin_tree(tree, head_->weights.config.vocab_size);
  const DraftSteps steps = steps_of(*drawing, tree.parents);
  draw(steps, token, hidden, target, row);
  return drawing->read(std::ssize(steps.sizes) + 1);
}

void AssistantModel::draw(const DraftSteps& steps, Token token, const Tensor& hidden,
                          const Internals& target, int64_t row) {
  const int64_t position = target.kept_length(row);
  BatchTables tables = target.readers(row, steps.widest(), position);  // all nodes have the same
  layers_.reserve_positions(position + 1);
  const bool is_graph = graphs_.enabled() && steps.fits_graph() && target.keys_may_be_recorded();
  StepMemory* memory = is_graph ? &step_memories_.of(steps.widest()) : nullptr;
  const Tensor first =
      enter(memory ? memory->entering() : *ops_, token_tensor({&token, 1}), hidden);
  const auto steps_in_order = [&] {
    Tensor before;  // hidden states of the step before
    draw_steps(steps, [&](int64_t index, const Tensor& tokens) {
      Tensor entered = first;
      if (index > 0) {
        const Tensor followed = followed_features(memory ? memory->gathered() : *ops_, before,
                                                  steps.parents_in_step(index));
        entered = enter(memory ? memory->entering() : *ops_, tokens, followed);
      }
      tables.nodes = entered.size(0);
      const Step step = take_step(memory ? memory->leaving() : *ops_, entered, tables, target);
      before = step.hidden;
      return step.logits;
    });
  };
  if (is_graph) {
    tables.longest = launched_context(tables.longest);
    graphs_.run(draft_key(steps, tables, target), steps_in_order);
  } else {
    steps_in_order();
  }
}

Tensor AssistantModel::enter(Ops& ops, const Tensor& tokens, const Tensor& hidden) const {
  const Tensor embedding = embed_tokens(ops, *options_.target, tokens);
  return ops.concat(embedding, plain_input(hidden, embedding));
}

GraphKey AssistantModel::draft_key(const DraftSteps& steps, const BatchTables& tables,
                                   const Internals& target) const {
  GraphKey key = steps.key;
  key.push_back(tables.longest);
  add_tables(tables, key);
  for (const RopeTable& table : layers_.rotary_tables()) {
    add_address(table.cos(), key);
    add_address(table.sin(), key);
  }
  for (const LayerPlan& plan : head_->weights.plan) {
    const KvView view = target.read_keys(plan.kv_source, tables);
    key.insert(key.end(), {static_cast<int64_t>(view.format), view.page_size(), view.group});
    add_pages(view, key);
  }
  return key;
}

Tensor AssistantModel::logits(Ops& ops, const Tensor& states) const {
  const Linear& whole = head_->weights.head;
  const CentroidHead& ordered = head_->ordered;
  if (!ordered.centroids.defined()) {
    return ops.linear(whole, states);
  }
  const Tensor centroid_scores = ops.linear(ordered.centroids, states);
  Tensor logits = ops.result(states.size(0), whole.out(), states.options());
  ops.score_clusters({whole, clusters_, ordered.chosen, options_.fill}, centroid_scores, states,
                     logits);
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
  tensors.config.tie_word_embeddings = true;  // whatever the target's head is
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
