// What a grammar costs at a step, when its states were seen before, and what compiling one costs.
// The vocabulary is the shipped target's; SPECDEC_TOKENIZER names another tokenizer or checkpoint.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "core/tokenizers/tokenizer.h"
#include "grammar/grammar_matcher.h"
#include "grammar/grammar_source.h"

namespace specdec {
namespace {

constexpr const char* kSchema = R"({"type": "object", "properties": {
  "name": {"type": "string", "minLength": 1, "maxLength": 40},
  "age": {"type": "integer", "minimum": 0, "maximum": 150},
  "email": {"type": "string", "pattern": "^[a-z.]+@[a-z]+\\.(com|org)$"},
  "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "maxItems": 4}},
  "required": ["name", "age", "email"], "additionalProperties": false})";
constexpr const char* kText =
    R"({"name":"Clara Weber","age":41,"email":"clara@example.org","tags":["red","blue"]})";

const Tokenizer& tokenizer() {
  static const auto loaded = [] {
    const char* other = std::getenv("SPECDEC_TOKENIZER");
    return load_tokenizer(other == nullptr ? "models/target" : other);
  }();
  return *loaded;
}

const std::shared_ptr<GrammarVocabulary>& vocabulary() {
  static const auto prepared = make_grammar_vocabulary(tokenizer());
  return prepared;
}

GrammarSource schema() {
  GrammarSource source;
  source.text = kSchema;
  return source;
}

const std::shared_ptr<GrammarVocabulary>& vocabulary_with_cuts() {
  vocabulary()->learn_cuts(tokenizer());
  return vocabulary();
}

GrammarSource canonical_schema() {
  GrammarSource source = schema();
  source.cuts = Cuts::kCanonical;
  return source;
}

const std::vector<Token>& text() {
  static const std::vector<Token> tokens = tokenizer().encode(kText);
  return tokens;
}

/// The whole text, with a mask before each token.
void take_text(GrammarMatcher& matcher) {
  for (const Token token : text()) {
    benchmark::DoNotOptimize(matcher.mask());
    (void)matcher.accept(token);
  }
}

/// Takes the text again and again.
void run_steps(benchmark::State& state, GrammarMatcher matcher) {
  for ([[maybe_unused]] auto _ : state) {
    take_text(matcher);
    matcher.rollback(matcher.length());
  }
  state.SetItemsProcessed(state.iterations() * std::ssize(text()));
}

/// A matcher in the middle of the text, and no state that was not seen before.
GrammarMatcher warm_matcher(size_t tokens) {
  static const auto grammar = compile_grammar(vocabulary(), schema());
  GrammarMatcher matcher(grammar);
  take_text(matcher);
  matcher.rollback(matcher.length() - static_cast<int64_t>(tokens));
  return matcher;
}

void prepare_bench(benchmark::State& state) {
  (void)tokenizer();
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(make_grammar_vocabulary(tokenizer()));
  }
}
BENCHMARK(prepare_bench)->Unit(benchmark::kMicrosecond);

void compile_bench(benchmark::State& state) {
  (void)vocabulary();
  for ([[maybe_unused]] auto _ : state) {
    const GrammarMatcher matcher(compile_grammar(vocabulary(), schema()));
    benchmark::DoNotOptimize(matcher.mask());
  }
}
BENCHMARK(compile_bench)->Unit(benchmark::kMicrosecond);

/// Parameters of the tool of that number: no two tools have the same.
std::string tool_parameters(int64_t tool) {
  return fmt::format(R"({{"type": "object", "properties": {{
    "query_{0}": {{"type": "string", "minLength": 1, "maxLength": {1}}},
    "limit": {{"type": "integer", "minimum": 1, "maximum": {1}}},
    "sort": {{"type": "string", "enum": ["name", "date", "by_{0}"]}},
    "ids": {{"type": "array", "items": {{"type": "string", "pattern": "^[a-z]{{3}}-[0-9]+$"}},
            "maxItems": {2}}},
    "filter": {{"type": "object", "properties": {{"field_{0}": {{"type": "string"}},
               "exact": {{"type": "boolean"}}}}, "required": ["exact"],
               "additionalProperties": false}}}},
    "required": ["query_{0}", "limit"], "additionalProperties": false}})",
                     tool, 100 + tool, 2 + tool % 7);
}

GrammarSource tools_as_calls(int64_t count) {
  std::string tools;
  for (int64_t tool = 0; tool < count; ++tool) {
    tools += fmt::format(R"({}{{"type": "function", "function": {{"name": "tool_{}",
                             "parameters": {}}}}})",
                         tool == 0 ? "" : ",", tool, tool_parameters(tool));
  }
  GrammarSource source;
  source.kind = GrammarKind::kToolCalls;
  source.text = fmt::format(R"({{"style": "hermes", "tools": [{}]}})", tools);
  return source;
}

GrammarSource tools_as_one_of(int64_t count) {
  std::string tools;
  for (int64_t tool = 0; tool < count; ++tool) {
    tools += fmt::format(R"({}{{"type": "object", "properties": {{"name": {{"const": "tool_{}"}},
                             "arguments": {}}}, "required": ["name", "arguments"],
                             "additionalProperties": false}})",
                         tool == 0 ? "" : ",", tool, tool_parameters(tool));
  }
  GrammarSource source;
  source.text = fmt::format(R"({{"oneOf": [{}]}})", tools);
  return source;
}

