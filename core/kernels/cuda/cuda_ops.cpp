#include "core/kernels/cuda/cuda_ops.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "core/error.h"
#include "core/kernels/cuda/cuda_arguments.h"
#include "core/kernels/cuda/cuda_capture.h"
#include "core/kernels/cuda/cuda_sampler.h"
#include "core/kernels/cuda/gather_kernels.h"
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/cuda/library_products.h"
#include "core/kernels/cuda/run_kernel.h"
#include "core/kernels/pooled_keys.h"
#include "core/kernels/staged_upload.h"

namespace specdec {
namespace {

using cuda::floats;
using cuda::floats_of;
using cuda::floats_or_null;
using cuda::integers;
using cuda::kernel_format;
using cuda::narrow;
using cuda::paged_cache;
using cuda::rows_of;

constexpr auto kFloatBytes = static_cast<int64_t>(sizeof(float));

/// A piece of memory that grows, to at least twice its size.
class Scratch {
 public:
  explicit Scratch(at::Device device) : device_(device) {}
  const Tensor& memory() const { return memory_; }
  bool holds(int64_t numbers) const { return memory_.defined() && memory_.numel() >= numbers; }
  float* reserve(int64_t numbers) {
    if (!holds(numbers)) {
      const int64_t twice = memory_.defined() ? 2 * memory_.numel() : 0;
      memory_ = Tensor();  // before the new one is taken
      memory_ =
          at::empty({std::max(numbers, twice)}, at::TensorOptions(at::kFloat).device(device_));
    }
    return memory_.mutable_data_ptr<float>();
  }

 private:
  at::Device device_;
  Tensor memory_;
};

class CudaOps final : public Ops {
 public:
  explicit CudaOps(at::Device device)
      : device_(device),
        scratch_(device),
        splits_(device),
        sampler_(cuda_sampler(device, stream_)) {}

  void linear(const Linear& weight, const Tensor& input, Tensor& out) override {
    check_rows(weight);
    for (const Linear::Part& part : weight.parts()) {
      if (!part.in_fragments) {
        plain_linear(weight, part, input, out);
        continue;
      }
      cuda::TensorLinearTask task = cuda::tensor_linear_task(weight, part, input, out);
      task.workspace = split_memory(task.rows, task.in);
      task.is_split = is_split(input, task.rows, task.in);
      run("tensor_linear", cuda::specdec_cuda_tensor_linear, task);
      *split_ = {input, task.rows, task.in};
      multiplies_splits_ = true;
    }
  }
  bool has_library() const override { return true; }
  void library_linear(const Linear& weight, const Tensor& input, Tensor& out) override {
    check_rows(weight);
    check_unrecorded(false, "products of a library");
    *split_ = {};
    for (const Linear::Part& part : weight.parts()) {
      if (part.in_fragments) {
        cuda::library_product(weight, part, input, out);
      } else {
        plain_linear(weight, part, input, out);
      }
    }
  }

  void embed_rows(const Linear& table, const Tensor& ids, double factor, Tensor& out) override {
    check_rows(table);
    SPECDEC_CHECK(table.parts().size() == 1, "CUDA: an embedding of several formats");
    const Linear::Part& part = table.parts().front();
    const bool are_there = ids.scalar_type() == at::kInt && ids.is_contiguous() &&
                           ids.device().type() == device_.type();
    check_unrecorded(are_there, "token ids that have to be copied");
    const Tensor here = uploaded(ids.to(at::kInt).contiguous(), device_);
    cuda::EmbedRowsTask task{};
    task.weight = part.packed.const_data_ptr();
    task.format = kernel_format(part.format);
    task.ids = integers(here);
    task.out = floats_of(out);
    task.factor = static_cast<float>(factor);
    task.count = narrow(ids.size(0));
    task.in = narrow(table.in());
    task.outputs = narrow(part.out);
    run("embed_rows",
        part.in_fragments ? cuda::specdec_cuda_embed_fragments : cuda::specdec_cuda_embed_rows,
        task);
  }

  void rms_norm(const Tensor& input, const Tensor& scale, double eps, Tensor& out) override {
    norm(input, scale, eps, false, out);
  }
  void add_rms_norm(Tensor& residual, const Tensor& input, const Tensor& scale,
                    double eps) override {
    norm(input, scale, eps, true, residual);
  }
  void add_and_norm(Tensor& residual, const Tensor& input, const Tensor& scale, const Tensor& next,
                    double eps, Tensor& normed) override {
    cuda::RmsNormTask task = norm_task(input, floats_or_null(scale), eps, residual);
    task.add = true;
    task.next = floats(next);
    task.normed = floats_of(normed);
    run_and_split("rms_norm", cuda::specdec_cuda_rms_norm, task, normed, task.rows, task.size);
  }

