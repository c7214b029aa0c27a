// The target's own weights draft over the upper halves of its cache, or over a lossy cache that
// follows it, over tiny random Gemmas: drafts differ from what the target would say, the output
// does not, and nothing of a draft's forwards is kept.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/transformer/transformer_model.h"
#include "decoders/autoregressive.h"
#include "decoders/drafters/self_drafter.h"
#include "decoders/shapes/draft_length.h"
#include "decoders/shapes/static_tree.h"
#include "decoders/speculative.h"
#include "decoders/verifiers/exact_match.h"
#include "decoders/verifiers/rejection.h"
#include "kv/compressed_store.h"
#include "kv/kv_cache.h"
#include "kv/paged_kv.h"
#include "tests/support/sequence_distribution.h"
#include "tests/support/tiny_gemma.h"

namespace specdec {
namespace {

using SelfWeights = std::shared_ptr<const TransformerWeights>;

/// A target's cache, and what drafts read: its upper halves, or a cache that follows it.
struct SelfCase {
  std::string name;
  KvFormat target = KvFormat::kNative;
  KvStoreFactory draft = nullptr;  ///< nullptr = the upper halves
  std::vector<Token> prompt = {1, 2, 0, 1, 0};
};

void PrintTo(const SelfCase& one, std::ostream* out) { *out << one.name; }

KvStoreFactory window_kv(int64_t recent) {
  return [recent](std::vector<LayerKv> layers, const KvStoreOptions& options) {
    for (LayerKv& layer : layers) {
      layer.sink = layer.window == 0 ? 1 : 0;
      layer.window = layer.window == 0 ? recent : layer.window;
    }
    return paged_kv(4)(std::move(layers), options);
  };
}

KvStoreFactory compressed_kv(const Pooling& pooling) {
  return [pooling](const std::vector<LayerKv>& layers, const KvStoreOptions& options) {
    return std::make_unique<CompressedStore>(paged_kv(4)(layers, options), layers, pooling);
  };
}

KvStoreFactory exact_recent_kv(KvFormat format, int64_t recent) {
  return [format, recent](const std::vector<LayerKv>& layers, const KvStoreOptions& options) {
    return std::make_unique<KvCache>(layers, KvCacheOptions{.dtype = options.dtype,
                                                            .format = format,
                                                            .page_size = 4 * kv_key_group(format),
                                                            .max_length = options.max_length,
                                                            .exact_recent = recent});
  };
}

/// A prompt whose first group of keys drafts read in their format, with 32 recent tokens as they
/// are.
std::vector<Token> group_and_more() {
  std::vector<Token> tokens(2 * kKeyGroup);
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<Token>(i * i % 3);
  }
  return tokens;
}

KvStoreFactory rotated_kv(KvFormat format) {
  return paged_kv(4, format, 0, 0, KvRotation::kHadamard);
}

/// A target, and a strategy that drafts with its weights.
struct SelfDecoding {
  SelfDecoding(const SelfCase& one, const SelfWeights& weights, std::unique_ptr<Verifier> verifier,
               std::unique_ptr<DraftShape> shape)
      : target(weights, paged_kv(4, one.target)) {
    auto own = one.draft ? std::make_unique<TransformerModel>(weights, one.draft) : nullptr;
    copy = own.get();
    decoding = std::make_unique<SpeculativeDecoding>(
        target,
        std::make_unique<SelfDrafter>(target, SelfDrafterOptions{.upper_half = copy == nullptr},
                                      std::move(own)),
        std::move(verifier), std::move(shape));
  }

  TransformerModel target;
  TransformerModel* copy = nullptr;  ///< that drafts; nullptr = the target does
  std::unique_ptr<SpeculativeDecoding> decoding;
};

std::vector<std::unique_ptr<DraftShape>> self_shapes() {
  std::vector<std::unique_ptr<DraftShape>> all;
  all.push_back(std::make_unique<FixedDraftLength>(3));
  all.push_back(std::make_unique<StaticTreeShape>(tree_of_paths({{0}, {1}, {0, 0}, {0, 0, 0}})));
  return all;
}

Tensor next_logits(TransformerModel& model, TokenSpan text, KvRead read) {
  model.prefill_get_last_logits(text.first(text.size() - 1));
  ForwardOptions options;
  options.kv_read = read;
  const Tensor logits =
      model.forward({.tokens = token_tensor(text.last(1)), .rows = {}, .parents = {}}, options)
          .logits;
  model.truncate(model.length());
  return logits;
}

class SelfCacheTest : public testing::TestWithParam<SelfCase> {
 protected:
  SelfCacheTest() { at::set_num_threads(1); }
  ~SelfCacheTest() override { at::set_num_threads(threads_); }

