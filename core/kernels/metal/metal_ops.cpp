#include "core/kernels/metal/metal_ops.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <utility>

#include "core/error.h"
#include "core/kernels/metal/metal_attention.h"
#include "core/kernels/metal/metal_formats.h"
#include "core/kernels/metal/metal_launcher.h"
#include "core/kernels/metal/metal_recurrence.h"

namespace specdec {
namespace {

using mps::count_of_rows;
using mps::groups_of;
using mps::int_of;
using mps::KernelArray;
using mps::KernelLaunch;
using mps::launch_of;
using mps::metal_format;
using mps::row_launch;

/// Memory of a group that multiplies a tile of rows.
uint32_t product_bytes(int64_t rows) {
  return mps::reduction_bytes(rows * mps::kProductOutputs, mps::kProductThreads);
}

class MetalOps final : public Ops {
 public:
  MetalOps(at::Device device, std::unique_ptr<mps::KernelQueue> queue)
      : metal_(device, std::move(queue)) {}

  void linear(const Linear& weight, const Tensor& input, Tensor& out) override {
    for (const Linear::Part& part : weight.parts()) {
      check_rows(weight, part);
      multiply(weight, part, input, out);
    }
  }

  void embed_rows(const Linear& table, const Tensor& ids, double factor, Tensor& out) override {
    SPECDEC_CHECK(table.parts().size() == 1, "Metal: an embedding of several formats");
    const Linear::Part& part = table.parts().front();
    check_rows(table, part);
    const mps::EmbedSizes sizes = {int_of(table.in()), static_cast<float>(factor),
                                   mps::codebook_numbers(part.format)};
    KernelLaunch launch = launch_of("linear", "embed_", metal_format(part.format));
    launch.arrays = {
        {part.packed}, {ids.to(metal_.device(), at::kInt).contiguous()}, metal_.plain(out)};
    launch.groups[0] = groups_of(ids.size(0), 1);
    launch.threads = mps::kProductThreads;
    metal_.run(launch, sizes);
  }

  void rms_norm(const Tensor& input, const Tensor& scale, double eps, Tensor& out) override {
    norm(input, scale, eps, false, out);
  }
  void add_rms_norm(Tensor& residual, const Tensor& input, const Tensor& scale,
                    double eps) override {
    norm(input, scale, eps, true, residual);
  }

  void add(Tensor& residual, const Tensor& input) override {
    metal_.elements("add", {metal_.plain(input), metal_.plain(residual)}, input.numel(),
                    mps::ElementSizes{int_of(input.numel()), 0.0F});
  }
  void soft_cap(Tensor& values, double cap) override {
    metal_.elements("soft_cap", {metal_.plain(values)}, values.numel(),
                    mps::ElementSizes{int_of(values.numel()), static_cast<float>(cap)});
  }
  void copy(const Tensor& input, Tensor& out) override { copy_rows(input, {}, 1.0, {out}); }
  void scale(Tensor& values, double factor) override { copy_rows(values, {}, factor, {values}); }
  void multiply_rows(const Tensor& input, const Tensor& row, Tensor& out) override {
    copy_rows(input, row, 1.0, {out});
  }
  void concat(const Tensor& left, const Tensor& right, Tensor& out) override {
    copy_rows(left, {}, 1.0, {out});
    copy_rows(right, {}, 1.0, {out, left.size(1)});
  }

  void gated_activation(const Tensor& gate_up, Activation activation, Tensor& out) override {
    metal_.elements("gated_activation", {metal_.plain(gate_up), metal_.plain(out)}, out.numel(),
                    mps::GatedSizes{int_of(gate_up.size(0)), int_of(out.size(1)),
                                    activation == Activation::kSilu ? 1 : 0});
  }

  void qkv_to_cache(const Tensor& qkv, const QkvOptions& options, const KvView& view,
                    Tensor& queries) override {
    mps::qkv_to_cache(metal_, qkv, options, view, queries);
  }
  void paged_attention(const Tensor& queries, const KvView& view, const AttentionOptions& options,
                       Tensor& out) override {
    mps::paged_attention(metal_, queries, view, options, out);
  }

  void look_up(const RowTable& table, const Tensor& ids, double factor, Tensor& out) override {
    Tensor rows = at::empty(out.sizes(), at::kFloat);
    table.look_up(ids.cpu(), factor, rows);
    out.copy_(rows);
  }