  void add(Tensor& residual, const Tensor& input) override {
    elementwise({.kind = cuda::ElementwiseTask::Kind::kAdd,
                 .input = floats(input),
                 .out = floats_of(residual),
                 .size = input.numel(),
                 .number = 0.0F});
  }
  void soft_cap(Tensor& values, double cap) override {
    elementwise({.kind = cuda::ElementwiseTask::Kind::kSoftCap,
                 .input = floats(values),
                 .out = floats_of(values),
                 .size = values.numel(),
                 .number = static_cast<float>(cap)});
  }
  void copy(const Tensor& input, Tensor& out) override { copy_rows(input, {}, 1.0, out); }
  void gather_rows(const Tensor& input, const Tensor& rows, Tensor& out) override {
    SPECDEC_CHECK(out.dim() == 2 && input.dim() == 2 && rows.numel() == out.size(0) &&
                      input.size(1) == out.size(1),
                  "gather_rows: operands of different shapes");
    cuda::GatherRowsTask task{};
    task.input = floats(input);
    task.sources = integers(rows);
    task.out = floats_of(out);
    task.rows = narrow(out.size(0));
    task.columns = narrow(out.size(1));
    run("gather_rows", cuda::specdec_cuda_gather_rows, task);
  }
  void scale(Tensor& values, double factor) override { copy_rows(values, {}, factor, values); }
  void multiply_rows(const Tensor& input, const Tensor& row, Tensor& out) override {
    copy_rows(input, row, 1.0, out);
  }
  void concat(const Tensor& left, const Tensor& right, Tensor& out) override {
    copy_columns(left, 0, out);
    copy_columns(right, left.size(1), out);
  }

  void qkv_to_cache(const Tensor& qkv, const QkvOptions& options, const KvView& view,
                    Tensor& queries) override {
    cuda::QkvToCacheTask task{};
    task.qkv = floats(qkv);
    task.q_scale = floats_or_null(options.q_scale);
    task.k_scale = floats_or_null(options.k_scale);
    task.cosines = floats(options.cos);
    task.sines = floats(options.sin);
    task.queries = floats_of(queries);
    task.cache = paged_cache(view);
    task.kv_projections = narrow(options.kv_projections);
    task.value_norm = options.value_norm;
    task.nodes = narrow(view.tables->nodes);
    task.heads = narrow(options.heads);
    task.eps = static_cast<float>(options.eps);
    run("qkv_to_cache", cuda::specdec_cuda_qkv_to_cache, task);
    if (kv_key_group(view.format) > 1 && options.kv_projections > 0) {
      round_keys(view);
    }
  }

  void round_keys(const KvView& view) override {
    run("round_keys", cuda::specdec_cuda_round_keys, cuda::round_keys_task(view));
  }

  void paged_attention(const Tensor& queries, const KvView& view, const AttentionOptions& options,
                       Tensor& out) override {
    if (view.pooled != nullptr) {
      PooledKeys::check_bias(options.bias);
      if (view.pooled->columns() > 0) {
        run("pool_keys", cuda::specdec_cuda_pool_keys, cuda::pool_keys_task(view));
      }
    }
    const Tensor bias =
        options.bias.defined() ? options.bias.to(queries.options()).contiguous() : Tensor();
    check_unrecorded(bias.is_same(options.bias), "a bias that has to be copied");
    cuda::PagedAttentionTask task = cuda::attention_task(queries, view, options, out);
    task.bias = floats_or_null(bias);
    task.bias_columns = bias.defined() ? narrow(bias.size(1)) : 0;
    task.workspace = workspace(cuda::specdec_cuda_attention_workspace(&task));
    if (task.cache.head_dim % cuda::kSplitDim != 0) {
      run("paged_attention", cuda::specdec_cuda_paged_attention, task);
      return;
    }
    run_and_split("paged_attention", cuda::specdec_cuda_paged_attention, task, out, task.nodes,
                  task.heads * task.cache.head_dim);
  }

  void gated_activation(const Tensor& gate_up, Activation activation, Tensor& out) override {
    cuda::GatedActivationTask task{};
    task.gate_up = floats(gate_up);
    task.out = floats_of(out);
    task.rows = gate_up.size(0);
    task.size = out.size(1);
    task.silu = activation == Activation::kSilu;
    run_and_split("gated_activation", cuda::specdec_cuda_gated_activation, task, out,
                  narrow(task.rows), narrow(task.size));
  }

