// Prompts read after a cached prefix, against the same prompts read from their first token: logits,
// keys and values bit by bit.
#include "core/prefix_store.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <random>

#include "core/families/model.h"
#include "core/snapshot_error.h"
#include "core/transformer/adapters/lora_adapter.h"
#include "core/transformer/transformer_model.h"
#include "kv/paged_kv.h"
#include "tests/support/golden.h"
#include "tests/support/tiny_gemma.h"
#include "tests/support/tiny_gemma4.h"

namespace specdec {
namespace {

using Tokens = std::vector<Token>;
using Weights = std::shared_ptr<const TransformerWeights>;

constexpr int64_t kPrefixVocab = 24;

struct PrefixCase {
  std::string name;
  std::string kind;  ///< of tiny_gemma4; "" = tiny_gemma
  at::ScalarType dtype = at::kFloat;
  KvFormat cache = KvFormat::kNative;
  int64_t page_size = 4;

  Weights weights() const {
    return kind.empty() ? tiny_gemma(kPrefixVocab, dtype) : tiny_gemma4(kind, kPrefixVocab, dtype);
  }
  KvStoreFactory store() const { return paged_kv(page_size, cache); }
};

void PrintTo(const PrefixCase& one, std::ostream* out) { *out << one.name; }

class PrefixTest : public testing::TestWithParam<PrefixCase> {
 protected:
  int64_t below(int64_t bound) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(bound));
  }

  Tokens random_tokens(int64_t count) {
    Tokens tokens;
    for (int64_t i = 0; i < count; ++i) {
      tokens.push_back(static_cast<Token>(below(kPrefixVocab)));
    }
    return tokens;
  }

  /// A prompt that begins with a part of an earlier one, or is new.
  Tokens next_prompt() {
    Tokens prompt;
    if (!texts_.empty() && below(5) > 0) {
      const Tokens& old = texts_[static_cast<size_t>(below(std::ssize(texts_)))];
      prompt.assign(old.begin(), old.begin() + below(std::ssize(old) + 1));
    }
    const Tokens more = random_tokens(1 + below(20));
    prompt.insert(prompt.end(), more.begin(), more.end());
    prompt.resize(std::min<size_t>(prompt.size(), 60));
    return prompt;
  }

  /// The model that reuses prefixes has exactly what the other one has.
  void expect_same_cache() {
    ASSERT_EQ(model_.length(), cold_.length());
    for (int64_t layer = 0; layer < model_.internals()->num_layers(); ++layer) {
      const auto [keys, values] = model_.internals()->key_values(layer, 0);
      const auto [cold_keys, cold_values] = cold_.internals()->key_values(layer, 0);
      ASSERT_TRUE(at::equal(keys, cold_keys)) << "layer " << layer;
      ASSERT_TRUE(at::equal(values, cold_values)) << "layer " << layer;
    }
  }

  /// Decodes some tokens in both models; the text with them.
  Tokens decode(Tokens text) {
    for (int64_t step = below(6); step > 0; --step) {
      text.push_back(static_cast<Token>(below(kPrefixVocab)));
      const TokenSpan newest = TokenSpan(text).last(1);
      EXPECT_TRUE(at::equal(model_.decode_get_logits(newest), cold_.decode_get_logits(newest)));
    }
    return text;
  }

  std::mt19937_64 random_{5};
  Weights weights_ = GetParam().weights();
  TransformerModel model_{weights_, GetParam().store()};
  TransformerModel cold_{weights_, GetParam().store()};
  std::vector<Tokens> texts_;
};