  void per_layer_inputs(const Tensor& context, const Tensor& token, const PerLayerOptions& options,
                        Tensor& out) override {
    const mps::PerLayerSizes sizes = {int_of(out.size(1)), int_of(out.size(0)), int_of(out.size(2)),
                                      static_cast<float>(options.eps),
                                      static_cast<float>(options.context_scale)};
    KernelLaunch launch = row_launch("per_layer_inputs", "per_layer_inputs", out.size(0));
    launch.arrays = {metal_.plain(context), metal_.plain(token), metal_.plain(options.norm),
                     metal_.plain(out)};
    launch.groups[1] = groups_of(out.size(1), 1);
    metal_.run(launch, sizes);
  }

  void route(const Tensor& logits, const Tensor& output_scale, Routes& routes) override {
    const mps::RouteSizes sizes = {int_of(logits.size(1)), int_of(routes.experts.size(1))};
    KernelLaunch launch = launch_of("experts", "route", "");
    launch.arrays = {metal_.plain(logits),
                     metal_.plain(output_scale),
                     {routes.experts},
                     metal_.plain(routes.weights)};
    launch.groups[0] = groups_of(logits.size(0), 1);
    launch.threads = 32;
    metal_.run(launch, sizes);
  }

  void apply_experts(const ExpertMatrices& experts, const Tensor& input, const Routes& routes,
                     ExpertBuffers& buffers, Tensor& out) override {
    expert_linear(experts.gate_up, input, routes, buffers.gate_up);
    gated_activation(buffers.gate_up, experts.activation, buffers.gated);
    expert_linear(experts.down, buffers.gated, routes, buffers.outputs);
    metal_.elements(
        "expert_sum",
        {metal_.plain(buffers.outputs), metal_.plain(routes.weights), metal_.plain(out)},
        out.numel(),
        mps::ExpertSumSizes{int_of(out.size(0)), int_of(routes.experts.size(1)),
                            int_of(out.size(1))},
        "experts");
  }

  void cut_gate(Tensor& gate_up, double deviations) override {
    KernelLaunch launch = row_launch("per_layer_inputs", "cut_gate", gate_up.size(0));
    launch.arrays = {metal_.plain(gate_up)};
    metal_.run(launch, mps::CutSizes{int_of(gate_up.size(1) / 2), static_cast<float>(deviations)});
  }

  void altup_route(const Tensor& input, const AltUpRouter& router, Tensor& out) override {
    KernelLaunch launch = row_launch("altup", "altup_route", input.size(0));
    launch.arrays = {metal_.plain(input), metal_.plain(router.weight), metal_.plain(router.norm),
                     metal_.plain(out)};
    metal_.run(launch, mps::StreamSizes{int_of(out.size(1)), int_of(input.size(0)),
                                        int_of(input.size(1)), 0, static_cast<float>(router.eps)});
  }

  void altup_predict(const Tensor& streams, const Tensor& routes, const Tensor& coefficients,
                     Tensor& out) override {
    mix_streams("altup_predict", streams, 0,
                {metal_.plain(streams), metal_.plain(routes), metal_.plain(coefficients),
                 metal_.plain(out)});
  }

  void altup_correct(const Tensor& activated, const Tensor& routes, const Tensor& coefficients,
                     int64_t active, Tensor& streams) override {
    mix_streams("altup_correct", streams, active,
                {metal_.plain(activated), metal_.plain(routes), metal_.plain(coefficients),
                 metal_.plain(streams)});
  }

  void match_rms(const Tensor& like, Tensor& values) override {
    KernelLaunch launch = row_launch("altup", "match_rms", values.size(0));
    launch.arrays = {metal_.plain(like), metal_.plain(values)};
    metal_.run(launch,
               mps::StreamSizes{1, int_of(values.size(0)), int_of(values.size(1)), 0, 0.0F});
  }

  void mean_stream(const Tensor& streams, Tensor& out) override {
    metal_.elements("mean_stream", {metal_.plain(streams), metal_.plain(out)}, out.numel(),
                    mps::StreamSizes{int_of(streams.size(0)), 1, int_of(out.numel()), 0, 0.0F},
                    "altup");
  }

  void recurrence(const RecurrenceTensors& weights, const NodeStates& states, int64_t offset,
                  Tensor& branches) override {
    mps::recurrence(metal_, weights, states, offset, branches);
  }

  bool finds_best() const override { return true; }
  void find_best(const Tensor& logits, Tensor& found) override {
    const int64_t rows = logits.size(0);
    KernelLaunch launch = row_launch("argmax", "argmax", rows);
    launch.arrays = {metal_.plain(logits), {found}, {found, rows}};
    launch.group_bytes *= 3;
    metal_.run(launch, mps::ArgmaxSizes{int_of(logits.size(1))});
  }