  void look_up(const RowTable& table, const Tensor& ids, double factor, Tensor& out) override {
    check_unrecorded(false, "rows of a table on the host");
    Tensor rows = at::empty(out.sizes(), at::kFloat);
    table.look_up(ids.cpu(), factor, rows);
    *split_ = {};
    out.copy_(rows);
  }

  void per_layer_inputs(const Tensor& context, const Tensor& token, const PerLayerOptions& options,
                        Tensor& out) override {
    cuda::PerLayerInputsTask task{};
    task.context = floats(context);
    task.token = floats(token);
    task.norm = floats(options.norm);
    task.out = floats_of(out);
    task.rows = narrow(out.size(1));
    task.layers = narrow(out.size(0));
    task.size = narrow(out.size(2));
    task.eps = static_cast<float>(options.eps);
    task.context_scale = static_cast<float>(options.context_scale);
    run("per_layer_inputs", cuda::specdec_cuda_per_layer_inputs, task);
  }

  void route(const Tensor& logits, const Tensor& output_scale, Routes& routes) override {
    cuda::RouteTask task{};
    task.logits = floats(logits);
    task.output_scale = floats(output_scale);
    task.experts = routes.experts.mutable_data_ptr<int32_t>();
    task.weights = floats_of(routes.weights);
    task.rows = narrow(logits.size(0));
    task.count = narrow(logits.size(1));
    task.chosen = narrow(routes.experts.size(1));
    run("route", cuda::specdec_cuda_route, task);
  }

  void apply_experts(const ExpertMatrices& experts, const Tensor& input, const Routes& routes,
                     ExpertBuffers& buffers, Tensor& out) override {
    expert_linear(experts.gate_up, input, routes, buffers.gate_up);
    gated_activation(buffers.gate_up, experts.activation, buffers.gated);
    expert_linear(experts.down, buffers.gated, routes, buffers.outputs);
    cuda::ExpertSumTask task{};
    task.outputs = floats(buffers.outputs);
    task.weights = floats(routes.weights);
    task.out = floats_of(out);
    task.rows = narrow(out.size(0));
    task.chosen = narrow(routes.experts.size(1));
    task.size = narrow(out.size(1));
    run("expert_sum", cuda::specdec_cuda_expert_sum, task);
  }

  void cut_gate(Tensor& gate_up, double deviations) override {
    cuda::CutGateTask task{};
    task.gate_up = floats_of(gate_up);
    task.rows = narrow(gate_up.size(0));
    task.size = narrow(gate_up.size(1) / 2);
    task.deviations = static_cast<float>(deviations);
    run("cut_gate", cuda::specdec_cuda_cut_gate, task);
  }

  void altup_route(const Tensor& input, const AltUpRouter& router, Tensor& out) override {
    cuda::AltUpRouteTask task{};
    task.input = floats(input);
    task.weight = floats(router.weight);
    task.norm = floats(router.norm);
    task.out = floats_of(out);
    task.rows = narrow(input.size(0));
    task.streams = narrow(out.size(1));
    task.size = narrow(input.size(1));
    task.eps = static_cast<float>(router.eps);
    run("altup_route", cuda::specdec_cuda_altup_route, task);
  }

  void altup_predict(const Tensor& streams, const Tensor& routes, const Tensor& coefficients,
                     Tensor& out) override {
    cuda::AltUpPredictTask task{};
    task.streams = floats(streams);
    task.routes = floats(routes);
    task.coefficients = floats(coefficients);
    task.out = floats_of(out);
    task.rows = narrow(streams.size(1));
    task.count = narrow(streams.size(0));
    task.size = narrow(streams.size(2));
    run("altup_predict", cuda::specdec_cuda_altup_predict, task);
  }

  void altup_correct(const Tensor& activated, const Tensor& routes, const Tensor& coefficients,
                     int64_t active, Tensor& streams) override {
    cuda::AltUpCorrectTask task{};
    task.activated = floats(activated);
    task.routes = floats(routes);
    task.coefficients = floats(coefficients);
    task.streams = floats_of(streams);
    task.rows = narrow(streams.size(1));
    task.count = narrow(streams.size(0));
    task.active = narrow(active);
    task.size = narrow(streams.size(2));
    run("altup_correct", cuda::specdec_cuda_altup_correct, task);
  }

  void match_rms(const Tensor& like, Tensor& values) override {
    cuda::MatchRmsTask task{};
    task.like = floats(like);
    task.values = floats_of(values);
    task.rows = narrow(values.size(0));
    task.size = narrow(values.size(1));
    run("match_rms", cuda::specdec_cuda_match_rms, task);
  }

