// Threads that share a store of prefixes, each with a model of its own: every logit has the bits of
// a prompt that is read whole.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

#include "core/prefix_store.h"
#include "core/transformer/transformer_model.h"
#include "kv/paged_kv.h"
#include "tests/support/tiny_gemma.h"

namespace specdec {
namespace {

constexpr int64_t kThreadsVocab = 16;

/// Tokens of one of a few families of prompts, which threads have in common.
std::vector<Token> threads_prompt(std::mt19937& random) {
  std::vector<Token> prompt(4 + random() % 24, static_cast<Token>(random() % 3));
  prompt.resize(prompt.size() + 1 + random() % 3);
  std::generate(prompt.end() - 2, prompt.end(),
                [&] { return static_cast<Token>(random() % kThreadsVocab); });
  return prompt;
}

class PrefixThreadsTest : public testing::Test {
 protected:
  std::unique_ptr<TransformerModel> model() const {
    return std::make_unique<TransformerModel>(weights_, paged_kv(4));
  }
  /// Requests of one thread, half of them with states; the number that came out wrong.
  int64_t run(uint32_t seed, PrefixStore& store) const {
    const c10::InferenceMode guard;
    at::set_num_threads(1);
    std::mt19937 random(seed);
    const auto own = model();
    const auto cold = model();
    int64_t wrong = 0;
    for (int request = 0; request < 60; ++request) {
      const std::vector<Token> prompt = threads_prompt(random);
      const Hidden hidden = request % 2 == 0 ? Hidden::kNone : Hidden::kAll;
      const ForwardOptions options = {.logits = Logits::kLast, .hidden = hidden};
      const ForwardResult found = store.prefill(*own, prompt, options);
      const ForwardResult wanted = cold->prefill(prompt, options);
      const bool same_states =
          hidden == Hidden::kNone || at::equal(found.final_hidden, wanted.final_hidden);
      wrong += at::equal(found.logits, wanted.logits) && same_states ? 0 : 1;
    }
    return wrong;
  }

  std::shared_ptr<const TransformerWeights> weights_ = tiny_gemma(kThreadsVocab, at::kFloat);
};

TEST_F(PrefixThreadsTest, ModelsOfSeveralThreadsShareAStore) {
  const auto probe = model();
  (void)probe->prefill_get_last_logits(std::vector<Token>(28, 1));
  PrefixStore store(4 * probe->snapshots()->kv_snapshot()->bytes());
  std::atomic<int64_t> wrong = 0;
  std::vector<std::thread> threads;
  for (uint32_t seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&, seed] { wrong += run(seed, store); });
  }
  while (store.statistics().prompts < 200) {
    if (store.entries() > 30) {
      store.clear();
    }
    EXPECT_LE(store.bytes(), 4 * probe->snapshots()->kv_snapshot()->bytes());
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(store.statistics().prompts, 240);
  EXPECT_GT(store.statistics().hits, 20);
  EXPECT_GT(store.statistics().evicted, 20);
}

}  // namespace
}  // namespace specdec
