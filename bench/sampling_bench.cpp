// What a step's logits cost on their way to tokens, beside the forwards.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>

#include <memory>

#include "core/sampling.h"
#include "decoders/beam_session.h"
#include "decoders/shapes/draft_growth.h"
#include "decoders/shapes/draft_length.h"
#include "decoders/target_probs.h"
#include "decoders/verifiers/exact_match.h"
#include "decoders/verifiers/rejection.h"

namespace specdec {
namespace {

constexpr int64_t kDrafted = 4;

/// Rows as spread as a language model's.
Tensor some_logits(int64_t rows, int64_t vocab, uint64_t seed) {
  at::set_num_threads(1);
  at::manual_seed(seed);
  return at::randn({rows, vocab}) * 3.0;
}

void probs_bench(benchmark::State& state, const SamplingParams& params) {
  const Tensor logits = some_logits(1, state.range(0), 1);
  CounterRandomness random(1);
  for ([[maybe_unused]] auto _ : state) {
    const TokenProbs probs = token_probs(LogitRow::of(logits, 0), {}, params);
    benchmark::DoNotOptimize(probs.draw(random));
  }
}

void greedy_bench(benchmark::State& state) {
  const Tensor logits = some_logits(1, state.range(0), 1);
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(greedy_choice(LogitRow::of(logits, 0), {}, {}).token);
  }
}

/// A repetition penalty of `state.range(1)` tokens before.
void penalty_bench(benchmark::State& state) {
  const Tensor logits = some_logits(1, state.range(0), 1);
  std::vector<Token> history;
  for (int64_t i = 0; i < state.range(1); ++i) {
    history.push_back(static_cast<Token>(i * 7919 % (state.range(0) / 16)));
  }
  const SamplingParams params{.repetition_penalty = 1.1};
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(greedy_choice(LogitRow::of(logits, 0), history, params).token);
  }
}

void residual_bench(benchmark::State& state) {
  const Tensor logits = some_logits(1, state.range(0), 1);
  const TokenProbs p = token_probs(LogitRow::of(logits, 0), {}, {.temperature = 1.0});
  const TokenProbs q = token_probs(LogitRow::of(logits, 0), {}, {.temperature = 1.5});
  CounterRandomness random(1);
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(residual(p, q).draw(random));
  }
}

/// Siblings that are rejected one after the other, until a token is drawn from what is left.
void siblings_bench(benchmark::State& state) {
  const Tensor logits = some_logits(1, state.range(0), 1);
  const TokenProbs q = token_probs(LogitRow::of(logits, 0), {}, {.temperature = 1.5});
  Draft draft = Draft::root(0);
  draft.probs = {q};
  draft.child_probs = {0};
  for (const Candidate& likely : q.top(state.range(1))) {
    draft.add(likely.token, 0);
  }
  CounterRandomness random(1);
  for ([[maybe_unused]] auto _ : state) {
    TargetProbs target(draft.size(), state.range(0), [&](int64_t /*node*/) {
      return token_probs(LogitRow::of(-logits, 0), {}, {.temperature = 1.0});
    });
    benchmark::DoNotOptimize(RejectionVerifier().verify(draft, target, 0, random));
  }
}

/// Logits that lie ready, one row a depth.
class ReadyLogits final : public ChildDistribution {
 public:
  explicit ReadyLogits(Tensor logits) : logits_(std::move(logits)) {}
  Tensor expand(const Draft& /*partial*/, std::span<const int64_t> frontier) override {
    return logits_.narrow(0, frontier.front(), 1);
  }

 private:
  Tensor logits_;
};