  void mean_stream(const Tensor& streams, Tensor& out) override {
    cuda::MeanStreamTask task{};
    task.streams = floats(streams);
    task.out = floats_of(out);
    task.count = narrow(streams.size(0));
    task.size = out.numel();
    run("mean_stream", cuda::specdec_cuda_mean_stream, task);
  }

  void recurrence(const RecurrenceTensors& weights, const NodeStates& states, int64_t offset,
                  Tensor& branches) override {
    cuda::RecurrenceTask task = cuda::recurrence_task(weights, states, offset, branches);
    task.workspace = workspace(cuda::specdec_cuda_recurrence_workspace(&task));
    run("recurrence", cuda::specdec_cuda_recurrence, task);
  }

  void score_clusters(const ClusteredHead& head, const Tensor& centroid_scores,
                      const Tensor& states, Tensor& logits) override {
    check_rows(head.weight);
    cuda::ScoreClustersTask task = cuda::score_clusters_task(head, centroid_scores, states, logits);
    task.workspace = workspace(cuda::specdec_cuda_score_clusters_workspace(&task));
    run("score_clusters", cuda::specdec_cuda_score_clusters, task);
  }

  void forbid(const ForbiddenTokens& tokens, Tensor& logits) override {
    tokens.check(logits);
    cuda::ForbidTask task{};
    task.logits = floats_of(logits);
    task.suppressed = tokens.suppressed().const_data_ptr<int64_t>();
    task.rows = narrow(logits.size(0));
    task.size = narrow(logits.size(1));
    task.usable = narrow(tokens.usable());
    task.count = narrow(tokens.suppressed().size(0));
    run("forbid", cuda::specdec_cuda_forbid, task);
  }

  bool finds_best() const override { return true; }
  void find_best(const Tensor& logits, Tensor& found) override {
    const int64_t rows = logits.size(0);
    SPECDEC_CHECK(
        found.scalar_type() == at::kInt && found.is_contiguous() && found.numel() == 3 * rows,
        "CUDA: best tokens of {} rows need 3 int32 each", rows);
    cuda::ArgmaxTask task{};
    task.rows = floats(logits);
    task.ids = found.mutable_data_ptr<int32_t>();
    task.largest = reinterpret_cast<float*>(task.ids + rows);
    task.stride = logits.size(1);
    task.count = narrow(rows);
    task.size = narrow(logits.size(1));
    task.workspace = workspace(cuda::specdec_cuda_argmax_workspace(&task));
    run("argmax", cuda::specdec_cuda_argmax, task);
  }

  std::shared_ptr<DeviceSampler> sampler() override { return sampler_; }
  bool records() const override { return true; }
  std::unique_ptr<OpsGraph> record(const std::function<void()>& calls) override {
    check_unrecorded(false, "another graph");
    const c10::OptionalDeviceGuard guard(device_);
    cuda::CudaCapture capture(*stream_, device_, split_);
    calls();
    return capture.finish({scratch_.memory(), splits_.memory()});
  }

 private:
  /// Memory that means nothing between kernels. A graph keeps its address.
  float* workspace(int64_t numbers) {
    check_unrecorded(scratch_.holds(numbers), "a workspace larger than any before");
    return scratch_.reserve(numbers);
  }

  /// Numbers of the memory for inputs that are split for tensor cores, by the op that makes them or
  /// by the product. What it holds means nothing but to the product that comes next.
  static int64_t split_numbers(int32_t rows, int32_t in) {
    return cuda::specdec_cuda_split_bytes(rows, in) / kFloatBytes;
  }
  float* split_memory(int32_t rows, int32_t in) {
    const int64_t numbers = split_numbers(rows, in);
    check_unrecorded(splits_.holds(numbers), "more split inputs than any before");
    return splits_.reserve(numbers);
  }
  /// Whether the memory for split inputs holds those of `input` [rows, in].
  bool is_split(const Tensor& input, int64_t rows, int64_t in) const {
    return split_->tensor.defined() && split_->rows == rows && split_->in == in &&
           split_->tensor.const_data_ptr() == input.const_data_ptr();
  }
  /// Runs a kernel that splits what it writes too, `out` of [rows, in]. It splits nothing before
  /// there was a product on tensor cores, nor what a graph that is recorded has no memory for,
  /// since its first run split less: the product does that then.
  template <class Task>
  void run_and_split(const char* op, int (*kernel)(const Task*, void*), Task& task,
                     const Tensor& out, int32_t rows, int32_t in) {
    const bool has_room = *stream_ == nullptr || splits_.holds(split_numbers(rows, in));
    if (!multiplies_splits_ || !has_room) {
      run(op, kernel, task);
      return;
    }
    task.split = split_memory(rows, in);
    run(op, kernel, task);
    *split_ = {out, rows, in};
  }

