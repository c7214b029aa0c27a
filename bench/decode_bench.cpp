// Decoding speed of the cached forward, one thread (verify_chain_on_threads: several), on random
// weights of the shape that the shipped target has: vocab 2048, hidden 192, MLP 768, 6 layers, 4
// heads of 64, 1 KV head.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>

#include "core/families/gemma/config.h"
#include "core/families/model.h"
#include "core/kernels/team.h"
#include "core/transformer/random_weights.h"
#include "core/transformer/transformer_model.h"
#include "kv/paged_kv.h"

namespace specdec {
namespace {

ModelDescription shipped_shape() {
  return parse_gemma_config(R"({
    "model_type": "gemma3_text", "vocab_size": 2048, "hidden_size": 192, "intermediate_size": 768,
    "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 64,
    "query_pre_attn_scalar": 64, "sliding_window": 64, "sliding_window_pattern": 6,
    "rope_theta": 10000.0, "max_position_embeddings": 4096})",
                            "the shipped shape");
}

TransformerModel make_model(at::ScalarType dtype, int threads = 1,
                            int64_t page_size = kDefaultPageSize) {
  at::set_num_threads(threads);
  RandomWeightsOptions options;
  options.dtype = dtype;
  return TransformerModel(pack(*random_model(shipped_shape(), options)), paged_kv(page_size));
}

void decode(benchmark::State& state, at::ScalarType dtype, int64_t page_size = kDefaultPageSize) {
  TransformerModel model = make_model(dtype, 1, page_size);
  const std::vector<Token> prompt(static_cast<size_t>(state.range(0)), 7);
  model.prefill_get_last_logits(prompt);
  const Token token = 11;
  for (auto _ : state) {
    benchmark::DoNotOptimize(model.decode_get_logits({&token, 1}));
    if (model.length() > state.range(0) + 64) {
      model.truncate(state.range(0));
    }
  }
  state.counters["tokens/s"] =
      benchmark::Counter(static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

void decode_float32(benchmark::State& state) { decode(state, at::kFloat); }
/// What paging costs: a page of max_length tokens, as the cache `contiguous` has.
void decode_contiguous(benchmark::State& state) {
  decode(state, at::kFloat, shipped_shape().config.max_position_embeddings);
}
void decode_bfloat16_weights(benchmark::State& state) { decode(state, at::kBFloat16); }
BENCHMARK(decode_float32)->Arg(16)->Arg(128)->Arg(512)->Arg(2048)->Unit(benchmark::kMicrosecond);
BENCHMARK(decode_contiguous)->Arg(16)->Arg(128)->Arg(512)->Arg(2048)->Unit(benchmark::kMicrosecond);
BENCHMARK(decode_bfloat16_weights)->Arg(128)->Unit(benchmark::kMicrosecond);

/// v(n): a forward of n new tokens after 128 kept ones.
void verify_chain(benchmark::State& state, int threads) {
  TransformerModel model = make_model(at::kFloat, threads);
  model.prefill_get_last_logits(std::vector<Token>(128, 7));
  Draft draft = Draft::root(11);
  for (int64_t i = 1; i < state.range(0); ++i) {
    draft.add(static_cast<Token>(i), i - 1);
  }
  const int64_t jobs = Team::of_process().jobs();
  const int64_t late = Team::of_process().late_jobs();
  for (auto _ : state) {
    benchmark::DoNotOptimize(model.verify_get_logits(draft));
    model.truncate(128);
  }
  state.counters["barriers"] = benchmark::Counter(
      static_cast<double>(Team::of_process().jobs() - jobs), benchmark::Counter::kAvgIterations);
  state.counters["late"] = static_cast<double>(Team::of_process().late_jobs() - late);
}
void verify_chain(benchmark::State& state) { verify_chain(state, 1); }
/// verify_chain on several threads; `barriers` counts the ops of a forward that were shared.
void verify_chain_on_threads(benchmark::State& state) {
  verify_chain(state, static_cast<int>(state.range(1)));
}
BENCHMARK(verify_chain)->RangeMultiplier(2)->Range(1, 64)->Unit(benchmark::kMicrosecond);
BENCHMARK(verify_chain_on_threads)
    ->ArgNames({"n", "threads"})
    ->ArgsProduct({{1, 4, 8, 16}, {1, 2}})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

void prefill(benchmark::State& state) {
  TransformerModel model = make_model(at::kFloat);
  const std::vector<Token> prompt(static_cast<size_t>(state.range(0)), 7);
  for (auto _ : state) {
    benchmark::DoNotOptimize(model.prefill_get_last_logits(prompt));
  }
  state.counters["tokens/s"] = benchmark::Counter(
      static_cast<double>(state.iterations() * state.range(0)), benchmark::Counter::kIsRate);
}
BENCHMARK(prefill)->Arg(128)->Arg(512)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace specdec

BENCHMARK_MAIN();
