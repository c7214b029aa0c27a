// The matrix products of the shipped target's shape, ours against at::linear, on one thread.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>

#include <atomic>
#include <numeric>
#include <vector>

#include "core/kernels/linear_product.h"
#include "core/kernels/team.h"

namespace specdec {
namespace {

/// How many matrices are as large as the weights of many layers, so that they come from as far away
/// as in a forward.
int64_t matrices(int64_t bytes_of_one) {
  constexpr int64_t kBytes = 14'000'000;
  return kBytes / bytes_of_one + 1;
}

void report(benchmark::State& state, int64_t out, int64_t in, int64_t nodes) {
  state.counters["GFLOP/s"] = benchmark::Counter(static_cast<double>(2 * out * in * nodes),
                                                 benchmark::Counter::kIsIterationInvariantRate);
  state.counters["GFLOP/s"].value /= 1e9;
}

/// Formats that nothing is converted to get rows of equal bytes.
Linear make_linear(int64_t out, int64_t in, WeightFormat format) {
  if (!is_in_blocks(format) || format == WeightFormat::kInt8) {
    return {at::randn({out, in}), format};
  }
  Linear linear(out, in, format, Placement{});
  const std::vector<std::byte> row(static_cast<size_t>(linear.bytes() / out), std::byte{0x2B});
  for (int64_t i = 0; i < out; ++i) {
    linear.set_stored_row(i, row.data());
  }
  return linear;
}

void linear_bench(benchmark::State& state, WeightFormat format,
                  ActivationFormat activations = ActivationFormat::kFloat32) {
  at::set_num_threads(1);
  const int64_t in = state.range(0);
  const int64_t out = state.range(1);
  const int64_t nodes = state.range(2);
  std::vector<Linear> all;
  do {
    all.push_back(make_linear(out, in, format));
    all.back().set_activations(activations);
  } while (std::ssize(all) < matrices(all.front().bytes()));
  const Tensor input = at::randn({nodes, in});
  Tensor result = at::empty({nodes, out});
  size_t next = 0;
  for ([[maybe_unused]] auto _ : state) {
    linear_product(all[next], input, result);
    next = (next + 1) % all.size();
  }
  report(state, out, in, nodes);
}

void at_linear_bench(benchmark::State& state) {
  at::set_num_threads(1);
  const int64_t in = state.range(0);
  const int64_t out = state.range(1);
  const int64_t nodes = state.range(2);
  std::vector<Tensor> all;
  for (int64_t i = 0; i < matrices(4 * out * in); ++i) {
    all.push_back(at::randn({out, in}));
  }
  const Tensor input = at::randn({nodes, in});
  Tensor result = at::empty({nodes, out});
  size_t next = 0;
  for ([[maybe_unused]] auto _ : state) {
    at::mm_out(result, input, all[next].t());
    next = (next + 1) % all.size();
  }
  report(state, out, in, nodes);
}

void shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"in", "out", "n"});
  for (const auto& [in, out] :
       {std::pair{192, 384}, {256, 192}, {192, 1536}, {768, 192}, {192, 2048}}) {
    for (const int64_t nodes : {1, 2, 4, 8, 16, 32, 64, 256}) {
      bench->Args({in, out, nodes});
    }
  }
}

void stored_bench(benchmark::State& state) {
  const auto format = static_cast<WeightFormat>(state.range(3));
  linear_bench(state, format, static_cast<ActivationFormat>(state.range(4)));
  state.SetLabel(format_name(format));
}

/// All formats in blocks with the activations that they take; rows of whole blocks of all.
void stored_shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"in", "out", "n", "format", "int8"});
  for (auto format = WeightFormat::kInt8; format <= kLastFormat;
       format = static_cast<WeightFormat>(static_cast<int>(format) + 1)) {
    for (const int64_t nodes : {1, 2, 4, 8, 16, 64}) {
      bench->Args({768, 1536, nodes, static_cast<int64_t>(format), 0});
      if (has_integer_blocks(format)) {
        bench->Args({768, 1536, nodes, static_cast<int64_t>(format), 1});
      }
    }
  }
}

/// What products with one row cannot be faster than: reading as many bytes as a model has.
void read_memory(benchmark::State& state) {
  const int64_t bytes = state.range(0) * 1'000'000;
  at::set_num_threads(static_cast<int>(state.range(1)));
  const std::vector<uint64_t> memory(static_cast<size_t>(bytes) / sizeof(uint64_t), 1);
  constexpr int64_t kTile = 1 << 16;  // words
  const auto words = static_cast<int64_t>(memory.size());
  std::atomic<uint64_t> total = 0;
  for ([[maybe_unused]] auto _ : state) {
    parallel_tiles((words + kTile - 1) / kTile, 1, [&](int64_t begin, int64_t end) {
      const auto first = memory.begin() + begin * kTile;
      const auto last = memory.begin() + std::min(end * kTile, words);
      total += std::accumulate(first, last, uint64_t{0});
    });
  }
  benchmark::DoNotOptimize(total.load());
  state.SetBytesProcessed(bytes * static_cast<int64_t>(state.iterations()));
}

BENCHMARK(read_memory)
    ->ArgNames({"megabytes", "threads"})
    ->ArgsProduct({{15, 140, 540}, {1, 2}})
    ->UseRealTime();
BENCHMARK_CAPTURE(linear_bench, float32, WeightFormat::kFloat32)->Apply(shapes);
BENCHMARK_CAPTURE(linear_bench, bfloat16, WeightFormat::kBFloat16)->Apply(shapes);
BENCHMARK_CAPTURE(linear_bench, int8, WeightFormat::kInt8)->Apply(shapes);
BENCHMARK_CAPTURE(linear_bench, int8_activations, WeightFormat::kInt8, ActivationFormat::kInt8)
    ->Apply(shapes);
BENCHMARK(stored_bench)->Apply(stored_shapes);
BENCHMARK(at_linear_bench)->Apply(shapes);

}  // namespace
}  // namespace specdec

BENCHMARK_MAIN();
