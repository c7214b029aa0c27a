// A store of texts that share a system prompt of 512 tokens: finding what a prompt begins with,
// remembering a text, and the bytes of all. The cache is that of the shipped target (6 layers of
// one kv head of 64).
#include <benchmark/benchmark.h>

#include <algorithm>
#include <memory>
#include <random>

#include "core/draft.h"
#include "core/prefix_store.h"
#include "kv/kv_cache.h"

namespace specdec {
namespace {

constexpr int64_t kSystemTokens = 512;
constexpr int64_t kOwnTokens = 64;
constexpr int64_t kVocab = 32000;
constexpr const char* kKey = "bench";

/// Texts as requests leave them: each is read after the system prompt's pages.
class SharedTexts {
 public:
  explicit SharedTexts(int64_t count) {
    const std::vector<Token> system = random_tokens(kSystemTokens);
    extend(kSystemTokens);
    const auto shared = cache_.snapshot(0);
    for (int64_t i = 0; i < count; ++i) {
      std::vector<Token> text = system;
      const std::vector<Token> own = random_tokens(kOwnTokens);
      text.insert(text.end(), own.begin(), own.end());
      cache_.restore(0, *shared, kSystemTokens);
      extend(kOwnTokens);
      texts_.push_back({kKey, std::move(text), cache_.snapshot(0)});
    }
  }

  const std::vector<CachedPrefix>& all() const { return texts_; }
  /// Sum of the bytes of each text alone.
  int64_t separate_bytes() const {
    int64_t bytes = 0;
    for (const CachedPrefix& text : texts_) {
      bytes += text.snapshot->bytes();
    }
    return bytes;
  }

 private:
  std::vector<Token> random_tokens(int64_t count) {
    std::vector<Token> tokens(static_cast<size_t>(count));
    std::generate(tokens.begin(), tokens.end(),
                  [&] { return static_cast<Token>(random_() % kVocab); });
    return tokens;
  }
  void extend(int64_t tokens) {
    cache_.extend({.count = tokens});
    cache_.commit(0, chain_path(tokens));
  }

  std::mt19937 random_{1};
  KvCache cache_{std::vector<LayerKv>(6, LayerKv{1, 64, 0, -1}),
                 {.dtype = at::kFloat, .device = at::kCPU, .page_size = 16, .max_length = 1024}};
  std::vector<CachedPrefix> texts_;
};

void insert_all(PrefixStore& store, const SharedTexts& texts) {
  for (const CachedPrefix& text : texts.all()) {
    store.insert(text);
  }
}

void match_bench(benchmark::State& state) {
  const SharedTexts texts(state.range(0));
  PrefixStore store(int64_t{1} << 34);
  insert_all(store, texts);
  size_t next = 0;
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(store.match(kKey, texts.all()[next].tokens));
    next = (next + 1) % texts.all().size();
  }
  state.counters["MB"] = static_cast<double>(store.bytes()) / 1e6;
  state.counters["separate_MB"] = static_cast<double>(texts.separate_bytes()) / 1e6;
  state.counters["nodes"] = static_cast<double>(store.nodes());
}

/// What a list of texts does instead: it compares each with the prompt.
void compare_with_each_bench(benchmark::State& state) {
  const SharedTexts texts(state.range(0));
  size_t next = 0;
  for ([[maybe_unused]] auto _ : state) {
    int64_t most = 0;
    for (const CachedPrefix& text : texts.all()) {
      most = std::max(most, reusable_tokens(text, texts.all()[next].tokens));
    }
    benchmark::DoNotOptimize(most);
    next = (next + 1) % texts.all().size();
  }
}

void insert_bench(benchmark::State& state) {
  const SharedTexts texts(state.range(0));
  for ([[maybe_unused]] auto _ : state) {
    PrefixStore store(int64_t{1} << 34);
    insert_all(store, texts);
    benchmark::DoNotOptimize(store.bytes());
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

BENCHMARK(match_bench)->Arg(10)->Arg(1000);
BENCHMARK(compare_with_each_bench)->Arg(10)->Arg(1000);
BENCHMARK(insert_bench)->Arg(1000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace specdec

BENCHMARK_MAIN();
