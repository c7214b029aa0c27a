#include "core/kernels/metal/metal_ops.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "core/error.h"
#include "core/kernels/metal/metal_formats.h"
#include "core/kernels/metal/sizes.h"

namespace specdec {
namespace {

using mps::KernelArray;
using mps::KernelLaunch;
using mps::metal_format;

int32_t int_of(int64_t number) {
  SPECDEC_CHECK(number >= 0 && number <= std::numeric_limits<int32_t>::max(), "size {}", number);
  return static_cast<int32_t>(number);
}

uint32_t groups_of(int64_t elements, int64_t share) {
  return static_cast<uint32_t>(int_of((elements + share - 1) / share));
}

/// Rows of a tensor whose last dimension is a row.
int64_t count_of_rows(const Tensor& tensor) {
  return tensor.numel() == 0 ? 0 : tensor.numel() / tensor.size(-1);
}

/// Memory of a group that adds up `sums` numbers of each of its threads.
uint32_t reduction_bytes(int64_t sums, int64_t threads) {
  return static_cast<uint32_t>(sums * (threads / mps::kSimdThreads)) *
         static_cast<uint32_t>(sizeof(float));
}

/// Memory of a group that multiplies a tile of rows.
uint32_t product_bytes(int64_t rows) {
  return reduction_bytes(rows * mps::kProductOutputs, mps::kProductThreads);
}

mps::CacheSizes cache_sizes(const KvView& view) {
  SPECDEC_CHECK(view.sink == 0 && view.pooled == nullptr, "Metal: a cache with a sink or means");
  return {int_of(view.kv_heads()), int_of(view.head_dim()), int_of(view.page_size()),
          int_of(view.window), int_of(view.page_stride())};
}

mps::KernelArray page_table_of(const KvView& view) {
  return {view.tables->page_tables, view.page_offset()};
}

/// "float32" or "bfloat16" pages.
const char* page_format(const KvView& view) {
  SPECDEC_CHECK(view.format == KvFormat::kNative || view.format == KvFormat::kBFloat16,
                "Metal: a cache in {}", kv_format_name(view.format));
  return kv_format_name(view.format);
}

class MetalOps final : public Ops {
 public:
  MetalOps(at::Device device, std::unique_ptr<mps::KernelQueue> queue)
      : device_(device), queue_(std::move(queue)) {}

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
    const mps::EmbedSizes sizes = {int_of(table.in()), static_cast<float>(factor)};
    KernelLaunch launch = launch_of("linear", "embed_", metal_format(part.format));
    launch.arrays = {{part.packed}, {ids.to(device_, at::kInt).contiguous()}, plain(out)};
    launch.groups[0] = groups_of(ids.size(0), 1);
    launch.threads = mps::kProductThreads;
    run(launch, sizes);
  }

  void rms_norm(const Tensor& input, const Tensor& scale, double eps, Tensor& out) override {
    norm(input, scale, eps, false, out);
  }
  void add_rms_norm(Tensor& residual, const Tensor& input, const Tensor& scale,
                    double eps) override {
    norm(input, scale, eps, true, residual);
  }

