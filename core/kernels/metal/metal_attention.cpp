#include "core/kernels/metal/metal_attention.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "core/error.h"
#include "core/kernels/metal/metal_formats.h"

namespace specdec::mps {
namespace {

CacheSizes cache_sizes(const KvView& view) {
  SPECDEC_CHECK(view.sink == 0 && view.pooled == nullptr, "Metal: a cache with a sink or means");
  return {int_of(view.kv_heads()),
          int_of(view.head_dim()),
          int_of(view.page_size()),
          int_of(view.window),
          int_of(view.page_stride()),
          int_of(view.values.size(3)),
          view.rotation == KvRotation::kHadamard ? 1 : 0};
}

KernelArray page_table_of(const KvView& view) {
  return {view.tables->page_tables, view.page_offset()};
}

/// What the kernels that write a view's pages are called.
const char* page_format(const KvView& view) {
  SPECDEC_CHECK(metal_has(view.format), "Metal: a cache in {}", kv_format_name(view.format));
  return kv_format_name(view.format);
}

/// What the kernels that read a view's pages are called: upper halves and the scales lie as codes
/// of q4 do.
const char* read_format(const KvView& view) {
  return view.read == KvRead::kUpperHalf ? kv_format_name(KvFormat::kQ4) : page_format(view);
}

void check_attention(const Tensor& queries, const KvView& view) {
  SPECDEC_CHECK(view.tables->longest > 0, "Metal: tables that do not say how long rows are");
  if (view.head_dim() > kMaxHeadDim || queries.size(1) % view.kv_heads() != 0) {
    throw Error(
        fmt::format("Metal: attention takes heads of up to {} numbers, not {}; use device: cpu",
                    static_cast<int>(kMaxHeadDim), view.head_dim()));
  }
}

/// Memory of a head's numbers.
uint32_t head_bytes(int32_t head_dim) {
  return static_cast<uint32_t>(head_dim) * static_cast<uint32_t>(sizeof(float));
}

/// Memory of a group of attention's first kernel.
uint32_t chunk_bytes(int32_t head_dim) {
  return head_bytes(head_dim + 2 * kChunkPositions) + reduction_bytes(1, kChunkPositions);
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
  launch.group_bytes = head_bytes(sizes.cache.head_dim) + reduction_bytes(1, kHeadThreads);
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
  KernelLaunch launch = launch_of("attention", "attention_chunk_", read_format(view));
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
  join.group_bytes = head_bytes(sizes.cache.head_dim);
  metal.run(join, sizes);
}

}  // namespace specdec::mps
