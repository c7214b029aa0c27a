// The promise of every registered cache: an exact one gives the bits of the paged one.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "core/error.h"
#include "core/transformer/transformer_model.h"
#include "experiments/components/components.h"
#include "kv/kv_cache.h"
#include "tests/support/error_message.h"
#include "tests/support/tiny_gemma.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kCacheVocab = 40;

/// Two models with different caches, which take the same steps: chains and trees on up to three
/// rows, commits, truncations, snapshots, forks and closed rows.
class CachePair {
 public:
  CachePair(const KvStoreFactory& cache, KvFormat format, uint32_t seed)
      : random_(seed),
        weights_(tiny_gemma(kCacheVocab, at::kFloat)),
        model_(weights_, cache),
        plain_(weights_, paged_kv(kDefaultPageSize, format)) {}

  void step() {
    switch (below(7)) {
      case 0:
        return both([length = model_.rewindable_to(below(model_.length() + 1))](auto& m) {
          m.truncate(length);
        });
      case 1:
        return change_rows();
      case 2:
        return restore();
      default:
        return forward();
    }
  }

 private:
  template <class F>
  void both(const F& change) {
    change(model_);
    change(plain_);
  }
  int64_t below(int64_t bound) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(bound));
  }

  void forward() {
    const RowId row = any_row();
    std::vector<Token> tokens(static_cast<size_t>(1 + below(9)));
    std::vector<int64_t> rows(tokens.size(), row);
    std::vector<int64_t> parents(tokens.size());
    both([&](auto& m) { m.truncate(m.length(row), row); });
    if (model_.length(row) + std::ssize(tokens) > model_.max_length()) {
      return both([&](auto& m) { m.truncate(0, row); });
    }
    for (size_t node = 0; node < tokens.size(); ++node) {
      tokens[node] = static_cast<Token>(below(kCacheVocab));
      parents[node] = below(2) == 0 ? static_cast<int64_t>(node) - 1
                                    : below(static_cast<int64_t>(node) + 1) - 1;
    }
    const TokenBatch batch{
        .tokens = at::tensor(tokens, at::kInt), .rows = rows, .parents = parents};
    ASSERT_TRUE(at::equal(model_.forward(batch).logits, plain_.forward(batch).logits));
    std::vector<int64_t> path;
    for (int64_t node = below(std::ssize(tokens)); node >= 0;
         node = parents[static_cast<size_t>(node)]) {
      path.insert(path.begin(), node);
    }
    both([&](auto& m) { m.commit(path, row); });
  }

  RowId any_row() {
    const std::vector<RowId> rows = model_.cache().rows();
    return rows[static_cast<size_t>(below(std::ssize(rows)))];
  }

  void change_rows() {
    const RowId row = any_row();
    if (model_.cache().rows().size() < 3) {
      const int64_t length = model_.rewindable_to(below(model_.length(row) + 1), row);
      both([&](auto& m) { m.fork(row, length); });
    } else if (row != 0) {
      both([&](auto& m) { m.close(row); });
    }
  }

  void restore() {
    const int64_t length = model_.rewindable_to(below(model_.length() + 1));
    both([&](auto& m) {
      m.truncate(m.length());
      const auto snapshot = m.snapshots()->kv_snapshot(0);
      m.truncate(0);
      m.snapshots()->kv_restore(*snapshot, length);
    });
  }

  std::mt19937 random_;
  std::shared_ptr<TransformerWeights> weights_;
  TransformerModel model_;
  TransformerModel plain_;
};

TEST(CachesTest, ExactCachesGiveTheSameBits) {
  const c10::InferenceMode guard;
  const Components all = builtin_components();
  for (const auto& [type, entry] : all.caches.entries()) {
    ASSERT_FALSE(entry.examples.empty()) << type;
    if (entry.promise == Promise::kLossy) {
      continue;
    }
    for (const Example& example : entry.examples) {
      for (const KvFormat format : kKvFormats) {
        SCOPED_TRACE(example.yaml);
        CachePair pair(parse_cache(example.yaml, all).factory(format), format, 3);
        for (int step = 0; step < 60 && !testing::Test::HasFatalFailure(); ++step) {
          pair.step();
        }
      }
    }
  }
}

TEST(CachesTest, AWindowThatNoTokenLeavesGivesTheSameBits) {
  const c10::InferenceMode guard;
  const CacheChoice choice =
      parse_cache("{type: window, sink: 3, recent: 4096, lossy: true}", builtin_components());
  CachePair pair(choice.factory(KvFormat::kNative), KvFormat::kNative, 5);
  for (int step = 0; step < 60 && !testing::Test::HasFatalFailure(); ++step) {
    pair.step();
  }
}

TEST(CachesTest, AWindowThinsLayersOfFullAttention) {
  const auto weights = tiny_gemma(kCacheVocab, at::kFloat);
  const CacheChoice choice =
      parse_cache("{type: window, sink: 2, recent: 5, lossy: true}", builtin_components());
  EXPECT_THAT(choice.loss, HasSubstr("type: window"));
  TransformerModel model(weights, choice.factory(KvFormat::kNative));
  bool has_full = false;
  for (size_t layer = 0; layer < weights->plan.size(); ++layer) {
    const int64_t own = weights->plan[layer].window;
    const KvView view = model.cache().view(static_cast<int64_t>(layer));
    EXPECT_EQ(view.window, own > 0 ? own : 5);
    EXPECT_EQ(view.sink, own > 0 ? 0 : 2);
    has_full = has_full || own == 0;
  }
  EXPECT_TRUE(has_full);
  TransformerModel plain(weights, paged_kv());
  EXPECT_NE(model.snapshots()->kv_key(), plain.snapshots()->kv_key());
}

