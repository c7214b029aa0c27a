// Caches whose recent tokens are read as they are (exact_recent of a cache's YAML).
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "core/transformer/transformer_model.h"
#include "experiments/components/builtin/builtin.h"
#include "experiments/components/components.h"
#include "experiments/components/memory_needs.h"
#include "tests/support/cache_pair.h"
#include "tests/support/error_message.h"
#include "tests/support/tiny_gemma.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kExactVocab = 40;

KvStoreFactory factory_of(const std::string& yaml) {
  return parse_cache(yaml, builtin_components()).factory(KvFormat::kNative);
}

ModelOptions options_of(const std::string& yaml) {
  ModelOptions options;
  options.cache = parse_cache(yaml, builtin_components());
  return options;
}

void step_both(CachePair& pair) {
  for (int step = 0; step < 60 && !testing::Test::HasFatalFailure(); ++step) {
    pair.step();
  }
}

TEST(ExactRecentCachesTest, TokensThatAreAllRecentHaveAFloat32CachesBits) {
  const c10::InferenceMode guard;
  for (const char* type : {"paged", "contiguous"}) {
    const std::string yaml =
        fmt::format("{{type: {}, format: q3, exact_recent: 4096, lossy: true}}", type);
    CachePair pair(tiny_gemma(kExactVocab, at::kFloat), factory_of(yaml), KvFormat::kNative, 5);
    step_both(pair);
  }
}

TEST(ExactRecentCachesTest, ChainsTreesForksAndSnapshotsHaveTheBitsOfACacheThatKeepsAll) {
  const c10::InferenceMode guard;
  for (const char* options :
       {"format: q4, exact_recent: 3", "format: q3, rotation: hadamard, exact_recent: 6",
        "format: float16, exact_recent: 1", "format: hierarchical, exact_recent: 9",
        "format: kivi2, exact_recent: 32"}) {
    SCOPED_TRACE(options);
    const bool grouped = std::string(options).find("kivi") != std::string::npos;
    CachePair pair(tiny_gemma(kExactVocab, at::kFloat),
                   factory_of(fmt::format("{{type: paged, page_size: {}, window_slack: 5, {}, "
                                          "lossy: true}}",
                                          grouped ? 32 : 2, options)),
                   factory_of(fmt::format("{{type: contiguous, {}, lossy: true}}", options)), 7);
    step_both(pair);
  }
}

/// The logits of a text's last token, fed in pieces of `piece` tokens.
Tensor logits_in_pieces(TransformerModel& model, const std::vector<Token>& text, size_t piece) {
  model.truncate(0);
  Tensor logits;
  for (size_t first = 0; first < text.size(); first += piece) {
    const auto count = std::min(piece, text.size() - first);
    const auto begin = text.begin() + static_cast<int64_t>(first);
    const std::vector<Token> part(begin, begin + static_cast<int64_t>(count));
    logits = model.forward({.tokens = at::tensor(part, at::kInt)}).logits.clone();
    std::vector<int64_t> path(count);
    std::iota(path.begin(), path.end(), 0);
    model.commit(path);
  }
  return logits[logits.size(0) - 1];
}

TEST(ExactRecentCachesTest, BitsDependOnTheTextAlone) {
  const c10::InferenceMode guard;
  const auto weights = tiny_gemma(kExactVocab, at::kFloat);
  std::vector<Token> text(40);
  std::iota(text.begin(), text.end(), 0);
  for (const char* options :
       {"type: paged", "type: paged, window_slack: 2", "type: window, sink: 1, recent: 12",
        "type: compressed, chunk: 4, recent: 12, sink: 1"}) {
    SCOPED_TRACE(options);
    const auto of = [&](const char* exact) {
      return TransformerModel(
          weights, factory_of(fmt::format("{{{}, format: q4{}, lossy: true}}", options, exact)));
    };
    TransformerModel model = of(", exact_recent: 5");
    TransformerModel rounded = of("");
    const Tensor at_once = logits_in_pieces(model, text, text.size());
    EXPECT_TRUE(at::equal(logits_in_pieces(model, text, 1), at_once));
    EXPECT_TRUE(at::equal(logits_in_pieces(model, text, 7), at_once));
    EXPECT_FALSE(at::equal(logits_in_pieces(rounded, text, 7), at_once));
    EXPECT_NE(model.snapshots()->kv_key(), rounded.snapshots()->kv_key());
  }
}

