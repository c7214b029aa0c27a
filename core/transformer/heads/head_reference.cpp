#include "core/transformer/heads/head_reference.h"

#include <ATen/ATen.h>

namespace specdec {
namespace {

/// Products in `dtype` (default: the activations'), which matrices are converted to.
Tensor project(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
               std::optional<at::ScalarType> dtype = {}) {
  const at::ScalarType type = dtype.value_or(x.scalar_type());
  const Tensor product = at::linear(x.to(type), weight.to(type)).to(x.scalar_type());
  return bias.defined() ? product + bias : product;
}

/// The columns of [rows, T, hidden] whose logits are wanted.
Tensor wanted(const HeadInputs& inputs, const Tensor& values) {
  return inputs.places.defined() ? values.flatten(0, 1).index_select(0, inputs.places) : values;
}

HeadOutputs eagle1_reference(const EagleHead& head, const TransformerTensors& target,
                             const HeadInputs& inputs, const Tensor& embedding) {
  const Tensor x = project(at::cat({embedding, inputs.features}, -1), head.fc, head.fc_bias,
                           inputs.matmul_dtype);
  HeadOutputs out;
  out.features = reference_layer(layer_reference(head.layer, target, inputs.matmul_dtype), x, {},
                                 inputs.unrolled);
  const Tensor norm = head.config.feature_after_norm ? Tensor() : target.final_norm;
  out.logits = reference_head(
      target, reference_norm(wanted(inputs, out.features), norm, target.config.rms_norm_eps),
      head.target_ids);
  return out;
}

/// The target's captured streams as fc reads them.
Tensor normed_streams(const EagleHead& head, const Tensor& streams) {
  const double eps = head.config.rms_norm_eps;
  if (!head.stream_norms.defined()) {
    return reference_norm(streams, head.input_norm, eps);
  }
  const auto parts = streams.unflatten(-1, head.stream_norms.sizes());
  return reference_norm(parts, head.stream_norms, eps).flatten(-2);
}

HeadOutputs eagle3_reference(const EagleHead& head, const TransformerTensors& target,
                             const HeadInputs& inputs, const Tensor& embedding) {
  const double eps = head.config.rms_norm_eps;
  const Tensor feature = inputs.own_features ? inputs.features
                                             : project(normed_streams(head, inputs.features),
                                                       head.fc, head.fc_bias, inputs.matmul_dtype);
  const Tensor x = reference_norm(feature, head.feature_norm, eps);
  SPECDEC_CHECK(inputs.unrolled == nullptr || head.later_layers.empty(),
                "heads of several layers are not trained");
  Tensor output =
      reference_layer(layer_reference(head.layer, target, inputs.matmul_dtype), x,
                      reference_norm(embedding, head.embedding_norm, eps), inputs.unrolled);
  for (const HeadLayer& later : head.later_layers) {
    output = reference_layer(layer_reference(later, target, inputs.matmul_dtype), output);
  }
  const Tensor normed = reference_norm(output, head.norm, eps);
  HeadOutputs out;
  out.features = head.config.norm_output ? normed : output;
  out.logits = project(wanted(inputs, normed), head.lm_head, {}, inputs.matmul_dtype);
  if (const double cap = head.config.soft_cap; cap > 0.0) {
    out.logits = cap * at::tanh(out.logits / cap);
  }
  return out;
}

}  // namespace

HeadOutputs eagle_reference(const EagleHead& head, const TransformerTensors& target,
                            const HeadInputs& inputs) {
  const Tensor& table = head.embedding.defined() ? head.embedding : target.embedding;
  Tensor embedding = at::embedding(table, inputs.tokens).to(target.compute_dtype());
  if (head.config.scale_embedding) {
    embedding = embedding * target.embedding_scale;
  }
  SPECDEC_CHECK(head.config.version != EagleVersion::kPEagle, "P-EAGLE heads are not trained");
  return head.config.version == EagleVersion::kEagle3
             ? eagle3_reference(head, target, inputs, embedding)
             : eagle1_reference(head, target, inputs, embedding);
}

HeadOutputs mtp_reference(const MtpHead& head, const TransformerTensors& target, size_t module,
                          const HeadInputs& inputs) {
  const double eps = target.config.rms_norm_eps;
  const Tensor embedding = reference_embedding(target, inputs.tokens);
  const Tensor x = project(at::cat({reference_norm(embedding, head.embedding_norm, eps),
                                    reference_norm(inputs.features, head.hidden_norm, eps)},
                                   -1),
                           head.fc, {}, inputs.matmul_dtype);
  const HeadLayer& layer = head.layers.at(module);
  HeadOutputs out;
  out.features = reference_norm(
      reference_layer(layer_reference(layer, target, inputs.matmul_dtype), x, {}, inputs.unrolled),
      head.norm, eps);
  out.logits = reference_head(target, wanted(inputs, out.features));
  return out;
}

Tensor target_features(const ReferenceResult& result, const std::vector<int64_t>& capture_layers) {
  if (capture_layers.empty()) {
    return result.hidden;
  }
  std::vector<Tensor> streams;
  for (const int64_t layer : capture_layers) {
    streams.push_back(result.layers.at(static_cast<size_t>(layer)));
  }
  return at::cat(streams, -1);
}

}  // namespace specdec
