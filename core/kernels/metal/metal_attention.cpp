#include "core/kernels/metal/metal_attention.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "core/error.h"

namespace specdec::mps {
namespace {

CacheSizes cache_sizes(const KvView& view) {
  SPECDEC_CHECK(view.sink == 0 && view.pooled == nullptr, "Metal: a cache with a sink or means");
  return {int_of(view.kv_heads()), int_of(view.head_dim()), int_of(view.page_size()),
          int_of(view.window), int_of(view.page_stride())};
}

KernelArray page_table_of(const KvView& view) {
  return {view.tables->page_tables, view.page_offset()};
}

/// "float32" or "bfloat16" pages.
const char* page_format(const KvView& view) {
  SPECDEC_CHECK(view.format == KvFormat::kNative || view.format == KvFormat::kBFloat16,
                "Metal: a cache in {}", kv_format_name(view.format));
  return kv_format_name(view.format);
}

void check_attention(const Tensor& queries, const KvView& view) {
  SPECDEC_CHECK(view.tables->longest > 0, "Metal: tables that do not say how long rows are");
  if (view.head_dim() > kMaxHeadDim || queries.size(1) % view.kv_heads() != 0) {
    throw Error(
        fmt::format("Metal: attention takes heads of up to {} numbers, not {}; use device: cpu",
                    static_cast<int>(kMaxHeadDim), view.head_dim()));
  }
}

/// Memory of a group of attention's first kernel.
uint32_t chunk_bytes(int32_t head_dim) {
  return static_cast<uint32_t>(head_dim + 2 * kChunkPositions) *
             static_cast<uint32_t>(sizeof(float)) +
         reduction_bytes(1, kChunkPositions);
}

}  // namespace

void qkv_to_cache(const MetalLauncher& metal, const Tensor& qkv, const QkvOptions& options,
                  const KvView& view, Tensor& queries) {
  const BatchTables& tables = *view.tables;
  QkvSizes sizes{};
  sizes.cache = cache_sizes(view);
  sizes.heads = int_of(options.heads);
  sizes.kv_projections = int_of(options.kv_projections);
  sizes.eps = static_cast<float>(options.eps);
  sizes.query_norm = options.q_scale.defined() ? 1 : 0;
  sizes.key_norm = options.k_scale.defined() ? 1 : 0;
  sizes.value_norm = options.value_norm ? 1 : 0;
  KernelLaunch launch = launch_of("qkv", "qkv_to_cache_", page_format(view));
  launch.arrays = {metal.plain(qkv),
                   {options.q_scale},
                   {options.k_scale},
                   metal.plain(options.cos),
                   metal.plain(options.sin),
                   metal.plain(queries),
                   {view.keys},
                   {view.values},
                   {tables.rows},
                   {tables.slots},
                   {tables.positions},
                   {tables.angles},
                   page_table_of(view)};
  launch.groups = {
      groups_of(options.heads + (options.kv_projections == 0 ? 0 : 2 * view.kv_heads()), 1),
      groups_of(tables.nodes, 1), 1};
  launch.threads = kHeadThreads;
  launch.group_bytes = reduction_bytes(1, kHeadThreads);
  metal.run(launch, sizes);
}

void paged_attention(MetalLauncher& metal, const Tensor& queries, const KvView& view,
                     const AttentionOptions& options, Tensor& out) {
  check_attention(queries, view);
  const BatchTables& tables = *view.tables;
  const Tensor bias =
      options.bias.defined() ? options.bias.to(queries.options()).contiguous() : Tensor();
  AttentionSizes sizes{};
  sizes.cache = cache_sizes(view);
  sizes.heads = int_of(queries.size(1));
  sizes.chunks = int_of(groups_of(tables.longest, kChunkPositions));
  sizes.bias_columns = bias.defined() ? int_of(bias.size(1)) : 0;
  sizes.scale = static_cast<float>(options.scale);
  sizes.soft_cap = static_cast<float>(options.soft_cap);
  const int64_t parts = tables.nodes * sizes.heads * sizes.chunks;
  const Tensor workspace = metal.workspace(parts * (view.head_dim() + 2));
  const KernelArray partial = {workspace, parts * view.head_dim()};
  KernelLaunch launch = launch_of("attention", "attention_chunk_", page_format(view));
  launch.arrays = {metal.plain(queries), {view.keys},
                   {view.values},        {tables.rows},
                   {tables.positions},   {tables.path_starts},
                   {tables.paths},       {tables.lengths},
                   page_table_of(view),  {bias},
                   {workspace},          partial};
  launch.groups = {groups_of(sizes.heads, 1), groups_of(tables.nodes, 1),
                   groups_of(sizes.chunks, 1)};
  launch.threads = kChunkPositions;
  launch.group_bytes = chunk_bytes(sizes.cache.head_dim);
  metal.run(launch, sizes);
  KernelLaunch join = launch_of("attention", "attention_", "join");
  join.arrays = {{tables.positions}, {workspace}, partial, metal.plain(out)};
  join.groups = {launch.groups[0], launch.groups[1], 1};
  join.threads = kChunkPositions;
  metal.run(join, sizes);
}

}  // namespace specdec::mps