  void add(Tensor& residual, const Tensor& input) override {
    elements("add", {plain(input), plain(residual)}, input.numel(),
             mps::ElementSizes{int_of(input.numel()), 0.0F});
  }
  void soft_cap(Tensor& values, double cap) override {
    elements("soft_cap", {plain(values)}, values.numel(),
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
    elements("gated_activation", {plain(gate_up), plain(out)}, out.numel(),
             mps::GatedSizes{int_of(gate_up.size(0)), int_of(out.size(1)),
                             activation == Activation::kSilu ? 1 : 0});
  }

  void qkv_to_cache(const Tensor& qkv, const QkvOptions& options, const KvView& view,
                    Tensor& queries) override {
    const BatchTables& tables = *view.tables;
    mps::QkvSizes sizes{};
    sizes.cache = cache_sizes(view);
    sizes.heads = int_of(options.heads);
    sizes.kv_projections = int_of(options.kv_projections);
    sizes.eps = static_cast<float>(options.eps);
    sizes.query_norm = options.q_scale.defined() ? 1 : 0;
    sizes.key_norm = options.k_scale.defined() ? 1 : 0;
    sizes.value_norm = options.value_norm ? 1 : 0;
    KernelLaunch launch = launch_of("qkv", "qkv_to_cache_", page_format(view));
    launch.arrays = {plain(qkv),         {options.q_scale}, {options.k_scale},  plain(options.cos),
                     plain(options.sin), plain(queries),    {view.keys},        {view.values},
                     {tables.rows},      {tables.slots},    {tables.positions}, {tables.angles},
                     page_table_of(view)};
    launch.groups = {
        groups_of(options.heads + (options.kv_projections == 0 ? 0 : 2 * view.kv_heads()), 1),
        groups_of(tables.nodes, 1), 1};
    launch.threads = mps::kHeadThreads;
    launch.group_bytes = reduction_bytes(1, mps::kHeadThreads);
    run(launch, sizes);
  }

  void paged_attention(const Tensor& queries, const KvView& view, const AttentionOptions& options,
                       Tensor& out) override {
    check_attention(queries, view);
    const BatchTables& tables = *view.tables;
    const Tensor bias =
        options.bias.defined() ? options.bias.to(queries.options()).contiguous() : Tensor();
    mps::AttentionSizes sizes{};
    sizes.cache = cache_sizes(view);
    sizes.heads = int_of(queries.size(1));
    sizes.chunks = int_of(groups_of(tables.longest, mps::kChunkPositions));
    sizes.bias_columns = bias.defined() ? int_of(bias.size(1)) : 0;
    sizes.scale = static_cast<float>(options.scale);
    sizes.soft_cap = static_cast<float>(options.soft_cap);
    const int64_t parts = tables.nodes * sizes.heads * sizes.chunks;
    const Tensor workspace = reserve(parts * (view.head_dim() + 2));
    const KernelArray partial = {workspace, parts * view.head_dim()};
    KernelLaunch launch = launch_of("attention", "attention_chunk_", page_format(view));
    launch.arrays = {plain(queries), {view.keys},        {view.values},
                     {tables.rows},  {tables.positions}, {tables.path_starts},
                     {tables.paths}, {tables.lengths},   page_table_of(view),
                     {bias},         {workspace},        partial};
    launch.groups = {groups_of(sizes.heads, 1), groups_of(tables.nodes, 1),
                     groups_of(sizes.chunks, 1)};
    launch.threads = mps::kChunkPositions;
    launch.group_bytes = static_cast<uint32_t>(sizes.cache.head_dim + 2 * mps::kChunkPositions) *
                             static_cast<uint32_t>(sizeof(float)) +
                         reduction_bytes(1, mps::kChunkPositions);
    run(launch, sizes);
    KernelLaunch join = launch_of("attention", "attention_", "join");
    join.arrays = {{tables.positions}, {workspace}, partial, plain(out)};
    join.groups = {launch.groups[0], launch.groups[1], 1};
    join.threads = mps::kChunkPositions;
    run(join, sizes);
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
    launch.arrays = {plain(context), plain(token), plain(options.norm), plain(out)};
    launch.groups[1] = groups_of(out.size(1), 1);
    run(launch, sizes);
  }

  void route(const Tensor& logits, const Tensor& output_scale, Routes& routes) override {
    const mps::RouteSizes sizes = {int_of(logits.size(1)), int_of(routes.experts.size(1))};
    KernelLaunch launch = launch_of("experts", "route", "");
    launch.arrays = {plain(logits), plain(output_scale), {routes.experts}, plain(routes.weights)};
    launch.groups[0] = groups_of(logits.size(0), 1);
    launch.threads = 32;
    run(launch, sizes);
  }

  void apply_experts(const ExpertMatrices& experts, const Tensor& input, const Routes& routes,
                     ExpertBuffers& buffers, Tensor& out) override {
    expert_linear(experts.gate_up, input, routes, buffers.gate_up);
    gated_activation(buffers.gate_up, experts.activation, buffers.gated);
    expert_linear(experts.down, buffers.gated, routes, buffers.outputs);
    elements("expert_sum", {plain(buffers.outputs), plain(routes.weights), plain(out)}, out.numel(),
             mps::ExpertSumSizes{int_of(out.size(0)), int_of(routes.experts.size(1)),
                                 int_of(out.size(1))},
             "experts");
  }

  void cut_gate(Tensor& gate_up, double deviations) override {
    KernelLaunch launch = row_launch("per_layer_inputs", "cut_gate", gate_up.size(0));
    launch.arrays = {plain(gate_up)};
    run(launch, mps::CutSizes{int_of(gate_up.size(1) / 2), static_cast<float>(deviations)});
  }

  void altup_route(const Tensor& input, const AltUpRouter& router, Tensor& out) override {
    KernelLaunch launch = row_launch("altup", "altup_route", input.size(0));
    launch.arrays = {plain(input), plain(router.weight), plain(router.norm), plain(out)};
    run(launch, mps::StreamSizes{int_of(out.size(1)), int_of(input.size(0)), int_of(input.size(1)),
                                 0, static_cast<float>(router.eps)});
  }

  void altup_predict(const Tensor& streams, const Tensor& routes, const Tensor& coefficients,
                     Tensor& out) override {
    mix_streams("altup_predict", streams, 0,
                {plain(streams), plain(routes), plain(coefficients), plain(out)});
  }

  void altup_correct(const Tensor& activated, const Tensor& routes, const Tensor& coefficients,
                     int64_t active, Tensor& streams) override {
    mix_streams("altup_correct", streams, active,
                {plain(activated), plain(routes), plain(coefficients), plain(streams)});
  }

  void match_rms(const Tensor& like, Tensor& values) override {
    KernelLaunch launch = row_launch("altup", "match_rms", values.size(0));
    launch.arrays = {plain(like), plain(values)};
    run(launch, mps::StreamSizes{1, int_of(values.size(0)), int_of(values.size(1)), 0, 0.0F});
  }

  void mean_stream(const Tensor& streams, Tensor& out) override {
    elements("mean_stream", {plain(streams), plain(out)}, out.numel(),
             mps::StreamSizes{int_of(streams.size(0)), 1, int_of(out.numel()), 0, 0.0F}, "altup");
  }

  bool finds_best() const override { return true; }
  void find_best(const Tensor& logits, Tensor& found) override {
    const int64_t rows = logits.size(0);
    KernelLaunch launch = row_launch("argmax", "argmax", rows);
    launch.arrays = {plain(logits), {found}, {found, rows}};
    launch.group_bytes *= 3;
    run(launch, mps::ArgmaxSizes{int_of(logits.size(1))});
  }

 private:
  static KernelLaunch launch_of(const char* source, const char* kernel, const char* format) {
    KernelLaunch launch;
    launch.source = source;
    launch.kernel = std::string(kernel) + format;
    return launch;
  }

  /// Of a kernel whose groups take a row each.
  static KernelLaunch row_launch(const char* source, const char* kernel, int64_t rows) {
    KernelLaunch launch = launch_of(source, kernel, "");
    launch.groups[0] = groups_of(rows, 1);
    launch.threads = mps::kRowThreads;
    launch.group_bytes = reduction_bytes(1, mps::kRowThreads);
    return launch;
  }

  template <class Sizes>
  void run(KernelLaunch& launch, const Sizes& sizes) const {
    if (launch.groups[0] == 0 || launch.groups[1] == 0 || launch.groups[2] == 0) {
      return;
    }
    launch.sizes = &sizes;
    launch.sizes_bytes = sizeof(Sizes);
    queue_->run(launch);
  }

  /// Runs a kernel whose threads take an element each.
  template <class Sizes>
  void elements(const char* kernel, std::vector<KernelArray> arrays, int64_t count,
                const Sizes& sizes, const char* source = "elementwise") const {
    KernelLaunch launch = launch_of(source, kernel, "");
    launch.arrays = std::move(arrays);
    launch.groups[0] = groups_of(count, mps::kElementThreads);
    launch.threads = mps::kElementThreads;
    run(launch, sizes);
  }

  /// A tensor as kernels read it.
  KernelArray plain(const Tensor& tensor) const {
    SPECDEC_CHECK(tensor.defined() && tensor.scalar_type() == at::kFloat &&
                      tensor.is_contiguous() && tensor.device().type() == device_.type(),
                  "Metal: an operand is not contiguous float32 on {}", device_.str());
    return {tensor};
  }

  static void check_rows(const Linear& weight, const Linear::Part& part) {
    SPECDEC_CHECK(weight.layout() == WeightLayout::kRows && !part.in_fragments,
                  "Metal: a weight that is not in rows");
    if (weight.activations() != ActivationFormat::kFloat32) {
      throw Error(
          "int8 activations run on the CPU only; leave activations out, or use device: cpu");
    }
  }

  static void check_attention(const Tensor& queries, const KvView& view) {
    SPECDEC_CHECK(view.tables->longest > 0, "Metal: tables that do not say how long rows are");
    if (view.head_dim() > mps::kMaxHeadDim || queries.size(1) % view.kv_heads() != 0) {
      throw Error(
          fmt::format("Metal: attention takes heads of up to {} numbers, not {}; use "
                      "device: cpu",
                      static_cast<int>(mps::kMaxHeadDim), view.head_dim()));
    }
  }

  void multiply(const Linear& weight, const Linear::Part& part, const Tensor& input,
                Tensor& out) const {
    const int64_t rows = input.size(0);
    const int64_t tile = rows == 1 ? 1 : mps::kProductRows;
    const mps::LinearSizes sizes = {int_of(rows), int_of(weight.in()), int_of(part.out),
                                    int_of(weight.out()), weight.bias().defined() ? 1 : 0};
    KernelLaunch launch =
        launch_of("linear", rows == 1 ? "linear_one_" : "linear_", metal_format(part.format));
    (void)plain(out);
    launch.arrays = {{part.packed}, {weight.bias(), part.first}, plain(input), {out, part.first}};
    launch.groups = {groups_of(part.out, mps::kProductOutputs), groups_of(rows, tile), 1};
    launch.threads = mps::kProductThreads;
    launch.group_bytes = product_bytes(tile);
    run(launch, sizes);
  }

  void norm(const Tensor& input, const Tensor& scale, double eps, bool add, Tensor& out) const {
    KernelLaunch launch = row_launch("norm", "rms_norm", count_of_rows(input));
    launch.arrays = {plain(input), plain(scale), plain(out)};
    run(launch, mps::NormSizes{int_of(input.size(-1)), static_cast<float>(eps), add ? 1 : 0});
  }

  /// To columns of out.tensor [any, any] from out.first on; where there is no such, to all of it.
  void copy_rows(const Tensor& input, const Tensor& scale, double factor,
                 const KernelArray& out) const {
    (void)plain(out.tensor);
    elements("copy_rows", {plain(input), {scale}, out}, input.numel(),
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
                                    int_of(std::ssize(experts)), int_of(pairs / input.size(0))};
    KernelLaunch launch = launch_of("experts", "expert_linear_", metal_format(first.format));
    launch.arrays = {{first.packed}, {routes.experts}, plain(input), plain(out)};
    launch.groups = {groups_of(first.out, mps::kProductOutputs), groups_of(pairs, 1), 1};
    launch.threads = mps::kProductThreads;
    launch.group_bytes = product_bytes(1);
    run(launch, sizes);
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
    run(launch, mps::StreamSizes{int_of(count), int_of(streams.size(1)), int_of(streams.size(2)),
                                 int_of(active), 0.0F});
  }

  /// Memory that grows, to at least twice its size.
  Tensor reserve(int64_t numbers) {
    if (!workspace_.defined() || workspace_.numel() < numbers) {
      const int64_t twice = workspace_.defined() ? 2 * workspace_.numel() : 0;
      workspace_ = Tensor();  // before the new one is taken
      workspace_ =
          at::empty({std::max(numbers, twice)}, at::TensorOptions(at::kFloat).device(device_));
    }
    return workspace_;
  }

  at::Device device_;
  std::unique_ptr<mps::KernelQueue> queue_;
  Tensor workspace_;
};

}  // namespace

std::shared_ptr<Ops> metal_ops(at::Device device, std::unique_ptr<mps::KernelQueue> queue) {
  return std::make_shared<MetalOps>(device, std::move(queue));
}

}  // namespace specdec
