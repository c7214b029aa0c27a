#include "bench/cuda/attention_runs.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "core/kernels/cuda/kernels.h"

namespace specdec::cuda {
namespace {

constexpr int32_t kPageSize = 64;

/// A forward's tables on the device; see BatchTables.
struct Tables {
  DeviceArray rows, slots, positions, path_starts, paths, lengths, page_table;
  int32_t page_stride;
  int32_t last_position;
};

int32_t pages_of(const AttentionSize& size) {
  return (size.context + size.nodes + kPageSize - 1) / kPageSize;
}

Tables make_tables(const AttentionSize& size) {
  const auto nodes = static_cast<size_t>(size.nodes);
  std::vector<int32_t> slots(nodes);
  std::vector<int32_t> positions(nodes);
  std::vector<int32_t> starts(nodes, -1);
  std::vector<int32_t> paths = {0};
  for (int32_t node = 0; node < size.nodes; ++node) {
    std::vector<int32_t> path;  // itself first
    for (int32_t n = node; n >= 0; n = size.tree ? (n + 1) / 2 - 1 : n - 1) {
      path.push_back(size.context + n);
    }
    const auto i = static_cast<size_t>(node);
    slots[i] = size.context + node;
    positions[i] = size.context + static_cast<int32_t>(path.size()) - 1;
    if (size.tree) {
      starts[i] = static_cast<int32_t>(paths.size());
      paths.insert(paths.end(), path.rbegin(), path.rend());
    }
  }
  std::vector<int32_t> pages(static_cast<size_t>(pages_of(size)));
  std::iota(pages.begin(), pages.end(), 0);
  std::shuffle(pages.begin(), pages.end(), std::mt19937(3));
  return {DeviceArray::of(std::vector<int32_t>(nodes, 0)),
          DeviceArray::of(slots),
          DeviceArray::of(positions),
          DeviceArray::of(starts),
          DeviceArray::of(paths),
          DeviceArray::of(std::vector<int32_t>{size.context}),
          DeviceArray::of(pages),
          pages_of(size),
          *std::max_element(positions.begin(), positions.end())};
}

/// Random numbers, float32 or bfloat16.
std::vector<std::byte> random_numbers(bool bfloat16) {
  constexpr size_t kCount = size_t{1} << 18U;
  const size_t each = bfloat16 ? 2 : 4;
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  std::vector<std::byte> bytes(kCount * each);
  for (size_t i = 0; i < kCount; ++i) {
    const float number = normal(random);
    std::memcpy(&bytes[i * each], reinterpret_cast<const std::byte*>(&number) + 4 - each, each);
  }
  return bytes;
}

PagedCache cache_of(const AttentionSize& size, const Tables& tables) {
  PagedCache cache{};
  cache.bfloat16 = size.bfloat16;
  cache.kv_heads = size.kv_heads;
  cache.head_dim = size.head_dim;
  cache.page_size = kPageSize;
  cache.window = size.window;
  cache.page_stride = tables.page_stride;
  cache.rows = tables.rows.data<int32_t>();
  cache.slots = tables.slots.data<int32_t>();
  cache.positions = tables.positions.data<int32_t>();
  cache.path_starts = tables.path_starts.data<int32_t>();
  cache.paths = tables.paths.data<int32_t>();
  cache.lengths = tables.lengths.data<int32_t>();
  cache.page_table = tables.page_table.data<int32_t>();
  return cache;
}

size_t token_bytes(const AttentionSize& size) {  // of keys, and of values
  return static_cast<size_t>(size.kv_heads) * static_cast<size_t>(size.head_dim) *
         (size.bfloat16 ? 2 : 4);
}

}  // namespace

size_t cache_bytes_of(const AttentionSize& size) {
  return 2 * token_bytes(size) * static_cast<size_t>(pages_of(size)) * kPageSize;
}

PreparedAttention prepare_attention(const AttentionSize& size, int copies) {
  const size_t half = cache_bytes_of(size) / 2;
  const DeviceArray pages(2 * half * static_cast<size_t>(copies));
  pages.tile(random_numbers(size.bfloat16));
  const size_t numbers = static_cast<size_t>(size.nodes) * static_cast<size_t>(size.heads) *
                         static_cast<size_t>(size.head_dim);
  const DeviceArray queries(numbers * sizeof(float));
  queries.tile(random_numbers(false));
  const DeviceArray out(numbers * sizeof(float));
  out.tile(std::vector<std::byte>(4096, std::byte{0xFF}));  // NaN
  const Tables tables = make_tables(size);
  PagedAttentionTask task{};
  task.queries = queries.data<float>();
  task.out = out.data<float>();
  task.cache = cache_of(size, tables);
  task.nodes = size.nodes;
  task.heads = size.heads;
  task.chunks = tables.last_position / kCudaAttentionChunk + 1;
  task.scale = 0.0625F;
  const DeviceArray workspace(sizeof(float) *
                              static_cast<size_t>(specdec_cuda_attention_workspace(&task)));
  task.workspace = workspace.data<float>();
  const int32_t seen = size.window > 0 ? std::min(size.window, size.context + size.nodes)
                                       : size.context + size.nodes;
  return {2 * token_bytes(size) * static_cast<size_t>(seen), 2 * half, out,
          [=](int copy, void* stream) {
            (void)queries;  // kept, as the tables and the workspace are
            (void)tables;
            (void)workspace;
            PagedAttentionTask one = task;
            one.cache.keys = pages.data() + 2 * half * static_cast<size_t>(copy);
            one.cache.values = pages.data() + 2 * half * static_cast<size_t>(copy) + half;
            check(specdec_cuda_paged_attention(&one, stream), "specdec_cuda_paged_attention");
          }};
}

}  // namespace specdec::cuda