/// Formats with groups of keys, whose groups end in the middle of pieces.
TEST(ExactRecentCachesTest, BitsOfGroupsOfKeysDependOnTheTextAlone) {
  const c10::InferenceMode guard;
  const auto weights = tiny_gemma(kExactVocab, at::kFloat);
  std::vector<Token> text(140);
  std::iota(text.begin(), text.end(), 0);
  std::transform(text.begin(), text.end(), text.begin(),
                 [](Token token) { return token * token % Token{kExactVocab}; });
  for (const char* options :
       {"type: paged, format: kivi2", "type: paged, page_size: 64, window_slack: 2, format: kivi4",
        "type: window, sink: 1, recent: 70, format: kivi2", "type: contiguous, format: kivi4"}) {
    SCOPED_TRACE(options);
    TransformerModel model(
        weights, factory_of(fmt::format("{{{}, exact_recent: 33, lossy: true}}", options)));
    const Tensor at_once = logits_in_pieces(model, text, text.size());
    EXPECT_TRUE(at::equal(logits_in_pieces(model, text, 1), at_once));
    EXPECT_TRUE(at::equal(logits_in_pieces(model, text, 45), at_once));
    TransformerModel exact(weights, factory_of("paged"));
    EXPECT_FALSE(at::equal(logits_in_pieces(exact, text, 45), at_once));
  }
}

TEST(ExactRecentCachesTest, TheMemoryThatInspectSaysCountsBothForms) {
  const c10::InferenceMode guard;
  const ModelOptions options =
      options_of("{type: paged, format: q4, exact_recent: 32, lossy: true}");
  const ModelOptions plain = options_of("{type: paged, format: q4, lossy: true}");
  const ModelFiles files = read_model_files(SPECDEC_SOURCE_DIR "/models/target");
  const MemoryNeeds needs = memory_needs(files, options, 1000);
  TransformerModel model(load_model(*files.open, {}), options.cache.factory(KvFormat::kNative));
  (void)model.prefill(std::vector<Token>(1000, 5), {.logits = Logits::kLast});
  EXPECT_EQ(model.cache().statistics().allocated_bytes(), needs.cache());
  // While the second piece is read: 6 layers, pages of 16 tokens, of which the first 512 tokens
  // have left (512 - 32 - 64) / 16 behind, of a head of 64 dimensions.
  constexpr int64_t kPageBytes = 16 * 2 * 64 * 4;
  EXPECT_EQ(needs.cache() - memory_needs(files, plain, 1000).cache(), 6 * (63 - 26) * kPageBytes);
  // A GPU takes at once what a row of 1,024 tokens needs, with a page begun at either end.
  ModelOptions on_gpu = options;
  ModelOptions plain_on_gpu = plain;
  on_gpu.device = plain_on_gpu.device = "cuda";
  EXPECT_EQ(
      memory_needs(files, on_gpu, 1000).cache() - memory_needs(files, plain_on_gpu, 1000).cache(),
      6 * ((32 + 64 + 512) / 16 + 1) * kPageBytes);
  // A format with groups of keys, which takes 40 bytes for a key or value of 64 dimensions, has
  // pages of 32 tokens and reads up to 31 more as they are.
  ModelOptions grouped = options_of("{type: paged, format: kivi4, exact_recent: 32, lossy: true}");
  grouped.device = "cuda";
  EXPECT_EQ(memory_needs(files, grouped, 1000).cache(),
            6 * (32 * (32 * 2 * 40) + ((63 + 64 + 512 + 31) / 32 + 1) * (2 * kPageBytes)));
}

TEST(ExactRecentCachesTest, ItStandsBesideAFormat) {
  const Components all = builtin_components();
  const auto error = [&](const std::string& text) {
    return error_message<ConfigError>([&] { (void)parse_cache(text, all); });
  };
  EXPECT_THAT(error("{type: paged, exact_recent: 8}"),
              AllOf(HasSubstr("exact_recent"), HasSubstr("give format: float16")));
  EXPECT_THAT(error("{type: paged, format: q4, exact_recent: -1, lossy: true}"),
              HasSubstr("exact_recent"));
  EXPECT_THAT(error("{type: tiered, format: q4, exact_recent: 8, lossy: true}"),
              HasSubstr("is not for a cache of type tiered"));
  EXPECT_THAT(
      error("{type: tracing, of: {type: tiered}, format: q4, exact_recent: 8, lossy: true}"),
      HasSubstr("is not for a cache of type tiered"));
  EXPECT_THAT(error("{type: tracing, of: {type: paged, exact_recent: 8}}"),
              HasSubstr("belongs beside 'of'"));
  const CacheChoice choice = parse_cache(
      "{type: tracing, of: {type: paged}, format: q4, exact_recent: 8, lossy: true}", all);
  EXPECT_EQ(choice.exact_recent, 8);
  EXPECT_THAT(choice.loss, HasSubstr("exact_recent: 8"));
  TransformerModel model(tiny_gemma(kExactVocab, at::kFloat), choice.factory(KvFormat::kNative));
  EXPECT_EQ(model.cache().describe(0).exact.recent > 0, true);
}

}  // namespace
}  // namespace specdec
