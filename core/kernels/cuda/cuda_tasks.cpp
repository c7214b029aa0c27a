#include "core/kernels/cuda/cuda_tasks.h"

#include <cstddef>

#include "core/error.h"
#include "core/kernels/cuda/cuda_arguments.h"

namespace specdec::cuda {

RmsNormTask norm_task(const Tensor& input, const float* scale, double eps, Tensor& out) {
  RmsNormTask task{};
  task.input = floats(input);
  task.scale = scale;
  task.out = floats_of(out);
  task.rows = narrow(rows_of(input));
  task.size = narrow(input.size(-1));
  task.eps = static_cast<float>(eps);
  return task;
}

ElementwiseTask add_task(const Tensor& input, Tensor& residual) {
  return {.kind = ElementwiseTask::Kind::kAdd,
          .input = floats(input),
          .out = floats_of(residual),
          .size = input.numel(),
          .number = 0.0F};
}

ElementwiseTask soft_cap_task(double cap, Tensor& values) {
  return {.kind = ElementwiseTask::Kind::kSoftCap,
          .input = floats(values),
          .out = floats_of(values),
          .size = values.numel(),
          .number = static_cast<float>(cap)};
}

CopyRowsTask copy_rows_task(const Tensor& input, const Tensor& scale, double factor, Tensor& out) {
  CopyRowsTask task{};
  task.input = floats(input);
  task.scale = floats_or_null(scale);
  task.out = floats_of(out);
  task.out_stride = input.size(-1);
  task.rows = rows_of(input);
  task.columns = narrow(input.size(-1));
  task.factor = static_cast<float>(factor);
  return task;
}

CopyRowsTask copy_columns_task(const Tensor& input, int64_t first, Tensor& out) {
  CopyRowsTask task{};
  task.input = floats(input);
  task.out = floats_of(out) + first;
  task.out_stride = out.size(1);
  task.rows = input.size(0);
  task.columns = narrow(input.size(1));
  task.factor = 1.0F;
  return task;
}

GatherRowsTask gather_rows_task(const Tensor& input, const Tensor& rows, Tensor& out) {
  SPECDEC_CHECK(out.dim() == 2 && input.dim() == 2 && rows.numel() == out.size(0) &&
                    input.size(1) == out.size(1),
                "gather_rows: operands of different shapes");
  GatherRowsTask task{};
  task.input = floats(input);
  task.sources = integers(rows);
  task.out = floats_of(out);
  task.rows = narrow(out.size(0));
  task.columns = narrow(out.size(1));
  return task;
}

GatedActivationTask gated_activation_task(const Tensor& gate_up, Activation activation,
                                          Tensor& out) {
  GatedActivationTask task{};
  task.gate_up = floats(gate_up);
  task.out = floats_of(out);
  task.rows = gate_up.size(0);
  task.size = out.size(1);
  task.silu = activation == Activation::kSilu;
  return task;
}

CutGateTask cut_gate_task(double deviations, Tensor& gate_up) {
  CutGateTask task{};
  task.gate_up = floats_of(gate_up);
  task.rows = narrow(gate_up.size(0));
  task.size = narrow(gate_up.size(1) / 2);
  task.deviations = static_cast<float>(deviations);
  return task;
}

PerLayerInputsTask per_layer_inputs_task(const Tensor& context, const Tensor& token,
                                         const PerLayerOptions& options, Tensor& out) {
  PerLayerInputsTask task{};
  task.context = floats(context);
  task.token = floats(token);
  task.norm = floats(options.norm);
  task.out = floats_of(out);
  task.rows = narrow(out.size(1));
  task.layers = narrow(out.size(0));
  task.size = narrow(out.size(2));
  task.eps = static_cast<float>(options.eps);
  task.context_scale = static_cast<float>(options.context_scale);
  return task;
}

ForbidTask forbid_task(const ForbiddenTokens& tokens, Tensor& logits) {
  tokens.check(logits);
  ForbidTask task{};
  task.logits = floats_of(logits);
  task.suppressed = tokens.suppressed().const_data_ptr<int64_t>();
  task.rows = narrow(logits.size(0));
  task.size = narrow(logits.size(1));
  task.usable = narrow(tokens.usable());
  task.count = narrow(tokens.suppressed().size(0));
  return task;
}

ArgmaxTask argmax_task(const Tensor& logits, Tensor& found) {
  const int64_t rows = logits.size(0);
  SPECDEC_CHECK(
      found.scalar_type() == at::kInt && found.is_contiguous() && found.numel() == 3 * rows,
      "CUDA: best tokens of {} rows need 3 int32 each", rows);
  ArgmaxTask task{};
  task.rows = floats(logits);
  task.ids = found.mutable_data_ptr<int32_t>();
  task.largest = reinterpret_cast<float*>(task.ids + rows);
  task.stride = logits.size(1);
  task.count = narrow(rows);
  task.size = narrow(logits.size(1));
  return task;
}

AltUpRouteTask altup_route_task(const Tensor& input, const AltUpRouter& router, Tensor& out) {
  AltUpRouteTask task{};
  task.input = floats(input);
  task.weight = floats(router.weight);
  task.norm = floats(router.norm);
  task.out = floats_of(out);
  task.rows = narrow(input.size(0));
  task.streams = narrow(out.size(1));
  task.size = narrow(input.size(1));
  task.eps = static_cast<float>(router.eps);
  return task;
}

AltUpPredictTask altup_predict_task(const Tensor& streams, const Tensor& routes,
                                    const Tensor& coefficients, Tensor& out) {
  AltUpPredictTask task{};
  task.streams = floats(streams);
  task.routes = floats(routes);
  task.coefficients = floats(coefficients);
  task.out = floats_of(out);
  task.rows = narrow(streams.size(1));
  task.count = narrow(streams.size(0));
  task.size = narrow(streams.size(2));
  return task;
}

AltUpCorrectTask altup_correct_task(const Tensor& activated, const Tensor& routes,
                                    const Tensor& coefficients, int64_t active, Tensor& streams) {
  AltUpCorrectTask task{};
  task.activated = floats(activated);
  task.routes = floats(routes);
  task.coefficients = floats(coefficients);
  task.streams = floats_of(streams);
  task.rows = narrow(streams.size(1));
  task.count = narrow(streams.size(0));
  task.active = narrow(active);
  task.size = narrow(streams.size(2));
  return task;
}

MatchRmsTask match_rms_task(const Tensor& like, Tensor& values) {
  MatchRmsTask task{};
  task.like = floats(like);
  task.values = floats_of(values);
  task.rows = narrow(values.size(0));
  task.size = narrow(values.size(1));
  return task;
}

MeanStreamTask mean_stream_task(const Tensor& streams, Tensor& out) {
  MeanStreamTask task{};
  task.streams = floats(streams);
  task.out = floats_of(out);
  task.count = narrow(streams.size(0));
  task.size = out.numel();
  return task;
}

namespace {

/// A product's rows, sizes and bias, without its weights.
template <class Task>
Task row_task(const Linear& weight, const Linear::Part& part, const Tensor& input, Tensor& out) {
  const float* bias = floats_or_null(weight.bias());
  Task task{};
  task.bias = bias == nullptr ? nullptr : bias + part.first;
  task.input = floats(input);
  task.out = floats_of(out) + part.first;
  task.out_stride = weight.out();
  task.rows = narrow(input.size(0));
  task.in = narrow(weight.in());
  task.outputs = narrow(part.out);
  return task;
}

}  // namespace

LinearTask linear_task(const Linear& weight, const Linear::Part& part, const Tensor& input,
                       Tensor& out) {
  LinearTask task = row_task<LinearTask>(weight, part, input, out);
  task.weight = floats(part.packed);
  return task;
}

TensorLinearTask tensor_linear_task(const Linear& weight, const Linear::Part& part,
                                    const Tensor& input, Tensor& out) {
  TensorLinearTask task = row_task<TensorLinearTask>(weight, part, input, out);
  task.fragments = part.packed.const_data_ptr();
  task.format = kernel_format(part.format);
  return task;
}

EmbedRowsTask embed_rows_task(const Linear& table, const Tensor& ids, double factor, Tensor& out) {
  SPECDEC_CHECK(table.parts().size() == 1, "CUDA: an embedding of several formats");
  const Linear::Part& part = table.parts().front();
  EmbedRowsTask task{};
  task.weight = part.packed.const_data_ptr();
  task.format = kernel_format(part.format);
  task.ids = integers(ids);
  task.out = floats_of(out);
  task.factor = static_cast<float>(factor);
  task.count = narrow(ids.size(0));
  task.in = narrow(table.in());
  task.outputs = narrow(part.out);
  return task;
}

ScoreClustersTask score_clusters_task(const ClusteredHead& head, const Tensor& centroid_scores,
                                      const Tensor& states, Tensor& logits) {
  check_cluster_sizes(head, centroid_scores, states, logits);
  const Linear::Part& part = head.weight.parts().front();
  SPECDEC_CHECK(head.weight.parts().size() == 1 &&
                    part.in_fragments == (part.format != WeightFormat::kFloat32),
                "CUDA: an ordered head in {} parts of {}", head.weight.parts().size(),
                format_name(part.format));
  ScoreClustersTask task{};
  task.centroid_scores = floats(centroid_scores);
  task.states = floats(states);
  task.weight = part.packed.const_data_ptr();
  task.format = kernel_format(part.format);
  task.tokens = integers(head.clusters.tokens);
  task.places = integers(head.clusters.places);
  task.logits = floats_of(logits);
  task.rows = narrow(states.size(0));
  task.in = narrow(head.weight.in());
  task.clusters = narrow(head.clusters.tokens.size(0));
  task.each = narrow(head.clusters.tokens.size(1));
  task.chosen = narrow(head.chosen);
  task.fills_below = head.fill == CentroidFill::kBelowMinimum;
  return task;
}

RouteTask route_task(const Tensor& logits, const Tensor& output_scale, Routes& routes) {
  RouteTask task{};
  task.logits = floats(logits);
  task.output_scale = floats(output_scale);
  task.experts = routes.experts.mutable_data_ptr<int32_t>();
  task.weights = floats_of(routes.weights);
  task.rows = narrow(logits.size(0));
  task.count = narrow(logits.size(1));
  task.chosen = narrow(routes.experts.size(1));
  return task;
}

ExpertLinearTask expert_linear_task(const std::vector<Linear>& experts, const Tensor& input,
                                    const Tensor& chosen, Tensor& out) {
  const Linear& first = experts.front();
  const auto* begin = static_cast<const std::byte*>(first.parts().front().packed.const_data_ptr());
  const auto* last =
      static_cast<const std::byte*>(experts.back().parts().front().packed.const_data_ptr());
  const int64_t steps = std::ssize(experts) - 1;
  const int64_t step = steps == 0 ? first.bytes() : (last - begin) / steps;
  SPECDEC_CHECK(step >= first.bytes() && begin + steps * step == last,
                "CUDA: experts that do not follow one another");
  ExpertLinearTask task{};
  task.weight = begin;
  task.expert_bytes = step;
  task.format = kernel_format(first.format());
  task.experts = integers(chosen);
  task.input = floats(input);
  task.out = floats_of(out);
  task.pairs = narrow(chosen.numel());
  task.rows_share = narrow(chosen.numel() / input.size(0));
  task.count = narrow(std::ssize(experts));
  task.in = narrow(first.in());
  task.outputs = narrow(first.out());
  return task;
}

ExpertSumTask expert_sum_task(const Tensor& outputs, const Routes& routes, Tensor& out) {
  ExpertSumTask task{};
  task.outputs = floats(outputs);
  task.weights = floats(routes.weights);
  task.out = floats_of(out);
  task.rows = narrow(out.size(0));
  task.chosen = narrow(routes.experts.size(1));
  task.size = narrow(out.size(1));
  return task;
}

RecurrenceTask recurrence_task(const RecurrenceTensors& weights, const NodeStates& states,
                               int64_t offset, Tensor& branches) {
  static_assert(sizeof(RecurrenceNode) == sizeof(NodeState));
  SPECDEC_CHECK(branches.size(0) <= states.nodes.size(0), "CUDA: {} nodes have {} states",
                branches.size(0), states.nodes.size(0));
  RecurrenceTask task{};
  task.branches = floats_of(branches);
  task.states = const_cast<float*>(floats(states.memory)) + offset;
  task.nodes = reinterpret_cast<const RecurrenceNode*>(integers(states.nodes));
  task.convolution = floats(weights.convolution);
  task.convolution_bias = floats(weights.convolution_bias);
  task.input_gate = floats(weights.input_gate);
  task.input_gate_bias = floats(weights.input_gate_bias);
  task.decay_gate = floats(weights.decay_gate);
  task.decay_gate_bias = floats(weights.decay_gate_bias);
  task.decay = floats(weights.decay);
  task.state_stride = states.memory.size(1);
  task.count = narrow(branches.size(0));
  task.channels = narrow(weights.convolution.size(1));
  task.width = narrow(weights.convolution.size(0));
  task.blocks = narrow(weights.input_gate.size(0));
  return task;
}

}  // namespace specdec::cuda
