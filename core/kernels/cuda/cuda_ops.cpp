#include "core/kernels/cuda/cuda_ops.h"

#include <ATen/ATen.h>

#include "core/error.h"
#include "core/kernels/cuda/cuda_cache_tasks.h"
#include "core/kernels/cuda/cuda_capture.h"
#include "core/kernels/cuda/cuda_sampler.h"
#include "core/kernels/cuda/cuda_tasks.h"
#include "core/kernels/cuda/growing_memory.h"
#include "core/kernels/cuda/library_products.h"
#include "core/kernels/cuda/run_kernel.h"
#include "core/kernels/cuda/split_memory.h"
#include "core/kernels/pooled_keys.h"
#include "core/kernels/staged_upload.h"

namespace specdec {
namespace {

class CudaOps final : public Ops {
 public:
  explicit CudaOps(at::Device device)
      : device_(device),
        workspace_(device),
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
      task.is_split = splits_.holds(input, task.rows, task.in);
      run("tensor_linear", cuda::specdec_cuda_tensor_linear, task);
      splits_.keep(input, task.rows, task.in);
      multiplies_splits_ = true;
    }
  }
  bool has_library() const override { return true; }
  void library_linear(const Linear& weight, const Tensor& input, Tensor& out) override {
    check_rows(weight);
    check_unrecorded(false, "products of a library");
    splits_.forget();
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
    const bool are_there = ids.scalar_type() == at::kInt && ids.is_contiguous() &&
                           ids.device().type() == device_.type();
    check_unrecorded(are_there, "token ids that have to be copied");
    const Tensor here = uploaded(ids.to(at::kInt).contiguous(), device_);
    run("embed_rows",
        table.parts().front().in_fragments ? cuda::specdec_cuda_embed_fragments
                                           : cuda::specdec_cuda_embed_rows,
        cuda::embed_rows_task(table, here, factor, out));
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
    cuda::RmsNormTask task = cuda::norm_task(input, cuda::floats_or_null(scale), eps, residual);
    task.add = true;
    task.next = cuda::floats(next);
    task.normed = cuda::floats_of(normed);
    run_and_split("rms_norm", cuda::specdec_cuda_rms_norm, task, normed, task.rows, task.size);
  }

  void add(Tensor& residual, const Tensor& input) override {
    run("elementwise", cuda::specdec_cuda_elementwise, cuda::add_task(input, residual));
  }
  void soft_cap(Tensor& values, double cap) override {
    run("elementwise", cuda::specdec_cuda_elementwise, cuda::soft_cap_task(cap, values));
  }
  void copy(const Tensor& input, Tensor& out) override { copy_rows(input, {}, 1.0, out); }
  void gather_rows(const Tensor& input, const Tensor& rows, Tensor& out) override {
    run("gather_rows", cuda::specdec_cuda_gather_rows, cuda::gather_rows_task(input, rows, out));
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
    run("qkv_to_cache", cuda::specdec_cuda_qkv_to_cache,
        cuda::qkv_task(qkv, options, view, queries));
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
    AttentionOptions here = options;
    if (options.bias.defined()) {
      here.bias = options.bias.to(queries.options()).contiguous();
    }
    check_unrecorded(here.bias.is_same(options.bias), "a bias that has to be copied");
    cuda::PagedAttentionTask task = cuda::attention_task(queries, view, here, out);
    task.workspace = workspace(cuda::specdec_cuda_attention_workspace(&task));
    if (task.cache.head_dim % cuda::kSplitDim != 0) {
      run("paged_attention", cuda::specdec_cuda_paged_attention, task);
      return;
    }
    run_and_split("paged_attention", cuda::specdec_cuda_paged_attention, task, out, task.nodes,
                  task.heads * task.cache.head_dim);
  }

  void gated_activation(const Tensor& gate_up, Activation activation, Tensor& out) override {
    cuda::GatedActivationTask task = cuda::gated_activation_task(gate_up, activation, out);
    run_and_split("gated_activation", cuda::specdec_cuda_gated_activation, task, out,
                  cuda::narrow(task.rows), cuda::narrow(task.size));
  }

  void look_up(const RowTable& table, const Tensor& ids, double factor, Tensor& out) override {
    check_unrecorded(false, "rows of a table on the host");
    Tensor rows = at::empty(out.sizes(), at::kFloat);
    table.look_up(ids.cpu(), factor, rows);
    splits_.forget();
    out.copy_(rows);
  }

  void per_layer_inputs(const Tensor& context, const Tensor& token, const PerLayerOptions& options,
                        Tensor& out) override {
    run("per_layer_inputs", cuda::specdec_cuda_per_layer_inputs,
        cuda::per_layer_inputs_task(context, token, options, out));
  }

  void route(const Tensor& logits, const Tensor& output_scale, Routes& routes) override {
    run("route", cuda::specdec_cuda_route, cuda::route_task(logits, output_scale, routes));
  }

  void apply_experts(const ExpertMatrices& experts, const Tensor& input, const Routes& routes,
                     ExpertBuffers& buffers, Tensor& out) override {
    expert_linear(experts.gate_up, input, routes, buffers.gate_up);
    gated_activation(buffers.gate_up, experts.activation, buffers.gated);
    expert_linear(experts.down, buffers.gated, routes, buffers.outputs);
    run("expert_sum", cuda::specdec_cuda_expert_sum,
        cuda::expert_sum_task(buffers.outputs, routes, out));
  }

  void cut_gate(Tensor& gate_up, double deviations) override {
    run("cut_gate", cuda::specdec_cuda_cut_gate, cuda::cut_gate_task(deviations, gate_up));
  }