  /// `holds`, or no graph is recorded.
  void check_unrecorded(bool holds, const char* what) const {
    SPECDEC_CHECK(holds || *stream_ == nullptr, "CUDA: a graph cannot hold {}", what);
  }

  template <class Task>
  void run(const char* op, int (*kernel)(const Task*, void*), const Task& task) const {
    *split_ = {};
    cuda::run_kernel(device_, op, kernel, task, *stream_);
  }

  /// A linear product with a part in float32.
  void plain_linear(const Linear& weight, const Linear::Part& part, const Tensor& input,
                    Tensor& out) const {
    run("linear", cuda::specdec_cuda_linear, cuda::linear_task(weight, part, input, out));
  }

  static void check_rows(const Linear& weight) {
    SPECDEC_CHECK(weight.defined() && weight.layout() == WeightLayout::kRows,
                  "CUDA: a weight that is not in rows");
    if (weight.activations() != ActivationFormat::kFloat32) {
      throw Error(
          "int8 activations run on the CPU only; leave activations out, or use device: cpu");
    }
  }

  static cuda::RmsNormTask norm_task(const Tensor& input, const float* scale, double eps,
                                     Tensor& out) {
    cuda::RmsNormTask task{};
    task.input = floats(input);
    task.scale = scale;
    task.out = floats_of(out);
    task.rows = narrow(rows_of(input));
    task.size = narrow(input.size(-1));
    task.eps = static_cast<float>(eps);
    return task;
  }

  void norm(const Tensor& input, const Tensor& scale, double eps, bool add, Tensor& out) {
    cuda::RmsNormTask task = norm_task(input, floats(scale), eps, out);
    task.add = add;
    if (add) {  // a residual stream, which is normalised before it is multiplied
      run("rms_norm", cuda::specdec_cuda_rms_norm, task);
    } else {
      run_and_split("rms_norm", cuda::specdec_cuda_rms_norm, task, out, task.rows, task.size);
    }
  }

  void elementwise(const cuda::ElementwiseTask& task) const {
    run("elementwise", cuda::specdec_cuda_elementwise, task);
  }

  void copy_rows(const Tensor& input, const Tensor& scale, double factor, Tensor& out) const {
    cuda::CopyRowsTask task{};
    task.input = floats(input);
    task.scale = floats_or_null(scale);
    task.out = floats_of(out);
    task.out_stride = input.size(-1);
    task.rows = rows_of(input);
    task.columns = narrow(input.size(-1));
    task.factor = static_cast<float>(factor);
    run("copy_rows", cuda::specdec_cuda_copy_rows, task);
  }

  void copy_columns(const Tensor& input, int64_t first, Tensor& out) const {
    cuda::CopyRowsTask task{};
    task.input = floats(input);
    task.out = floats_of(out) + first;
    task.out_stride = out.size(1);
    task.rows = input.size(0);
    task.columns = narrow(input.size(1));
    task.factor = 1.0F;
    run("copy_rows", cuda::specdec_cuda_copy_rows, task);
  }

  void expert_linear(const std::vector<Linear>& experts, const Tensor& input, const Routes& routes,
                     Tensor& out) {
    check_rows(experts.front());
    cuda::ExpertLinearTask task = cuda::expert_linear_task(experts, input, routes.experts, out);
    if (!experts.front().parts().front().in_fragments) {
      run("expert_linear", cuda::specdec_cuda_expert_linear, task);
      return;
    }
    const int32_t rows = task.pairs / task.rows_share;
    task.workspace = split_memory(rows, task.in);
    task.is_split = is_split(input, rows, task.in);
    run("tensor_experts", cuda::specdec_cuda_tensor_experts, task);
    multiplies_splits_ = true;
  }

  at::Device device_;
  Scratch scratch_, splits_;
  /// What splits_ holds: what the last op wrote or multiplied.
  std::shared_ptr<cuda::SplitRows> split_ = std::make_shared<cuda::SplitRows>();
  bool multiplies_splits_ = false;
  /// The default one, or the one that is captured; the sampler draws there.
  std::shared_ptr<void*> stream_ = std::make_shared<void*>(nullptr);
  std::shared_ptr<DeviceSampler> sampler_;
};

}  // namespace

std::shared_ptr<Ops> cuda_ops(at::Device device) { return std::make_shared<CudaOps>(device); }

}  // namespace specdec
