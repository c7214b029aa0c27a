#include "core/transformer/weights.h"

#include <algorithm>

#include "core/error.h"
#include "core/hash.h"
#include "core/transformer/map_layer.h"

namespace specdec {
namespace {

/// to(matrix, bias) of all of a model but its embedding and head.
template <class To, class From, class F>
void map_rest(const TransformerOf<From>& model, const F& to, TransformerOf<To>& out) {
  for (const LayerOf<From>& layer : model.layers) {
    const HeldLayer held(model.source.get(), layer.in_source);
    out.layers.push_back(map_matrices<To>(layer, to));
  }
  out.per_layer_table = model.per_layer_table;
  out.per_layer_norm = model.per_layer_norm;
  if (model.per_layer_projection.defined()) {
    out.per_layer_projection = to(model.per_layer_projection, {});
  }
  for (const From& matrix : model.altup_projections) {
    out.altup_projections.push_back(to(matrix, {}));
  }
  for (const From& matrix : model.altup_unembeddings) {
    out.altup_unembeddings.push_back(to(matrix, {}));
  }
}

/// A matrix that is not arranged yet.
Linear packed_matrix(const Tensor& matrix, const PackOptions& options, const Tensor& bias) {
  const Tensor weight = options.place ? matrix.to(options.place->device) : matrix;
  Linear linear(weight, weight_format(options.dtype.value_or(weight.scalar_type())), bias,
                options.place);
  linear.set_activations(options.activations);
  return linear;
}

/// Arranges a layer's matrices. Those of experts follow one another, since one kernel reads them
/// together.
void arrange(LayerWeights& layer) {
  visit_matrices(layer, [](Linear& matrix) { matrix.arrange(); });
  join_rows(layer.experts.gate_up);
  join_rows(layer.experts.down);
}

void arrange_rest(TransformerWeights& weights) {
  for (LayerWeights& layer : weights.layers) {
    arrange(layer);
  }
  weights.per_layer_projection.arrange();
  for (auto* stack : {&weights.altup_projections, &weights.altup_unembeddings}) {
    for (Linear& matrix : *stack) {
      matrix.arrange();
    }
  }
}

/// Which experts are chosen is not left to rounding.
void keep_router(const LayerTensors& layer, const PackOptions& options, LayerWeights& packed) {
  if (layer.experts.router.defined()) {
    packed.experts.router = pack(layer.experts.router, {.place = options.place});
  }
}

void move_vectors(const Placement& place, TransformerWeights& weights) {
  const auto move = [&place](Tensor& vector) { vector = vector.to(place.device); };
  for (LayerWeights& layer : weights.layers) {
    visit_vectors(layer, move);
  }
  for (Tensor* norm : {&weights.final_norm, &weights.per_layer_norm}) {
    *norm = norm->defined() ? norm->to(place.device) : *norm;
  }
  weights.place = place;
}

}  // namespace

Linear pack(const Tensor& matrix, const PackOptions& options, const Tensor& bias) {
  Linear linear = packed_matrix(matrix, options, bias);
  linear.arrange();
  return linear;
}

LayerWeights pack(const LayerTensors& layer, const PackOptions& options) {
  LayerWeights out = map_matrices<Linear>(layer, [&](const Tensor& matrix, const Tensor& bias) {
    return packed_matrix(matrix, options, bias);
  });
  keep_router(layer, options, out);
  arrange(out);
  return out;
}

std::shared_ptr<TransformerWeights> pack(const TransformerTensors& model,
                                         const PackOptions& options) {
  auto weights = std::make_shared<TransformerWeights>();
  static_cast<TransformerInfo&>(*weights) = model;
  weights->weight_dtype = options.dtype.value_or(model.weight_dtype);
  weights->activations = options.activations;
  weights->embedding = pack(model.embedding, options);
  weights->head =
      model.head.is_same(model.embedding) ? weights->embedding : pack(model.head, options);
  map_rest<Linear>(
      model,
      [&](const Tensor& matrix, const Tensor& bias) {
        return packed_matrix(matrix, options, bias);
      },
      *weights);
  for (size_t i = 0; i < model.layers.size(); ++i) {
    keep_router(model.layers[i], options, weights->layers[i]);
  }
  arrange_rest(*weights);
  if (options.place) {
    move_vectors(*options.place, *weights);
  }
  return weights;
}

PackOptions head_packing(const TransformerWeights& target) {
  if (!target.layers.empty() && is_in_blocks(target.layers.front().qkv.format())) {
    return {.dtype = at::kChar, .activations = target.activations, .place = target.place};
  }
  return {.place = target.place};
}

void require_blocks(ActivationFormat activations, bool has_blocks) {
  if (activations == ActivationFormat::kInt8 && !has_blocks) {
    throw ConfigError(
        "int8 needs weights in blocks, which are multiplied as integers, and this model has none: "
        "set dtype: int8, or leave activations out");
  }
}

void set_activations(TransformerWeights& weights, ActivationFormat activations) {
  std::vector<Linear*> all = {&weights.embedding};
  visit_forward_matrices(weights, [&all](Linear& matrix) { all.push_back(&matrix); });
  const auto cannot = std::stable_partition(
      all.begin(), all.end(), [](const Linear* linear) { return linear->has_integer_blocks(); });
  require_blocks(activations, cannot != all.begin());
  weights.activations = activations;
  std::for_each(all.begin(), cannot, [&](Linear* linear) { linear->set_activations(activations); });
}

std::optional<LayerReads> layer_reads(const TransformerWeights& weights) {
  return weights.source == nullptr ? std::nullopt : std::optional(weights.source->reads());
}

int64_t forward_bytes(const TransformerWeights& weights) {
  int64_t bytes = 0;
  visit_forward_matrices(weights, [&bytes](const Linear& matrix) { bytes += matrix.bytes(); });
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    const ExpertsOf<Linear>& experts = weights.layers[i].experts;
    for (size_t e = static_cast<size_t>(weights.plan[i].experts.chosen); e < experts.down.size();
         ++e) {
      bytes -= experts.gate_up[e].bytes() + experts.down[e].bytes();
    }
  }
  return bytes;
}

