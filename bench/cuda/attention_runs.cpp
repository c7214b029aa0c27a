#include "bench/cuda/attention_runs.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

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

/// Elements of a key or value of a head, and bytes of one.
struct KvElement {
  int32_t width;
  size_t bytes;
};

KvElement element_of(KvFormat format, int32_t head_dim) {
  const int32_t scale_bytes = 2 * ((head_dim + 31) / 32);
  switch (format) {
    case KvFormat::kNative:
      return {head_dim, 4};
    case KvFormat::kBFloat16:
    case KvFormat::kFloat16:
      return {head_dim, 2};
    case KvFormat::kFp8E4m3:
      break;
    case KvFormat::kQ8:
    case KvFormat::kHierarchical:
      return {head_dim + scale_bytes, 1};
    case KvFormat::kQ4:
      return {head_dim / 2 + scale_bytes, 1};
    case KvFormat::kQ3:
      return {head_dim / 8 * 3 + scale_bytes, 1};
    case KvFormat::kKivi2:
      return {head_dim / 4 + 2 * scale_bytes, 1};
    case KvFormat::kKivi4:
      return {head_dim / 2 + 2 * scale_bytes, 1};
  }
  return {head_dim, 1};
}

/// Random numbers in a format. Those narrower than bfloat16 are bytes that are small numbers as
/// halves, scales and eight bits alike.
std::vector<std::byte> random_numbers(KvFormat format) {
  constexpr size_t kCount = size_t{1} << 18U;
  std::mt19937 random(4);
  if (format != KvFormat::kNative && format != KvFormat::kBFloat16) {
    std::vector<std::byte> bytes(2 * kCount);
    for (std::byte& byte : bytes) {
      byte = static_cast<std::byte>((random() & 0x8FU) | 0x20U);
    }
    return bytes;
  }
  const size_t each = element_of(format, 1).bytes;
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
  cache.format = size.format;
  cache.kv_heads = size.kv_heads;
  cache.head_dim = size.head_dim;
  cache.width = element_of(size.format, size.head_dim).width;
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

/// Bytes of a token's keys, or values.
size_t token_bytes(const AttentionSize& size, KvFormat format) {
  const KvElement element = element_of(format, size.head_dim);
  return static_cast<size_t>(size.kv_heads) * static_cast<size_t>(element.width) * element.bytes;
}

/// Last tokens that are read as they are beside a format with groups of keys.
constexpr int32_t kRecent = 128;
constexpr int32_t kGroup = 32;

bool has_groups(KvFormat format) {
  return format == KvFormat::kKivi2 || format == KvFormat::kKivi4;
}

size_t page_half(const AttentionSize& size, KvFormat format) {
  return token_bytes(size, format) * static_cast<size_t>(pages_of(size)) * kPageSize;
}

/// Bytes of keys and values that the last node reads.
size_t bytes_seen(const AttentionSize& size) {
  const int32_t length = size.context + size.nodes;
  const int32_t seen = size.window > 0 ? std::min(size.window, length) : length;
  int32_t exact = 0;
  if (has_groups(size.format)) {
    const int32_t first = std::max(0, length - kRecent) / kGroup * kGroup;
    exact = std::min(seen, length - first);
  }
  return 2 * (token_bytes(size, size.format) * static_cast<size_t>(seen - exact) +
              token_bytes(size, KvFormat::kNative) * static_cast<size_t>(exact));
}

}  // namespace

size_t cache_bytes_of(const AttentionSize& size) { return 2 * page_half(size, size.format); }

/// Gives a task of a format with groups of keys recent ones, in one copy: the format's are many.
static DeviceArray add_exact_pages(const AttentionSize& size, PagedAttentionTask& task) {
  const bool grouped = has_groups(size.format);
  const size_t half = grouped ? page_half(size, KvFormat::kNative) : sizeof(float);
  const DeviceArray pages(2 * half);
  if (grouped) {
    pages.tile(random_numbers(KvFormat::kNative));
    task.cache.exact = {pages.data<float>(), pages.data<float>() + half / sizeof(float),
                        task.cache.page_table, kRecent, kGroup};
    task.exact_chunks =
        std::min(task.chunks, (kRecent - 2) / kCudaAttentionChunk + 2);  // they begin anywhere
    task.chunks = size.window > 0 && size.window <= kRecent ? 0 : task.chunks;
  }
  return pages;
}

DeviceArray round_equal_keys(KvFormat format) {
  constexpr int32_t kHeads = 2;
  constexpr int32_t kDim = 64;
  const int32_t width = element_of(format, kDim).width;
  const DeviceArray keys(static_cast<size_t>(kHeads) * static_cast<size_t>(width) * kGroup);
  keys.tile(std::vector<std::byte>(4096, std::byte{0xFF}));  // NaN
  const auto exact =
      DeviceArray::of(std::vector<float>(static_cast<size_t>(kHeads) * kDim * kGroup, 1.0F));
  const auto first = DeviceArray::of(std::vector<int32_t>{0});
  const auto last = DeviceArray::of(std::vector<int32_t>{kGroup - 1});
  const auto chain = DeviceArray::of(std::vector<int32_t>{-1});
  RoundKeysTask task{};
  task.nodes = 1;
  task.cache.keys = keys.data();
  task.cache.format = format;
  task.cache.kv_heads = kHeads;
  task.cache.head_dim = kDim;
  task.cache.page_size = kGroup;
  task.cache.width = width;
  task.cache.page_stride = 1;
  task.cache.rows = first.data<int32_t>();
  task.cache.slots = last.data<int32_t>();
  task.cache.positions = last.data<int32_t>();
  task.cache.path_starts = chain.data<int32_t>();
  task.cache.page_table = first.data<int32_t>();
  task.cache.exact = {exact.data<float>(), nullptr, first.data<int32_t>(), kGroup, kGroup};
  check(specdec_cuda_round_keys(&task, nullptr), "specdec_cuda_round_keys");
  check(cudaDeviceSynchronize(), "specdec_cuda_round_keys");  // while the arrays are there
  return keys;
}

PreparedAttention prepare_attention(const AttentionSize& size, int copies) {
  const size_t half = cache_bytes_of(size) / 2;
  const DeviceArray pages(2 * half * static_cast<size_t>(copies));
  pages.tile(random_numbers(size.format));
  const size_t numbers = static_cast<size_t>(size.nodes) * static_cast<size_t>(size.heads) *
                         static_cast<size_t>(size.head_dim);
  const DeviceArray queries(numbers * sizeof(float));
  queries.tile(random_numbers(KvFormat::kNative));
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
  const DeviceArray exact = add_exact_pages(size, task);
  const DeviceArray workspace(sizeof(float) *
                              static_cast<size_t>(specdec_cuda_attention_workspace(&task)));
  task.workspace = workspace.data<float>();
  return {bytes_seen(size), 2 * half, out, [=](int copy, void* stream) {
            (void)queries;  // kept, as the tables, the workspace and exact pages are
            (void)tables;
            (void)workspace;
            (void)exact;
            PagedAttentionTask one = task;
            one.cache.keys = pages.data() + 2 * half * static_cast<size_t>(copy);
            one.cache.values = pages.data() + 2 * half * static_cast<size_t>(copy) + half;
            check(specdec_cuda_paged_attention(&one, stream), "specdec_cuda_paged_attention");
          }};
}

}  // namespace specdec::cuda
