// What it costs to share work among the team's threads: jobs of empty tiles, one after the other
// (the threads spin in between) or with pauses in which they fall asleep.
#include <benchmark/benchmark.h>

#include <chrono>
#include <thread>

#include "core/kernels/team.h"

namespace specdec {
namespace {

void empty_job(benchmark::State& state) {
  Team team;
  const int64_t threads = state.range(0);
  for ([[maybe_unused]] auto _ : state) {
    team.run(threads, 1, threads, [](int64_t begin, int64_t) { benchmark::DoNotOptimize(begin); });
  }
  state.counters["late"] = static_cast<double>(team.late_jobs());
}
BENCHMARK(empty_job)->ArgName("threads")->Arg(1)->Arg(2)->Arg(4);

void spin(std::chrono::nanoseconds length) {
  const auto end = std::chrono::steady_clock::now() + length;
  while (std::chrono::steady_clock::now() < end) {
  }
}

/// Eight tiles of `ns` nanoseconds each; a job is worth sharing where two threads take less time.
void job(benchmark::State& state) {
  Team team;
  const std::chrono::nanoseconds tile(state.range(1));
  for ([[maybe_unused]] auto _ : state) {
    team.run(8, 1, state.range(0), [&](int64_t begin, int64_t end) { spin((end - begin) * tile); });
  }
  state.counters["late"] = static_cast<double>(team.late_jobs());
}
BENCHMARK(job)->ArgNames({"threads", "ns"})->ArgsProduct({{1, 2}, {200, 500, 1000, 4000}});

/// The first job after a pause in which the threads fell asleep.
void job_after_sleep(benchmark::State& state) {
  Team team;
  const std::chrono::nanoseconds tile(state.range(1));
  for ([[maybe_unused]] auto _ : state) {
    state.PauseTiming();
    std::this_thread::sleep_for(std::chrono::microseconds(500));
    state.ResumeTiming();
    team.run(8, 1, state.range(0), [&](int64_t begin, int64_t end) { spin((end - begin) * tile); });
  }
}
BENCHMARK(job_after_sleep)
    ->ArgNames({"threads", "ns"})
    ->ArgsProduct({{1, 2}, {500, 4000, 20000}})
    ->Iterations(500)
    ->UseRealTime();

}  // namespace
}  // namespace specdec

BENCHMARK_MAIN();