/// A step beside its forwards: a chain of 4 is drafted and verified. The drafter's logits are the
/// target's with some noise, so most drafts are accepted in part.
void step_bench(benchmark::State& state, const SamplingParams& params) {
  const int64_t vocab = state.range(0);
  const Tensor target = some_logits(kDrafted + 1, vocab, 1);
  ReadyLogits drafter(target.narrow(0, 0, kDrafted) + 0.1 * some_logits(kDrafted, vocab, 2));
  const std::vector<Token> committed = {1};
  FixedDraftLength shape(kDrafted);
  CounterRandomness random(1);
  int64_t position = 0;
  int64_t accepted = 0;
  for ([[maybe_unused]] auto _ : state) {
    random.seek(++position, Purpose::kDraft);
    const DraftContext context{.committed = committed,
                               .last_step = nullptr,
                               .prompt_result = nullptr,
                               .random = random,
                               .sampling = params,
                               .grammar = nullptr,
                               .max_tokens = kDrafted,
                               .max_depth = kDrafted,
                               .max_branches = 1,
                               .shape = shape};
    const Draft draft = shape.grow(context, drafter, Siblings::kDrawn);
    TargetProbs probs(draft.size(), vocab, [&](int64_t node) {
      return token_probs(LogitRow::of(target, node), {}, params);
    });
    random.seek(position, Purpose::kVerify);
    const VerifyResult result = params.greedy()
                                    ? ExactMatchVerifier().verify(draft, probs, position, random)
                                    : RejectionVerifier().verify(draft, probs, position, random);
    accepted += std::ssize(result.path) - 1;
  }
  state.counters["accepted"] =
      static_cast<double>(accepted) / static_cast<double>(state.iterations());
}

/// A model of which a beam search asks its size alone.
class OnlySizes final : public LanguageModel {
 public:
  explicit OnlySizes(int64_t vocab) : vocab_(vocab) {}
  ForwardResult forward(const TokenBatch& /*batch*/, const ForwardOptions& /*options*/) override {
    return {};
  }
  void commit(std::span<const int64_t> /*path*/, RowId /*row*/) override {}
  void truncate(int64_t /*length*/, RowId /*row*/) override {}
  RowId open() override { return 0; }
  RowId fork(RowId /*row*/, int64_t /*length*/) override { return 0; }
  void close(RowId /*row*/) override {}
  int64_t length(RowId /*row*/) const override { return 0; }
  int64_t pending(RowId /*row*/) const override { return 0; }
  int64_t vocab_size() const override { return vocab_; }
  int64_t max_length() const override { return int64_t{1} << 40; }

 private:
  int64_t vocab_;
};

/// A beam step beside its forward, of `state.range(1)` beams.
void beam_step_bench(benchmark::State& state) {
  const Tensor logits = some_logits(state.range(1), state.range(0), 1);
  const OnlySizes model(state.range(0));
  const std::vector<Token> prompt = {1};
  CounterRandomness random(1);
  const Request request{.prompt = prompt,
                        .sampling = {},
                        .stop = {.max_new_tokens = int64_t{1} << 30},
                        .random = random};
  BeamSession session(request, model, {.num_beams = state.range(1), .num_return_sequences = 1});
  const std::vector<Tensor> rows = logits.unbind();
  session.advance(std::vector<Tensor>{rows.front()});
  for ([[maybe_unused]] auto _ : state) {
    session.advance(rows);
  }
}

void vocabularies(benchmark::internal::Benchmark* bench) {
  bench->Arg(2048)->Arg(262144)->Unit(benchmark::kMicrosecond);
}

const SamplingParams kGreedy = {};
const SamplingParams kWarm = {.temperature = 0.8};
const SamplingParams kCut = {.temperature = 0.7, .top_k = 64, .top_p = 0.95};
const SamplingParams kNucleus = {.temperature = 0.7, .top_p = 0.95};
BENCHMARK(greedy_bench)->Apply(vocabularies);
BENCHMARK(penalty_bench)->ArgsProduct({{2048, 262144}, {0, 128, 8192, 131072}});
BENCHMARK_CAPTURE(probs_bench, temperature, kWarm)->Apply(vocabularies);
BENCHMARK_CAPTURE(probs_bench, top_k_top_p, kCut)->Apply(vocabularies);
BENCHMARK_CAPTURE(probs_bench, top_p, kNucleus)->Apply(vocabularies);
BENCHMARK(residual_bench)->Apply(vocabularies);
BENCHMARK(siblings_bench)->ArgsProduct({{2048, 262144}, {1, 2, 4}});
BENCHMARK(beam_step_bench)->ArgsProduct({{2048, 262144}, {1, 4}})->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(step_bench, greedy, kGreedy)->Apply(vocabularies);
BENCHMARK_CAPTURE(step_bench, temperature, kWarm)->Apply(vocabularies);
BENCHMARK_CAPTURE(step_bench, top_k_top_p, kCut)->Apply(vocabularies);

}  // namespace
}  // namespace specdec

BENCHMARK_MAIN();
