// Several threads and several grammars of one vocabulary: nobody waits for another grammar's mask,
// and masks are those that one thread finds alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <numeric>
#include <random>
#include <thread>

#include "core/error.h"
#include "grammar/compiled_grammar.h"
#include "tests/support/grammar_vocabularies.h"
#include "tests/support/random_schema.h"

namespace specdec {
namespace {

using Vocabulary = std::shared_ptr<GrammarVocabulary>;
using Grammar = std::shared_ptr<const CompiledGrammar>;
using WalkedMasks = std::vector<std::vector<Token>>;

constexpr uint32_t kSharedSeed = 5;
constexpr size_t kSharedTokens = 800;
constexpr size_t kSharingThreads = 4;

/// A byte 'a' that takes as long as `wait` does.
class WaitingAutomaton final : public Automaton {
 public:
  explicit WaitingAutomaton(std::function<void()> wait) : wait_(std::move(wait)) {}

  StateId start() override { return 1; }
  StateId next(StateId state, uint8_t byte) override {
    if (state != 1 || byte != 'a') {
      return kDead;
    }
    wait_();
    return 2;
  }
  bool is_complete(StateId state) override { return state == 2; }
  std::string explain(StateId /*state*/) override { return ""; }

 private:
  std::function<void()> wait_;
};

std::vector<std::string> shared_schemas() {
  std::vector<std::string> all = {
      R"({"type":"string","pattern":"^[a-z]{3,40}$"})",
      R"({"type":"string","pattern":"^[a-z]{2,30}[0-9]?$"})",
      R"({"type":"string","pattern":"^(?!ab)[a-c]*b[a-c]{6}$"})",
      R"({"type":"string","minLength":3,"maxLength":50})",
      R"({"type":"string","format":"date-time"})",
      R"({"type":"string","format":"email"})",
      R"({"type":"array","items":{"multipleOf":0.7,"minimum":-3}})",
      R"({"type":"integer","minimum":17,"maximum":4711})",
      R"({"allOf":[{"pattern":"a"},{"pattern":"b"},{"pattern":"c"}],"type":"string"})",
      R"({"type":"object","patternProperties":{"^x":{"type":"number"}}})"};
  RandomSchema random(21);
  for (int i = 0; i < 30; ++i) {
    all.push_back(to_json(random.schema(2)));
  }
  return all;
}

Grammar compile_shared(const Vocabulary& vocabulary, const std::string& schema, size_t i) {
  const EscapeStyle escapes = i % 3 == 0 ? EscapeStyle::kMinimal : EscapeStyle::kAny;
  try {
    return compile_json_schema(vocabulary, schema, json_options(i % 2 == 0, "any", escapes));
  } catch (const GrammarError&) {
    return nullptr;
  }
}

/// Along a text that depends on the masks alone.
WalkedMasks walked_masks(const Grammar& grammar, uint32_t seed) {
  std::mt19937 random(seed);
  WalkedMasks masks;
  StateId state = grammar == nullptr ? CompiledGrammar::kEnded : grammar->start();
  for (int steps = 0; steps < 12 && state != CompiledGrammar::kEnded; ++steps) {
    masks.push_back(grammar->mask(state).tokens());
    state = grammar->next(state, masks.back()[random() % masks.back().size()]);
  }
  return masks;
}

std::vector<WalkedMasks> all_alone(const std::vector<std::string>& schemas) {
  const Vocabulary vocabulary = tiny_vocabulary(kSharedSeed, kSharedTokens);
  std::vector<WalkedMasks> masks;
  for (size_t i = 0; i < schemas.size(); ++i) {
    masks.push_back(
        walked_masks(compile_shared(vocabulary, schemas[i], i), static_cast<uint32_t>(i)));
  }
  return masks;
}

template <class Work>
void run_threads(const Work& work) {
  std::vector<std::thread> threads;
  for (size_t thread = 0; thread < kSharingThreads; ++thread) {
    threads.emplace_back([&work, thread] { work(thread); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

/// The threads compile all of it, each in another order, and find out the same things.
TEST(ConcurrentMasksTest, GrammarsCompiledSideBySide) {
  const std::vector<std::string> texts = shared_schemas();
  const std::vector<WalkedMasks> expected = all_alone(texts);
  const Vocabulary vocabulary = tiny_vocabulary(kSharedSeed, kSharedTokens);
  std::vector<std::vector<WalkedMasks>> found(kSharingThreads,
                                              std::vector<WalkedMasks>(texts.size()));
  run_threads([&](size_t thread) {
    std::vector<size_t> order(texts.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<uint32_t>(thread)));
    for (const size_t i : order) {
      found[thread][i] =
          walked_masks(compile_shared(vocabulary, texts[i], i), static_cast<uint32_t>(i));
    }
  });
  for (size_t thread = 0; thread < kSharingThreads; ++thread) {
    for (size_t i = 0; i < texts.size(); ++i) {
      EXPECT_EQ(found[thread][i], expected[i]) << texts[i];
    }
  }
}

/// The threads meet in the same grammars.
TEST(ConcurrentMasksTest, GrammarsSharedByThreads) {
  const std::vector<std::string> texts = shared_schemas();
  const std::vector<WalkedMasks> expected = all_alone(texts);
  const Vocabulary vocabulary = tiny_vocabulary(kSharedSeed, kSharedTokens);
  std::vector<Grammar> grammars;
  for (size_t i = 0; i < texts.size(); ++i) {
    grammars.push_back(compile_shared(vocabulary, texts[i], i));
  }
  std::vector<std::vector<WalkedMasks>> found(kSharingThreads);
  run_threads([&](size_t thread) {
    for (size_t i = 0; i < texts.size(); ++i) {
      found[thread].push_back(walked_masks(grammars[i], static_cast<uint32_t>(i)));
    }
  });
  for (const std::vector<WalkedMasks>& masks : found) {
    EXPECT_EQ(masks, expected);
  }
}

TEST(ConcurrentMasksTest, NobodyWaitsForAnotherGrammar) {
  const Vocabulary vocabulary = tiny_vocabulary(kSharedSeed, kSharedTokens);
  std::promise<void> begun, go_on;
  const auto wait = [&, gate = go_on.get_future().share()] {
    begun.set_value();
    gate.wait();
  };
  const auto slow = std::make_shared<CompiledGrammar>(
      vocabulary, std::make_unique<WaitingAutomaton>([&, wait, waited = false]() mutable {
        if (!std::exchange(waited, true)) {
          wait();
        }
      }));
  std::thread slow_thread([&] { EXPECT_FALSE(slow->mask(slow->start()).empty()); });
  begun.get_future().wait();
  auto others = std::async(std::launch::async, [&] {
    const Grammar grammar = compile_json_schema(vocabulary, R"({"type":"string"})");
    return grammar->mask(grammar->next(grammar->start(), "\"")).count() +
           static_cast<int64_t>(vocabulary->cache_sizes().size());
  });
  EXPECT_EQ(others.wait_for(std::chrono::seconds(60)), std::future_status::ready);
  go_on.set_value();
  slow_thread.join();
  EXPECT_GT(others.get(), 0);
}

TEST(ConcurrentMasksTest, NobodyWaitsForACompilation) {
  const Vocabulary vocabulary = tiny_vocabulary(kSharedSeed, kSharedTokens);
  const Grammar grammar = compile_json_schema(vocabulary, R"({"type":"string"})");
  std::promise<void> begun, go_on;
  std::thread compiling([&] {
    (void)compile_automaton(vocabulary, {}, Cuts::kAny, [&](SharedLanguages&) {
      begun.set_value();
      go_on.get_future().wait();
      return std::make_unique<WaitingAutomaton>([] {});
    });
  });
  begun.get_future().wait();
  auto mask = std::async(std::launch::async, [&] { return grammar->mask(grammar->start()); });
  EXPECT_EQ(mask.wait_for(std::chrono::seconds(60)), std::future_status::ready);
  go_on.set_value();
  compiling.join();
  EXPECT_FALSE(mask.get().empty());
}

}  // namespace
}  // namespace specdec