TEST(CachesTest, AnUnknownTypeOrOptionNamesTheKnownOnes) {
  const Components all = builtin_components();
  const auto error = [&](const std::string& text) {
    return error_message<ConfigError>([&] { (void)parse_cache(text, all); });
  };
  EXPECT_THAT(error("radox"), HasSubstr("unknown type 'radox'"));
  EXPECT_THAT(error("{type: paged, page_size: 0}"), HasSubstr("page_size"));
  EXPECT_THAT(error("{type: contiguous, page_size: 8}"), HasSubstr("page_size: unknown key"));
  EXPECT_EQ(parse_cache("", all).yaml, "");
  EXPECT_THAT(parse_cache("paged", all).yaml, HasSubstr("page_size: 16"));
}

TEST(CachesTest, ALossyFormatOfATargetSaysSo) {
  const Components all = builtin_components();
  const auto error = [&](const std::string& text) {
    return error_message<ConfigError>([&] { (void)parse_cache(text, all); });
  };
  EXPECT_THAT(error("{type: paged, format: q8}"), HasSubstr("say so with lossy: true"));
  EXPECT_THAT(error("{type: paged, lossy: true}"),
              HasSubstr("type and format of the cache are exact"));
  EXPECT_THAT(error("window"), HasSubstr("changes what the target sees"));
  EXPECT_THAT(error("{type: paged, format: bfloat16, lossy: true}"),
              HasSubstr("values of the model's kv_dtype"));
  for (const char* type : {"paged", "contiguous"}) {
    for (const KvFormat format : {KvFormat::kFloat16, KvFormat::kFp8E4m3, KvFormat::kQ8,
                                  KvFormat::kQ4, KvFormat::kQ3, KvFormat::kHierarchical}) {
      const auto text =
          fmt::format("{{type: {}, format: {}, lossy: true}}", type, kv_format_name(format));
      const CacheChoice choice = parse_cache(text, all);
      EXPECT_EQ(choice.format, format);
      EXPECT_THAT(choice.yaml, AllOf(HasSubstr(kv_format_name(format)), HasSubstr("lossy: true")));
      TransformerModel model(tiny_gemma(kCacheVocab, at::kFloat),
                             choice.factory(KvFormat::kNative));
      EXPECT_EQ(model.cache().view(0).format, format);
    }
  }
}

TEST(CachesTest, ARotationIsSaidWithAFormatThatHasScales) {
  const Components all = builtin_components();
  const auto error = [&](const std::string& text) {
    return error_message<ConfigError>([&] { (void)parse_cache(text, all); });
  };
  EXPECT_THAT(error("{type: paged, rotation: hadamard}"), HasSubstr("formats with scales"));
  EXPECT_THAT(error("{type: paged, format: float16, rotation: hadamard, lossy: true}"),
              HasSubstr("give format: q8, q4, q3 or hierarchical"));
  EXPECT_THAT(error("{type: paged, format: q4, rotation: fourier, lossy: true}"),
              HasSubstr("unknown rotation 'fourier'; known: none, hadamard"));
  for (const char* type : {"paged", "contiguous", "window"}) {
    const CacheChoice choice = parse_cache(
        fmt::format("{{type: {}, format: q4, rotation: hadamard, lossy: true}}", type), all);
    TransformerModel model(tiny_gemma(kCacheVocab, at::kFloat), choice.factory(KvFormat::kNative));
    EXPECT_EQ(model.cache().view(0).rotation, KvRotation::kHadamard);
    EXPECT_THAT(choice.loss, HasSubstr("rotation: hadamard"));
  }
}

TEST(CachesTest, AFormatIsSaidOnce) {
  ModelOptions options{.dtype = "", .kv_dtype = "bfloat16"};
  options.cache = parse_cache("{type: paged, format: q4, lossy: true}", builtin_components());
  EXPECT_THAT(error_message<ConfigError>([&] { (void)kv_format_of(options); }),
              HasSubstr("kv_dtype bfloat16 and the cache's format q4"));
  options.kv_dtype.clear();
  EXPECT_EQ(kv_format_of(options), KvFormat::kQ4);
  EXPECT_EQ(kv_format_of({.dtype = "", .kv_dtype = "bfloat16"}), KvFormat::kBFloat16);
}

TEST(CachesTest, ABudgetBelowAPageIsAnError) {
  const auto cache =
      parse_cache("{type: paged, page_size: 1000000, megabytes: 1}", builtin_components());
  EXPECT_THAT(error_message<Error>([&] {
                TransformerModel(tiny_gemma(kCacheVocab, at::kFloat),
                                 cache.factory(KvFormat::kNative));
              }),
              HasSubstr("raise the cache's megabytes"));
}

}  // namespace
}  // namespace specdec