/// Compiles with languages that no grammar used before, and makes the first mask.
void compile_tools(benchmark::State& state, const GrammarSource& source) {
  for ([[maybe_unused]] auto _ : state) {
    state.PauseTiming();
    auto fresh = make_grammar_vocabulary(tokenizer());
    state.ResumeTiming();
    benchmark::DoNotOptimize(GrammarMatcher(compile_grammar(fresh, source)).mask());
    state.PauseTiming();
    fresh.reset();
    state.ResumeTiming();
  }
}

void tool_calls_bench(benchmark::State& state) {
  compile_tools(state, tools_as_calls(state.range(0)));
}
BENCHMARK(tool_calls_bench)->Arg(128)->Arg(512)->Unit(benchmark::kMillisecond);

void tools_one_of_bench(benchmark::State& state) {
  compile_tools(state, tools_as_one_of(state.range(0)));
}
BENCHMARK(tools_one_of_bench)->Arg(128)->Unit(benchmark::kMillisecond);

/// Constant numbers in an anyOf, as code generators write an enum.
void any_of_constants_bench(benchmark::State& state) {
  std::string constants;
  for (int64_t i = 0; i < state.range(0); ++i) {
    constants += fmt::format(R"({}{{"const": {}}})", i == 0 ? "" : ",", i * 7919 % 1'000'003);
  }
  GrammarSource source;
  source.text = fmt::format(R"({{"anyOf": [{}]}})", constants);
  compile_tools(state, source);
}
BENCHMARK(any_of_constants_bench)->Arg(10'000)->Unit(benchmark::kMillisecond);

/// A mask and a token, over the whole text.
void step_bench(benchmark::State& state) { run_steps(state, warm_matcher(0)); }
BENCHMARK(step_bench);

void canonical_prepare_bench(benchmark::State& state) {
  for ([[maybe_unused]] auto _ : state) {
    state.PauseTiming();
    const auto fresh = make_grammar_vocabulary(tokenizer());
    state.ResumeTiming();
    fresh->learn_cuts(tokenizer());
  }
}
BENCHMARK(canonical_prepare_bench)->Unit(benchmark::kMicrosecond);

/// The whole text with a mask before each token, by a grammar without any masks yet.
void canonical_first_bench(benchmark::State& state) {
  (void)vocabulary_with_cuts();
  for ([[maybe_unused]] auto _ : state) {
    GrammarMatcher matcher(compile_grammar(vocabulary(), canonical_schema()));
    take_text(matcher);
  }
  state.SetItemsProcessed(state.iterations() * std::ssize(text()));
}
BENCHMARK(canonical_first_bench)->Unit(benchmark::kMicrosecond);

void canonical_step_bench(benchmark::State& state) {
  run_steps(state, GrammarMatcher(compile_grammar(vocabulary_with_cuts(), canonical_schema())));
}
BENCHMARK(canonical_step_bench);

/// A string's mask after a token that was not met before; max_length 0: any length.
void canonical_new_token_bench(benchmark::State& state) {
  GrammarSource source;
  source.text =
      state.range(0) == 0 ? R"({"type": "string"})" : R"({"type": "string", "maxLength": 40})";
  source.cuts = Cuts::kCanonical;
  GrammarMatcher matcher(compile_grammar(vocabulary_with_cuts(), source));
  (void)matcher.accept(tokenizer().encode("\"").front());
  const std::vector<Token> tokens = matcher.mask().tokens();
  size_t i = 0;
  for ([[maybe_unused]] auto _ : state) {
    i = (i + 7919) % tokens.size();
    (void)matcher.accept(tokens[i]);
    benchmark::DoNotOptimize(matcher.mask());
    matcher.rollback(1);
  }
}
BENCHMARK(canonical_new_token_bench)
    ->Arg(0)
    ->Arg(40)
    ->Unit(benchmark::kMicrosecond)
    ->Iterations(300);

void rollback_bench(benchmark::State& state) {
  GrammarMatcher matcher = warm_matcher(8);
  const std::vector<Token> next(text().begin() + 8, text().begin() + 12);
  for ([[maybe_unused]] auto _ : state) {
    for (const Token token : next) {
      (void)matcher.accept(token);
    }
    matcher.rollback(4);
  }
}
BENCHMARK(rollback_bench);

void fork_bench(benchmark::State& state) {
  const GrammarMatcher matcher = warm_matcher(16);
  for ([[maybe_unused]] auto _ : state) {
    GrammarMatcher fork = matcher;
    benchmark::DoNotOptimize(fork);
  }
}
BENCHMARK(fork_bench);

/// 31 nodes: the text's next five tokens, and many that the grammar forbids beside them.
void tree_bench(benchmark::State& state) {
  const GrammarMatcher matcher = warm_matcher(8);
  std::vector<Token> tokens;
  std::vector<int64_t> parents;
  for (int64_t node = 0; node < 31; ++node) {
    const int64_t depth = node / 6;
    tokens.push_back(text()[static_cast<size_t>(8 + depth + node % 6)]);
    parents.push_back(6 * depth - 6 < 0 ? -1 : 6 * depth - 6);
  }
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(matcher.tree_masks(tokens, parents));
  }
}
BENCHMARK(tree_bench);

void apply_bench(benchmark::State& state) {
  const GrammarMatcher matcher = warm_matcher(static_cast<size_t>(state.range(0)));
  const TokenMask mask = matcher.mask();
  std::vector<double> scores(static_cast<size_t>(mask.vocab_size()), 1.0);
  for ([[maybe_unused]] auto _ : state) {
    apply_mask(mask, std::span<double>(scores));
    benchmark::ClobberMemory();
  }
  state.SetLabel(std::to_string(mask.count()) + " allowed");
}
BENCHMARK(apply_bench)->Arg(0)->Arg(6);

}  // namespace
}  // namespace specdec

BENCHMARK_MAIN();