 private:
  static void check_rows(const Linear& weight, const Linear::Part& part) {
    SPECDEC_CHECK(weight.layout() == WeightLayout::kRows && !part.in_fragments,
                  "Metal: a weight that is not in rows");
    if (weight.activations() != ActivationFormat::kFloat32) {
      throw Error(
          "int8 activations run on the CPU only; leave activations out, or use device: cpu");
    }
  }

  void multiply(const Linear& weight, const Linear::Part& part, const Tensor& input,
                Tensor& out) const {
    const int64_t rows = input.size(0);
    const int64_t tile = rows == 1 ? 1 : mps::kProductRows;
    const mps::LinearSizes sizes = {int_of(rows),
                                    int_of(weight.in()),
                                    int_of(part.out),
                                    int_of(weight.out()),
                                    weight.bias().defined() ? 1 : 0,
                                    mps::codebook_numbers(part.format)};
    KernelLaunch launch =
        launch_of("linear", rows == 1 ? "linear_one_" : "linear_", metal_format(part.format));
    (void)metal_.plain(out);
    launch.arrays = {
        {part.packed}, {weight.bias(), part.first}, metal_.plain(input), {out, part.first}};
    launch.groups = {groups_of(part.out, mps::kProductOutputs), groups_of(rows, tile), 1};
    launch.threads = mps::kProductThreads;
    launch.group_bytes = product_bytes(tile);
    metal_.run(launch, sizes);
  }

  void norm(const Tensor& input, const Tensor& scale, double eps, bool add, Tensor& out) const {
    KernelLaunch launch = row_launch("norm", "rms_norm", count_of_rows(input));
    launch.arrays = {metal_.plain(input), metal_.plain(scale), metal_.plain(out)};
    metal_.run(launch,
               mps::NormSizes{int_of(input.size(-1)), static_cast<float>(eps), add ? 1 : 0});
  }

  /// Copies rows to the columns of out.tensor [any, any] from out.first on; where there is no such,
  /// to all of it.
  void copy_rows(const Tensor& input, const Tensor& scale, double factor,
                 const KernelArray& out) const {
    (void)metal_.plain(out.tensor);
    metal_.elements("copy_rows", {metal_.plain(input), {scale}, out}, input.numel(),
                    mps::CopySizes{int_of(count_of_rows(input)), int_of(input.size(-1)),
                                   int_of(out.tensor.size(-1)), static_cast<float>(factor),
                                   scale.defined() ? 1 : 0});
  }

  void expert_linear(const std::vector<Linear>& experts, const Tensor& input, const Routes& routes,
                     Tensor& out) const {
    const Linear::Part& first = experts.front().parts().front();
    const Linear::Part& last = experts.back().parts().front();
    check_rows(experts.front(), first);
    SPECDEC_CHECK(last.packed.storage_offset() - first.packed.storage_offset() ==
                      (std::ssize(experts) - 1) * first.packed.numel(),
                  "Metal: experts that do not follow one another");
    const int64_t pairs = routes.experts.numel();
    const mps::ExpertSizes sizes = {int_of(experts.front().in()), int_of(first.out),
                                    int_of(std::ssize(experts)), int_of(pairs / input.size(0)),
                                    mps::codebook_numbers(first.format)};
    KernelLaunch launch = launch_of("experts", "expert_linear_", metal_format(first.format));
    launch.arrays = {{first.packed}, {routes.experts}, metal_.plain(input), metal_.plain(out)};
    launch.groups = {groups_of(first.out, mps::kProductOutputs), groups_of(pairs, 1), 1};
    launch.threads = mps::kProductThreads;
    launch.group_bytes = product_bytes(1);
    metal_.run(launch, sizes);
  }

  void mix_streams(const char* kernel, const Tensor& streams, int64_t active,
                   std::vector<KernelArray> arrays) const {
    const int64_t count = streams.size(0);
    SPECDEC_CHECK(count <= mps::kMaxStreams, "Metal: {} residual streams", count);
    KernelLaunch launch = launch_of("altup", kernel, "");
    launch.arrays = std::move(arrays);
    launch.groups = {groups_of(streams.size(2), mps::kElementThreads),
                     groups_of(streams.size(1), 1), 1};
    launch.threads = mps::kElementThreads;
    metal_.run(launch, mps::StreamSizes{int_of(count), int_of(streams.size(1)),
                                        int_of(streams.size(2)), int_of(active), 0.0F});
  }

  mps::MetalLauncher metal_;
};

}  // namespace

std::shared_ptr<Ops> metal_ops(at::Device device, std::unique_ptr<mps::KernelQueue> queue) {
  return std::make_shared<MetalOps>(device, std::move(queue));
}

}  // namespace specdec