  void altup_route(const Tensor& input, const AltUpRouter& router, Tensor& out) override {
    run("altup_route", cuda::specdec_cuda_altup_route, cuda::altup_route_task(input, router, out));
  }

  void altup_predict(const Tensor& streams, const Tensor& routes, const Tensor& coefficients,
                     Tensor& out) override {
    run("altup_predict", cuda::specdec_cuda_altup_predict,
        cuda::altup_predict_task(streams, routes, coefficients, out));
  }

  void altup_correct(const Tensor& activated, const Tensor& routes, const Tensor& coefficients,
                     int64_t active, Tensor& streams) override {
    run("altup_correct", cuda::specdec_cuda_altup_correct,
        cuda::altup_correct_task(activated, routes, coefficients, active, streams));
  }

  void match_rms(const Tensor& like, Tensor& values) override {
    run("match_rms", cuda::specdec_cuda_match_rms, cuda::match_rms_task(like, values));
  }

  void mean_stream(const Tensor& streams, Tensor& out) override {
    run("mean_stream", cuda::specdec_cuda_mean_stream, cuda::mean_stream_task(streams, out));
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
    run("forbid", cuda::specdec_cuda_forbid, cuda::forbid_task(tokens, logits));
  }

  bool finds_best() const override { return true; }
  void find_best(const Tensor& logits, Tensor& found) override {
    cuda::ArgmaxTask task = cuda::argmax_task(logits, found);
    task.workspace = workspace(cuda::specdec_cuda_argmax_workspace(&task));
    run("argmax", cuda::specdec_cuda_argmax, task);
  }

  std::shared_ptr<DeviceSampler> sampler() override { return sampler_; }
  bool records() const override { return true; }
  std::unique_ptr<OpsGraph> record(const std::function<void()>& calls) override {
    check_unrecorded(false, "another graph");
    const c10::OptionalDeviceGuard guard(device_);
    cuda::CudaCapture capture(*stream_, device_, splits_.held());
    calls();
    return capture.finish({workspace_.tensor(), splits_.tensor()});
  }

 private:
  /// Memory that means nothing between kernels. A graph keeps its address.
  float* workspace(int64_t numbers) {
    check_unrecorded(workspace_.has_room(numbers), "a workspace larger than any before");
    return workspace_.reserve(numbers);
  }
  /// Memory for inputs that are split; likewise.
  float* split_memory(int32_t rows, int32_t in) {
    check_unrecorded(splits_.has_room(rows, in), "more split inputs than any before");
    return splits_.reserve(rows, in);
  }
  /// Runs a kernel that splits what it writes too, `out` of [rows, in]. It splits nothing before
  /// there was a product on tensor cores, nor what a graph that is recorded has no memory for,
  /// since its first run split less: the product does that then.
  template <class Task>
  void run_and_split(const char* op, int (*kernel)(const Task*, void*), Task& task,
                     const Tensor& out, int32_t rows, int32_t in) {
    const bool has_room = *stream_ == nullptr || splits_.has_room(rows, in);
    if (!multiplies_splits_ || !has_room) {
      run(op, kernel, task);
      return;
    }
    task.split = split_memory(rows, in);
    run(op, kernel, task);
    splits_.keep(out, rows, in);
  }

  /// `holds`, or no graph is recorded.
  void check_unrecorded(bool holds, const char* what) const {
    SPECDEC_CHECK(holds || *stream_ == nullptr, "CUDA: a graph cannot hold {}", what);
  }

  template <class Task>
  void run(const char* op, int (*kernel)(const Task*, void*), const Task& task) {
    splits_.forget();
    cuda::run_kernel(device_, op, kernel, task, *stream_);
  }

  /// A linear product with a part in float32.
  void plain_linear(const Linear& weight, const Linear::Part& part, const Tensor& input,
                    Tensor& out) {
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

  void norm(const Tensor& input, const Tensor& scale, double eps, bool add, Tensor& out) {
    cuda::RmsNormTask task = cuda::norm_task(input, cuda::floats(scale), eps, out);
    task.add = add;
    if (add) {  // a residual stream, which is normalised before it is multiplied
      run("rms_norm", cuda::specdec_cuda_rms_norm, task);
    } else {
      run_and_split("rms_norm", cuda::specdec_cuda_rms_norm, task, out, task.rows, task.size);
    }
  }

  void copy_rows(const Tensor& input, const Tensor& scale, double factor, Tensor& out) {
    run("copy_rows", cuda::specdec_cuda_copy_rows, cuda::copy_rows_task(input, scale, factor, out));
  }

  void copy_columns(const Tensor& input, int64_t first, Tensor& out) {
    run("copy_rows", cuda::specdec_cuda_copy_rows, cuda::copy_columns_task(input, first, out));
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
    task.is_split = splits_.holds(input, rows, task.in);
    run("tensor_experts", cuda::specdec_cuda_tensor_experts, task);
    multiplies_splits_ = true;
  }

  at::Device device_;
  cuda::GrowingMemory workspace_;
  cuda::SplitMemory splits_;
  bool multiplies_splits_ = false;
  /// The default one, or the one that is captured; the sampler draws there.
  std::shared_ptr<void*> stream_ = std::make_shared<void*>(nullptr);
  std::shared_ptr<DeviceSampler> sampler_;
};

}  // namespace

std::shared_ptr<Ops> cuda_ops(at::Device device) { return std::make_shared<CudaOps>(device); }

}  // namespace specdec