 private:
  int threads_ = at::get_num_threads();
};

TEST_P(SelfCacheTest, TheOutputsDistributionIsTheTargets) {
  const SelfCase& one = GetParam();
  const SelfWeights weights = tiny_gemma(3, at::kFloat);
  TransformerModel oracle(weights, paged_kv(16, one.target));
  const LogitTable table = [&](TokenSpan history) {
    const Tensor logits = oracle.prefill_get_last_logits(history);
    const float* data = logits.const_data_ptr<float>();
    return std::vector<double>(data, data + logits.numel());
  };
  const Task task{
      .prompt = one.prompt, .sampling = {.temperature = 0.8}, .stop = {.max_new_tokens = 3}};
  TransformerModel drafting(weights, one.draft ? one.draft : paged_kv(4, one.target));
  EXPECT_FALSE(
      at::equal(next_logits(drafting, task.prompt, one.draft ? KvRead::kAll : KvRead::kUpperHalf),
                next_logits(oracle, task.prompt, KvRead::kAll)))
      << "the draft's distribution is another one";
  const SequenceDistribution expected = reference_distribution(table, task);
  for (auto& shape : self_shapes()) {
    const SelfDecoding self(one, weights, std::make_unique<RejectionVerifier>(), std::move(shape));
    EXPECT_LE(max_difference(exact_distribution(*self.decoding, task), expected),
              kSameDistribution);
  }
}

/// What a layer holds of the tokens that both caches keep.
void expect_same_keys(const TransformerModel& a, const TransformerModel& b, int64_t tokens,
                      int64_t layer) {
  const auto of = [&](const TransformerModel& model) {
    return model.internals()->key_values(layer, 0, {0, tokens});
  };
  EXPECT_TRUE(at::equal(of(a).first, of(b).first)) << "keys of layer " << layer;
  EXPECT_TRUE(at::equal(of(a).second, of(b).second)) << "values of layer " << layer;
}

/// Two requests, the second of which begins otherwise: the tokens, and what the caches hold, are
/// those of plain decoding, and the copy holds the target's numbers, rounded once.
TEST_P(SelfCacheTest, NothingOfADraftsForwardsIsKept) {
  const SelfCase& one = GetParam();
  const SelfWeights weights = tiny_gemma(97, at::kFloat);
  for (auto& shape : self_shapes()) {
    SelfDecoding self(one, weights, std::make_unique<ExactMatchVerifier>(), std::move(shape));
    for (const Token first : {3, 5}) {
      const Task task{.prompt = {first, 1, 4, 50, 9}, .stop = {.max_new_tokens = 30}};
      CounterRandomness random(1);
      TransformerModel plain(weights, paged_kv(16, one.target));
      const auto tokens = AutoregressiveDecoding(plain).generate(task.request(random)).tokens;
      EXPECT_EQ(self.decoding->generate(task.request(random)).tokens, tokens);
      const int64_t kept = std::min(self.target.length(), plain.length());
      ASSERT_GT(kept, 30);
      for (int64_t layer = 0; layer < 3; ++layer) {
        expect_same_keys(self.target, plain, kept, layer);
      }
      if (self.copy == nullptr) {
        continue;
      }
      TransformerModel rounded(weights, one.draft);
      rounded.snapshots()->kv_follow(*plain.internals(), self.copy->length());
      EXPECT_GT(self.copy->length(), 20);
      EXPECT_EQ(self.copy->pending(), 0);
      for (int64_t layer = 0; layer < 3; ++layer) {
        expect_same_keys(*self.copy, rounded, self.copy->length(), layer);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Caches, SelfCacheTest,
    testing::Values(SelfCase{"upper_half", KvFormat::kHierarchical},
                    SelfCase{"q4", KvFormat::kNative, paged_kv(4, KvFormat::kQ4)},
                    SelfCase{"q3", KvFormat::kNative, paged_kv(4, KvFormat::kQ3)},
                    SelfCase{"rotated_q4", KvFormat::kNative, rotated_kv(KvFormat::kQ4)},
                    SelfCase{"q3_exact_recent", KvFormat::kNative,
                             exact_recent_kv(KvFormat::kQ3, 2)},
                    SelfCase{"kivi2", KvFormat::kNative, exact_recent_kv(KvFormat::kKivi2, 32),
                             group_and_more()},
                    SelfCase{"window", KvFormat::kNative, window_kv(2)},
                    SelfCase{"compressed", KvFormat::kNative,
                             compressed_kv({.chunk = 2, .recent = 3, .sink = 0})},
                    SelfCase{"q4_of_q8", KvFormat::kQ8, paged_kv(4, KvFormat::kQ4)}),
    [](const auto& info) { return info.param.name; });

/// Drafted tokens that are accepted with a cache of drafts.
int64_t accepted_with(const KvStoreFactory& draft) {
  const SelfWeights weights = tiny_gemma(97, at::kFloat);
  int64_t accepted = 0;
  for (Token first = 0; first < 4; ++first) {
    const SelfDecoding self({"accepted", KvFormat::kNative, draft}, weights,
                            std::make_unique<ExactMatchVerifier>(),
                            std::make_unique<FixedDraftLength>(4));
    const Task task{.prompt = {first, 1, 4, 50, 9}, .stop = {.max_new_tokens = 40}};
    CounterRandomness random(1);
    for (const StepStatistics& step : self.decoding->generate(task.request(random)).steps) {
      accepted += step.accepted;
    }
  }
  return accepted;
}

TEST(SelfCacheAcceptanceTest, ExactRecentTokensDraftBetter) {
  const int64_t rounded = accepted_with(paged_kv(4, KvFormat::kQ3));
  const int64_t exact = accepted_with(exact_recent_kv(KvFormat::kQ3, 16));
  EXPECT_GT(exact, rounded);
  EXPECT_GE(accepted_with(exact_recent_kv(KvFormat::kQ3, 100)), exact) << "nothing is rounded";
}

/// One page holds less than the target's prompt, two no draft of it: what overflows is the cache of
/// the drafter, which the error says.
TEST(SelfCacheErrorsTest, ACacheThatIsTooSmallIsNamed) {
  const SelfWeights weights = tiny_gemma(97, at::kFloat);
  for (const int64_t pages : {1, 2}) {
    SelfDecoding self({"small", KvFormat::kNative, paged_kv(4, KvFormat::kQ4, pages)}, weights,
                      std::make_unique<ExactMatchVerifier>(),
                      std::make_unique<FixedDraftLength>(5));
    CounterRandomness random(1);
    const Task task{.prompt = {3, 1, 4, 50, 9, 2, 6}, .stop = {.max_new_tokens = 8}};
    try {
      (void)self.decoding->generate(task.request(random));
      FAIL() << "accepted with " << pages << " pages";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("drafter.cache, not model.cache"), std::string::npos)
          << error.what();
    }
  }
}

TEST(UpperHalfTest, NodesThatReadItAreDraftsOnly) {
  TransformerModel model(tiny_gemma(97, at::kFloat), paged_kv(4, KvFormat::kHierarchical));
  model.prefill_get_last_logits(std::vector<Token>{3, 1, 4});
  ForwardOptions upper;
  upper.kv_read = KvRead::kUpperHalf;
  const TokenBatch one{.tokens = token_tensor(std::vector<Token>{5}), .rows = {}, .parents = {}};
  (void)model.forward(one, upper);
  (void)model.forward(one, upper);
  EXPECT_EQ(model.pending(), 2) << "a draft may go on";
  EXPECT_THROW((void)model.forward(one), InternalError) << "a full node after a draft's";
  EXPECT_THROW(model.commit(std::vector<int64_t>{0}), InternalError);
  model.truncate(3);
  (void)model.forward(one);
  model.commit(std::vector<int64_t>{0});
  EXPECT_EQ(model.length(), 4);
}

TEST(UpperHalfTest, OtherFormatsHaveNone) {
  for (const KvFormat format : {KvFormat::kNative, KvFormat::kQ8}) {
    TransformerModel model(tiny_gemma(97, at::kFloat), paged_kv(4, format));
    ForwardOptions upper;
    upper.kv_read = KvRead::kUpperHalf;
    try {
      (void)model.forward(
          {.tokens = token_tensor(std::vector<Token>{5}), .rows = {}, .parents = {}}, upper);
      FAIL() << "accepted";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("needs a cache of format hierarchical"),
                std::string::npos)
          << error.what();
    }
    EXPECT_EQ(model.pending(), 0);
  }
}

}  // namespace
}  // namespace specdec
