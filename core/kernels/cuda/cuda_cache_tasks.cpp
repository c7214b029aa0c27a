#include "core/kernels/cuda/cuda_cache_tasks.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/kernels/cuda/cuda_arguments.h"
#include "core/kernels/pooled_keys.h"

namespace specdec::cuda {
namespace {

/// Pages and tables of a layer for attention, which may read upper halves alone.
PagedCache cache_to_read(const KvView& view) {
  PagedCache cache = paged_cache(view);
  if (view.read == KvRead::kUpperHalf) {
    SPECDEC_CHECK(view.format == KvFormat::kHierarchical, "CUDA: upper halves of a cache in {}",
                  kv_format_name(view.format));
    cache.format = KvFormat::kQ4;  // they and the scales lie as its codes do
  }
  return cache;
}

/// Means of a layer; empty where `view` has none.
PooledCache pooled_cache(const KvView& view) {
  PooledCache cache{};
  if (view.pooled == nullptr || view.pooled->columns() == 0) {
    return cache;
  }
  const PooledKeys& means = *view.pooled;
  Tensor made = means.made();
  Tensor keys = means.keys();
  Tensor values = means.values();
  cache.keys = floats_of(keys);
  cache.values = floats_of(values);
  cache.made = made.mutable_data_ptr<int32_t>();
  cache.columns = narrow(means.columns());
  cache.own_first = narrow(means.own_column(0));
  cache.own_each = narrow(means.own_columns());
  cache.chunk = narrow(means.pooling().chunk);
  cache.recent = narrow(means.pooling().recent);
  cache.log_chunk = std::log(static_cast<float>(means.pooling().chunk));
  return cache;
}

}  // namespace

PagedCache paged_cache(const KvView& view) {
  const int64_t together = kv_key_group(view.format);
  SPECDEC_CHECK(view.page_size() % together == 0 && view.exact.multiple % together == 0,
                "CUDA: {} in pages of {} beside exact ones from a multiple of {}",
                kv_format_name(view.format), view.page_size(), view.exact.multiple);
  const BatchTables& tables = *view.tables;
  PagedCache cache{};
  cache.keys = view.keys.mutable_data_ptr();
  cache.values = view.values.mutable_data_ptr();
  cache.format = view.format;
  cache.hadamard = view.rotation == KvRotation::kHadamard;
  cache.kv_heads = narrow(view.kv_heads());
  cache.head_dim = narrow(view.head_dim());
  cache.page_size = narrow(view.page_size());
  cache.width = narrow(view.values.size(3));
  cache.window = narrow(view.window);
  cache.sink = narrow(view.sink);
  cache.page_stride = narrow(view.page_stride());
  cache.rows = integers(tables.rows);
  cache.slots = integers(tables.slots);
  cache.positions = integers(tables.positions);
  cache.angles = integers(tables.angles);
  cache.path_starts = integers(tables.path_starts);
  cache.paths = integers(tables.paths);
  cache.lengths = integers(tables.lengths);
  cache.page_table = view.page_table();
  cache.levels = floats_or_null(view.levels);
  if (view.exact.recent > 0) {
    Tensor keys = view.exact.keys;
    Tensor values = view.exact.values;
    cache.exact = {floats_of(keys), floats_of(values), view.exact_page_table(),
                   narrow(view.exact.recent), narrow(view.exact.multiple)};
  }
  return cache;
}

QkvToCacheTask qkv_task(const Tensor& qkv, const QkvOptions& options, const KvView& view,
                        Tensor& queries) {
  QkvToCacheTask task{};
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
  return task;
}

RoundKeysTask round_keys_task(const KvView& view) {
  return {.cache = paged_cache(view), .nodes = narrow(view.tables->nodes)};
}

PoolKeysTask pool_keys_task(const KvView& view) {
  return {.cache = paged_cache(view),
          .pooled = pooled_cache(view),
          .nodes = narrow(view.tables->nodes)};
}

PagedAttentionTask attention_task(const Tensor& queries, const KvView& view,
                                  const AttentionOptions& options, Tensor& out) {
  const int64_t positions = view.tables->longest;
  SPECDEC_CHECK(positions > 0, "CUDA: tables that do not say how long their rows are");
  const auto chunks_of = [](int64_t keys) {
    return narrow((keys + kCudaAttentionChunk - 1) / kCudaAttentionChunk);
  };
  PagedAttentionTask task{};
  task.queries = floats(queries);
  task.out = floats_of(out);
  task.cache = cache_to_read(view);
  task.nodes = narrow(view.tables->nodes);
  task.heads = narrow(queries.size(1));
  task.chunks = chunks_of(positions);
  task.pooled = pooled_cache(view);
  if (task.pooled.keys != nullptr) {
    task.mean_chunks = chunks_of(view.pooled->pooling().means_at(positions - 1));
  }
  if (task.cache.exact.recent > 0) {
    // One more than they fill, since the first may begin anywhere in its chunk, of which a group of
    // keys is a part.
    static_assert(kCudaAttentionChunk % kKeyGroup == 0);
    task.exact_chunks = std::min(task.chunks, chunks_of(task.cache.exact.recent - 1) + 1);
    const bool reads_exact_alone =
        view.window > 0 && view.window <= view.exact.recent && view.sink == 0;
    task.chunks = reads_exact_alone ? 0 : task.chunks;
  }
  task.bias = floats_or_null(options.bias);
  task.bias_columns = options.bias.defined() ? narrow(options.bias.size(1)) : 0;
  task.scale = static_cast<float>(options.scale);
  task.soft_cap = static_cast<float>(options.soft_cap);
  return task;
}

}  // namespace specdec::cuda
