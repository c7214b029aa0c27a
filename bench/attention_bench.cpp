// Attention over the paged cache, 4 query heads on 1 kv head of 64, on one thread: a chain of new
// tokens at several context lengths, and a prefill; beside it ATen's attention on contiguous keys
// with a mask.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>

#include <algorithm>
#include <memory>
#include <numeric>

#include "core/kernels/attention.h"
#include "core/kernels/qkv.h"
#include "kv/kv_cache.h"
#include "kv/paged_kv.h"

namespace specdec {
namespace {

constexpr int64_t kHeads = 4;
constexpr int64_t kHeadDim = 64;
constexpr int64_t kMaxLength = 8192;

/// New nodes with random keys and values.
void fill(KvCache& cache, int64_t nodes) {
  cache.extend({.count = nodes});
  QkvOptions options;
  options.heads = kHeads;
  options.cos = at::ones({kMaxLength, kHeadDim / 2});
  options.sin = at::zeros({kMaxLength, kHeadDim / 2});
  Tensor queries = at::empty({nodes, kHeads, kHeadDim});
  qkv_to_cache(at::randn({nodes, (kHeads + 2) * kHeadDim}), options, cache.view(0), queries);
}

std::unique_ptr<KvCache> filled_cache(int64_t context, int64_t nodes, KvFormat format,
                                      int64_t exact_recent) {
  auto cache = std::make_unique<KvCache>(
      std::vector<LayerKv>{{1, kHeadDim, 0, -1}},
      KvCacheOptions{.dtype = at::kFloat,
                     .format = format,
                     .device = at::kCPU,
                     .page_size = std::max(kDefaultPageSize, kv_key_group(format)),
                     .max_length = kMaxLength,
                     .exact_recent = exact_recent});
  std::vector<int64_t> path(static_cast<size_t>(context));
  std::iota(path.begin(), path.end(), 0);
  if (context > 0) {
    fill(*cache, context);
    cache->commit(0, path);
  }
  fill(*cache, nodes);
  return cache;
}

void paged_attention_bench(benchmark::State& state, KvFormat format, KvRead read = KvRead::kAll,
                           int64_t exact_recent = 0) {
  at::set_num_threads(1);
  const int64_t nodes = state.range(1);
  const auto cache = filled_cache(state.range(0), nodes, format, exact_recent);
  const Tensor queries = at::randn({nodes, kHeads, kHeadDim});
  Tensor out = at::empty_like(queries);
  KvView view = cache->view(0);
  view.read = read;
  for ([[maybe_unused]] auto _ : state) {
    paged_attention(queries, view, {0.125, 0.0, {}}, out);
  }
}

void at_attention_bench(benchmark::State& state) {
  at::set_num_threads(1);
  const int64_t context = state.range(0);
  const int64_t nodes = state.range(1);
  const Tensor queries = at::randn({1, kHeads, nodes, kHeadDim});
  const Tensor keys = at::randn({1, 1, context + nodes, kHeadDim}).expand({1, kHeads, -1, -1});
  const Tensor values = at::randn({1, 1, context + nodes, kHeadDim}).expand({1, kHeads, -1, -1});
  const Tensor mask = at::ones({nodes, context + nodes}, at::kBool).tril(context);
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(
        at::scaled_dot_product_attention(queries, keys, values, mask, 0.0, false, 0.125));
  }
}

void shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"context", "n"})->ArgsProduct({{128, 1000, 4000, 8000}, {1, 4, 8, 16}});
  bench->Args({0, 512});  // a prefill
}

BENCHMARK_CAPTURE(paged_attention_bench, float32, KvFormat::kNative)->Apply(shapes);
BENCHMARK_CAPTURE(paged_attention_bench, bfloat16, KvFormat::kBFloat16)->Apply(shapes);
BENCHMARK_CAPTURE(paged_attention_bench, float16, KvFormat::kFloat16)->Apply(shapes);
BENCHMARK_CAPTURE(paged_attention_bench, fp8_e4m3, KvFormat::kFp8E4m3)->Apply(shapes);
BENCHMARK_CAPTURE(paged_attention_bench, q8, KvFormat::kQ8)->Apply(shapes);
BENCHMARK_CAPTURE(paged_attention_bench, q4, KvFormat::kQ4)->Apply(shapes);
BENCHMARK_CAPTURE(paged_attention_bench, q4_exact_recent_128, KvFormat::kQ4, KvRead::kAll, 128)
    ->Apply(shapes);
BENCHMARK_CAPTURE(paged_attention_bench, q3, KvFormat::kQ3)->Apply(shapes);
BENCHMARK_CAPTURE(paged_attention_bench, kivi2, KvFormat::kKivi2, KvRead::kAll, kGroupedRecent)
    ->Apply(shapes);
BENCHMARK_CAPTURE(paged_attention_bench, kivi4, KvFormat::kKivi4, KvRead::kAll, kGroupedRecent)
    ->Apply(shapes);
BENCHMARK_CAPTURE(paged_attention_bench, hierarchical, KvFormat::kHierarchical)->Apply(shapes);
BENCHMARK_CAPTURE(paged_attention_bench, upper_half, KvFormat::kHierarchical, KvRead::kUpperHalf)
    ->Apply(shapes);
BENCHMARK(at_attention_bench)->Apply(shapes);

}  // namespace
}  // namespace specdec

BENCHMARK_MAIN();