TEST_P(PrefixTest, RandomPromptsHaveTheBitsOfColdOnes) {
  TransformerModel probe(weights_, GetParam().store());
  probe.prefill_get_last_logits(random_tokens(60));
  PrefixStore store(3 * cached_prefix(probe, Tokens(60)).snapshot->bytes());
  for (int round = 0; round < 120; ++round) {
    const Tokens prompt = next_prompt();
    const Tensor logits = store.prefill(model_, prompt, {}).logits;
    ASSERT_TRUE(at::equal(logits[0], cold_.prefill_get_last_logits(prompt))) << "round " << round;
    texts_.push_back(decode(prompt));
    if (below(2) == 0) {
      store.insert(cached_prefix(model_, texts_.back()));
    }
    ASSERT_NO_FATAL_FAILURE(expect_same_cache()) << "round " << round;
  }
  EXPECT_GT(store.statistics().hits, 20);
  EXPECT_GT(store.statistics().evicted, 20);
  EXPECT_GT(store.statistics().reused_tokens, 100);
}

TEST_P(PrefixTest, AnyShorterLengthOfAPrefixCanBeReused) {
  const Tokens text = random_tokens(30);
  model_.prefill_get_last_logits(text);
  const CachedPrefix shared = cached_prefix(model_, text);
  const CachedPrefix copied{
      shared.key, shared.tokens,
      std::make_shared<KvCopies>(shared.snapshot->copy(), shared.snapshot->length())};
  for (size_t length = 1; length <= text.size(); ++length) {
    for (const CachedPrefix* prefix : {&shared, &copied}) {
      Tokens prompt(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(length));
      if (length % 3 > 0) {
        prompt.push_back(static_cast<Token>((prompt.back() + 1) % kPrefixVocab));
      }
      const Tensor logits = prime_with_prefix(model_, prompt, *prefix).logits;
      ASSERT_TRUE(at::equal(logits[0], cold_.prefill_get_last_logits(prompt))) << length;
      ASSERT_NO_FATAL_FAILURE(expect_same_cache()) << length;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, PrefixTest,
    testing::Values(PrefixCase{"gemma3", ""}, PrefixCase{"gemma3_float64", "", at::kDouble},
                    PrefixCase{"gemma3_bf16_pages", "", at::kFloat, KvFormat::kBFloat16, 16},
                    PrefixCase{"gemma3_q4_pages", "", at::kFloat, KvFormat::kQ4, 16},
                    PrefixCase{"gemma3_int8", "", at::kChar},
                    PrefixCase{"gemma4_e", "e", at::kFloat},
                    PrefixCase{"gemma4_e_bf16_pages", "e", at::kBFloat16, KvFormat::kBFloat16},
                    PrefixCase{"gemma4_moe", "moe"}, PrefixCase{"gemma3n", "3n"}),
    [](const testing::TestParamInfo<PrefixCase>& info) { return info.param.name; });

class PrefixStoreTest : public testing::Test {
 protected:
  /// Bytes of a prefix of one page.
  int64_t page_bytes() {
    model_.prefill_get_last_logits(Tokens{1});
    return cached_prefix(model_, Tokens{1}).snapshot->bytes();
  }
  void read(PrefixStore& store, const Tokens& prompt, TransformerModel* model = nullptr) {
    store.prefill(model == nullptr ? model_ : *model, prompt, {});
  }

  Weights weights_ = tiny_gemma(kPrefixVocab, at::kFloat);
  TransformerModel model_{weights_, paged_kv(4)};
};

TEST_F(PrefixStoreTest, TheLeastRecentlyUsedLeaveFirst) {
  PrefixStore store(2 * page_bytes());
  const Tokens first = {1, 2, 3};
  const Tokens second = {4, 5, 6};
  read(store, first);
  read(store, second);
  EXPECT_EQ(store.bytes(), 2 * page_bytes());
  const std::string key = model_.snapshots()->kv_key();
  EXPECT_TRUE(store.match(key, first));  // now the newest
  read(store, {7, 8});
  EXPECT_EQ(store.entries(), 2);
  EXPECT_TRUE(store.match(key, first));
  EXPECT_FALSE(store.match(key, second));
  EXPECT_EQ(store.statistics().evicted, 1);
  read(store, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  EXPECT_EQ(store.entries(), 2) << "three pages are more than it may hold";
  store.clear();
  EXPECT_EQ(store.bytes(), 0);
  EXPECT_EQ(store.nodes(), 0);
  EXPECT_FALSE(store.match(key, first));
}

TEST_F(PrefixStoreTest, PagesThatTextsShareCountOnce) {
  PrefixStore store(1 << 20);
  Tokens text(42, 3);  // ten pages and a half
  for (Token last = 0; last < 8; ++last) {
    text.back() = last;
    read(store, text);
  }
  EXPECT_EQ(store.entries(), 8);
  EXPECT_EQ(store.nodes(), 9) << "the texts, and where they part";
  EXPECT_EQ(store.bytes(), (10 + 8) * page_bytes());
  model_.truncate(0);
  EXPECT_EQ(store.bytes(), model_.cache().statistics().used_bytes());
  store.clear();
  EXPECT_EQ(model_.cache().statistics().used_bytes(), 0);
}

TEST_F(PrefixStoreTest, ATextThatAnotherHoldsIsNotKeptTwice) {
  PrefixStore store(1 << 20);
  const Tokens text = {1, 2, 3, 4, 5, 6};
  read(store, {1, 2, 3});
  read(store, text);
  EXPECT_EQ(store.entries(), 1) << "the longer one holds the shorter one";
  read(store, {1, 2, 3, 4});
  EXPECT_EQ(store.entries(), 1);
  EXPECT_EQ(store.match(model_.snapshots()->kv_key(), text)->tokens, Tokens({1, 2, 3, 4, 5}));
}

TEST_F(PrefixStoreTest, CountsWhatIsReused) {
  PrefixStore store(1 << 20);
  read(store, {1, 2, 3, 4, 5});
  read(store, {1, 2, 3, 4, 5});  // the last token is fed again
  read(store, {1, 2, 9});
  read(store, {9});
  EXPECT_EQ(store.entries(), 3) << "the first and second prompt are one";
  const PrefixStatistics counts = store.statistics();
  EXPECT_EQ(counts.prompts, 4);
  EXPECT_EQ(counts.hits, 2);
  EXPECT_EQ(counts.bypassed, 0);
  EXPECT_EQ(counts.prompt_tokens, 14);
  EXPECT_EQ(counts.reused_tokens, 4 + 2);
}

TEST_F(PrefixStoreTest, StatesAreKeptBesideKeysAndValues) {
  PrefixStore store(1 << 20);
  TransformerModel cold(weights_, paged_kv(4));
  const ForwardOptions options = {.capture_layers = {0, 2}, .hidden = Hidden::kAll};
  for (const Tokens& prompt : {Tokens{1, 2, 3, 4, 5, 6}, Tokens{1, 2, 3, 9, 8}, Tokens{1, 2, 3}}) {
    const ForwardResult result = store.prefill(model_, prompt, options);
    const ForwardResult wanted = cold.prefill(prompt, options);
    EXPECT_TRUE(at::equal(result.logits, wanted.logits));
    EXPECT_TRUE(at::equal(result.final_hidden, wanted.final_hidden));
    EXPECT_TRUE(at::equal(result.captured[0], wanted.captured[0]));
    EXPECT_TRUE(at::equal(result.captured[1], wanted.captured[1]));
  }
  EXPECT_EQ(store.statistics().reused_tokens, 3 + 2);
  // Pieces of 6 and 2 tokens, of three times 16 numbers each.
  model_.truncate(0);
  EXPECT_EQ(store.bytes(), model_.cache().statistics().used_bytes() + (6 + 2) * 3 * 16 * 4);
}

TEST_F(PrefixStoreTest, OtherStatesAreNotTakenForThoseWanted) {
  PrefixStore store(1 << 20);
  const Tokens prompt = {1, 2, 3, 4, 5};
  read(store, prompt);
  for (const int64_t layer : {1, 0}) {
    const ForwardResult result = store.prefill(model_, prompt, {.capture_layers = {layer}});
    EXPECT_EQ(result.captured[0].size(0), 5);
    EXPECT_EQ(store.statistics().hits, 0);
  }
  EXPECT_EQ(store.prefill(model_, prompt, {.hidden = Hidden::kAll}).final_hidden.size(0), 5);
  EXPECT_EQ(store.statistics().hits, 0);
  EXPECT_EQ(store.entries(), 4);
  const CachedPrefix plain = cached_prefix(model_, prompt);
  EXPECT_EQ(reusable_tokens(plain, prompt), 4);
  EXPECT_EQ(reusable_tokens(plain, prompt, {.hidden = Hidden::kAll}), 0);
}

TEST_F(PrefixStoreTest, PromptsWhoseStatesAreNotKeptAreReadWhole) {
  PrefixStore store(1 << 20, StatesPolicy::kRecompute);
  const Tokens prompt = {1, 2, 3, 4, 5};
  read(store, prompt);
  EXPECT_EQ(store.prefill(model_, prompt, {.hidden = Hidden::kAll}).final_hidden.size(0), 5);
  EXPECT_EQ(store.prefill(model_, prompt, {.capture_layers = {1}}).captured[0].size(0), 5);
  EXPECT_EQ(store.statistics().bypassed, 2);
  EXPECT_EQ(store.statistics().hits, 0);
}

TEST_F(PrefixStoreTest, ErrorsOfAPromptAreThoseOfAPrefill) {
  PrefixStore store(1 << 20);
  read(store, {1, 2, 3});
  EXPECT_THROW(read(store, {}), Error);
  EXPECT_THROW(read(store, {1, 2, kPrefixVocab}), Error);
  EXPECT_THROW(read(store, Tokens(257, 1)), Error);
}

TEST_F(PrefixStoreTest, AModelsKeyNamesAllThatItsCacheDependsOn) {
  const auto key = [](Weights weights, KvFormat format = KvFormat::kNative) {
    return TransformerModel(std::move(weights), paged_kv(4, format)).snapshots()->kv_key();
  };
  const std::string own = model_.snapshots()->kv_key();
  EXPECT_EQ(own.size(), 16U);
  EXPECT_EQ(key(tiny_gemma(kPrefixVocab, at::kFloat)), own);
  EXPECT_NE(key(tiny_gemma(kPrefixVocab, at::kFloat, 2)), own) << "other weights";
  EXPECT_NE(key(tiny_gemma(kPrefixVocab, at::kChar)), own) << "another format";
  EXPECT_NE(key(tiny_gemma(kPrefixVocab, at::kDouble)), own);
  std::set<std::string> keys;
  for (const KvFormat format : kKvFormats) {
    keys.insert(key(weights_, format));
  }
  EXPECT_EQ(keys.size(), std::size(kKvFormats)) << "each format has a key of its own";
}

TEST(PrefixAdapterTest, PrefixesOfOtherAdaptersAreNotUsed) {
  const Golden golden("gemma3-lora-a");
  const Weights base = load_model(test_data("gemma3-a"));
  const auto adapter = load_lora(golden.folder(), base);
  TransformerModel model(base, paged_kv());
  PrefixStore store(1 << 26);
  const Tokens prompt = {2, 5, 7, 9, 11};
  const Tensor plain = store.prefill(model, prompt, {}).logits;
  const CachedPrefix prefix = cached_prefix(model, prompt);
  model.truncate(0);
  model.push_adapter({adapter});
  const Tensor adapted = store.prefill(model, prompt, {}).logits;
  EXPECT_FALSE(at::equal(plain, adapted));
  EXPECT_EQ(store.statistics().hits, 0);
  EXPECT_EQ(store.entries(), 2);
  EXPECT_THROW(prime_with_prefix(model, prompt, prefix), SnapshotModelError);
  EXPECT_EQ(model.length(), 5);
  EXPECT_TRUE(at::equal(store.prefill(model, prompt, {}).logits, adapted));
  EXPECT_EQ(store.statistics().hits, 1);
  model.truncate(0);
  model.clear_adapters();
  EXPECT_TRUE(at::equal(store.prefill(model, prompt, {}).logits, plain));
  EXPECT_EQ(store.statistics().hits, 2);
}

}  // namespace
}  // namespace specdec
