// What the cache costs a decoding step beside the kernels: extend and commit of the shape
// (6 layers of 1 kv head of 64).
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>

#include <memory>
#include <numeric>

#include "kv/kv_cache.h"

namespace specdec {
namespace {

std::unique_ptr<KvCache> prefilled(int64_t context) {
  auto cache = std::make_unique<KvCache>(
      std::vector<LayerKv>(6, LayerKv{1, 64, 0, -1}),
      KvCacheOptions{
          .dtype = at::kFloat, .device = at::kCPU, .page_size = 16, .max_length = 16384});
  std::vector<int64_t> path(static_cast<size_t>(context));
  std::iota(path.begin(), path.end(), 0);
  cache->extend({.count = context});
  cache->commit(0, path);
  return cache;
}

void extend_commit_bench(benchmark::State& state) {
  const int64_t context = state.range(0);
  const int64_t nodes = state.range(1);
  at::set_num_threads(1);
  const auto cache = prefilled(context);
  const NewNodes batch{.count = nodes};
  std::vector<int64_t> path(static_cast<size_t>(nodes));
  std::iota(path.begin(), path.end(), 0);
  const auto step = [&] {
    cache->extend(batch);
    cache->commit(0, path);
    cache->truncate(0, context);
  };
  step();  // the pools may grow here, once
  for ([[maybe_unused]] auto _ : state) {
    step();
  }
}

void commit_sparse_path_bench(benchmark::State& state) {
  at::set_num_threads(1);
  const auto cache = prefilled(500);
  std::vector<int64_t> parents{-1};
  for (int64_t i = 1; i < 16; ++i) {
    parents.push_back((i - 1) / 2);
  }
  const std::vector<int64_t> path = {0, 2, 6, 14};
  const auto step = [&] {
    cache->extend({.count = 16, .parents = parents});
    cache->commit(0, path);
    cache->truncate(0, 500);
  };
  step();
  for ([[maybe_unused]] auto _ : state) {
    step();
  }
}

BENCHMARK(extend_commit_bench)
    ->ArgNames({"context", "n"})
    ->ArgsProduct({{128, 512, 8192}, {1, 8, 32}});
BENCHMARK(commit_sparse_path_bench);

}  // namespace
}  // namespace specdec

BENCHMARK_MAIN();