TransformerTensors unpack(const TransformerWeights& weights) {
  TransformerTensors model;
  static_cast<TransformerInfo&>(model) = weights;
  model.source = nullptr;             // all of it is in memory now
  if (weights.embedding.defined()) {  // the layers of a head have none
    model.embedding = weights.embedding.unpack();
    model.weight_dtype = model.embedding.scalar_type();
    model.head = weights.config.tie_word_embeddings ? model.embedding : weights.head.unpack();
  }
  map_rest<Tensor>(
      weights, [](const Linear& matrix, const Tensor& /*bias*/) { return matrix.unpack(); }, model);
  return model;
}

void check_active_layers(int64_t count, int64_t layers) {
  require_config(count >= 0 && count <= layers,
                 fmt::format("active_layers is {}, but the model has {} layers: give 1 to {}, or 0 "
                             "for all",
                             count, layers, layers));
}

std::shared_ptr<const TransformerWeights> first_layers(
    std::shared_ptr<const TransformerWeights> weights, int64_t count) {
  check_active_layers(count, std::ssize(weights->layers));
  if (count == 0 || count == std::ssize(weights->layers)) {
    return weights;
  }
  auto first = std::make_shared<TransformerWeights>(*weights);
  first->layers.resize(static_cast<size_t>(count));
  first->plan.resize(static_cast<size_t>(count));
  first->config.num_layers = count;
  for (std::string TransformerInfo::*name :
       {&TransformerInfo::fingerprint, &TransformerInfo::weights_fingerprint}) {
    const std::string text = fmt::format("{};first {} layers", (*weights).*name, count);
    (*first).*name = fmt::format("{:016x}", hash_bytes(kHashStart, text.data(), text.size()));
  }
  return first;
}

}  // namespace specdec
