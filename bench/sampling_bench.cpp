// What a row of logits costs on its way to a token, beside the forward.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>

#include "core/sampling.h"
#include "decoders/verifiers/probs.h"

namespace specdec {
namespace {

Tensor some_logits(int64_t vocab) {
  at::set_num_threads(1);
  at::manual_seed(1);
  return at::randn({vocab}) * 3.0;
}

std::vector<double> distribution_of(const Tensor& logits, const SamplingParams& params) {
  std::vector<double> distribution(static_cast<size_t>(logits.numel()));
  target_distribution(logits, {}, params, distribution);
  return distribution;
}

void probs_bench(benchmark::State& state, const SamplingParams& params) {
  const Tensor logits = some_logits(state.range(0));
  std::vector<double> distribution(static_cast<size_t>(logits.numel()));
  for ([[maybe_unused]] auto _ : state) {
    target_distribution(logits, {}, params, distribution);
    benchmark::DoNotOptimize(distribution.data());
  }
}

void greedy_bench(benchmark::State& state) {
  const Tensor logits = some_logits(state.range(0));
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(greedy_choice(logits, {}, {}).token);
  }
}

void draw_bench(benchmark::State& state) {
  const std::vector<double> distribution =
      distribution_of(some_logits(state.range(0)), {.temperature = 1.0});
  CounterRandomness random(1);
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(random.draw(distribution));
  }
}

void residual_bench(benchmark::State& state) {
  const Tensor logits = some_logits(state.range(0));
  const std::vector<double> p = distribution_of(logits, {.temperature = 1.0});
  const std::vector<double> q = distribution_of(logits, {.temperature = 1.5});
  for ([[maybe_unused]] auto _ : state) {
    std::vector<double> rest = residual(p, q);
    benchmark::DoNotOptimize(normalise(rest));
  }
}

void vocabularies(benchmark::internal::Benchmark* bench) { bench->Arg(2048)->Arg(262144); }

const SamplingParams kPlain = {.temperature = 1.0};
const SamplingParams kCut = {.temperature = 0.7, .top_k = 64, .top_p = 0.95};
BENCHMARK_CAPTURE(probs_bench, temperature, kPlain)->Apply(vocabularies);
BENCHMARK_CAPTURE(probs_bench, top_k_top_p, kCut)->Apply(vocabularies);
BENCHMARK(greedy_bench)->Apply(vocabularies);
BENCHMARK(draw_bench)->Apply(vocabularies);
BENCHMARK(residual_bench)->Apply(vocabularies);

}  // namespace
}  // namespace specdec

BENCHMARK_MAIN();
