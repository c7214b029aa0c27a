// A layer's experts: what rows cost by the distinct experts that they wake, on one thread. All
// layers have the same number of weights, so that only how they are divided differs.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>

#include <array>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/kernels/experts.h"

namespace specdec {
namespace {

constexpr int64_t kHidden = 1024;
/// Intermediate size of the MLPs of all experts together.
constexpr int64_t kIntermediate = 16384;

/// Numbers of experts as in Mixtral, gpt-oss and Gemma 4.
struct Division {
  int64_t experts, chosen;
};
constexpr std::array<Division, 3> kDivisions = {{{8, 2}, {32, 4}, {128, 8}}};

/// Which experts the tokens of a forward go to.
enum class Kind : int64_t { kIndependent, kSame };

struct Layer {
  Layer(const Division& division, WeightFormat format) {
    const int64_t size = kIntermediate / division.experts;
    for (int64_t e = 0; e < division.experts; ++e) {
      gate_up.emplace_back(at::randn({2 * size, kHidden}), format);
      down.emplace_back(at::randn({kHidden, size}), format);
    }
  }
  int64_t expert_bytes() const { return gate_up.front().bytes() + down.front().bytes(); }
  std::vector<Linear> gate_up, down;
};

/// Made once: that takes longer than all that is measured with it.
const Layer& layer_of(int64_t division, WeightFormat format) {
  static std::map<std::pair<int64_t, WeightFormat>, Layer> layers;
  return layers
      .try_emplace({division, format}, kDivisions.at(static_cast<size_t>(division)), format)
      .first->second;
}

Routes make_routes(const Division& division, int64_t rows, Kind kind) {
  const int64_t different = kind == Kind::kSame ? 1 : rows;
  const Tensor chosen =
      std::get<1>(at::rand({different, division.experts}).topk(division.chosen)).to(at::kInt);
  return {chosen.expand({rows, division.chosen}).contiguous(),
          at::full({rows, division.chosen}, 1.0 / static_cast<double>(division.chosen))};
}

int64_t distinct(const Routes& routes) {
  const auto* first = routes.experts.const_data_ptr<int32_t>();
  return std::ssize(std::set<int32_t>(first, first + routes.experts.numel()));
}

ExpertBuffers make_buffers(const Division& division, int64_t rows) {
  const int64_t pairs = rows * division.chosen;
  const int64_t size = kIntermediate / division.experts;
  ExpertBuffers buffers;
  buffers.inputs = at::empty({pairs, kHidden});
  buffers.gate_up = at::empty({pairs, 2 * size});
  buffers.gated = at::empty({pairs, size});
  buffers.outputs = at::empty({pairs, kHidden});
  return buffers;
}

void experts_bench(benchmark::State& state, WeightFormat format) {
  at::set_num_threads(1);
  at::manual_seed(1);
  const Division division = kDivisions.at(static_cast<size_t>(state.range(0)));
  const int64_t rows = state.range(1);
  const Layer& layer = layer_of(state.range(0), format);
  std::vector<Routes> routes;  // in turns, so that no expert stays in the cache
  std::vector<int64_t> counts;
  for (int i = 0; i < 16; ++i) {
    routes.push_back(make_routes(division, rows, static_cast<Kind>(state.range(2))));
    counts.push_back(distinct(routes.back()));
  }
  ExpertBuffers buffers = make_buffers(division, rows);
  const Tensor input = at::randn({rows, kHidden});
  Tensor out = at::empty_like(input);
  size_t next = 0;
  int64_t woken = 0;
  for ([[maybe_unused]] auto _ : state) {
    apply_experts({layer.gate_up, layer.down}, input, routes[next], buffers, out);
    woken += counts[next];
    next = (next + 1) % routes.size();
  }
  state.counters["distinct"] =
      benchmark::Counter(static_cast<double>(woken), benchmark::Counter::kAvgIterations);
  state.SetBytesProcessed(woken * layer.expert_bytes());
  state.SetLabel(std::to_string(division.chosen) + " of " + std::to_string(division.experts) +
                 (state.range(2) == 0 ? ", independent" : ", the same"));
}

void divisions(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"division", "n", "same"})->Unit(benchmark::kMicrosecond);
  for (int64_t division = 0; division < std::ssize(kDivisions); ++division) {
    for (const int64_t rows : {1, 2, 4, 8, 16, 32, 64}) {
      bench->Args({division, rows, static_cast<int64_t>(Kind::kIndependent)});
      if (rows > 1) {
        bench->Args({division, rows, static_cast<int64_t>(Kind::kSame)});
      }
    }
  }
}

BENCHMARK_CAPTURE(experts_bench, bfloat16, WeightFormat::kBFloat16)->Apply(divisions);
BENCHMARK_CAPTURE(experts_bench, int8, WeightFormat::kInt8)->Apply(divisions);

}  // namespace
}  // namespace specdec

BENCHMARK_MAIN();
