// A text that is read in pieces: the error of a cache without room names what all of it needs.
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/cache_room_error.h"
#include "core/transformer/transformer_model.h"
#include "experiments/components/builtin/builtin.h"
#include "experiments/components/memory_needs.h"
#include "tests/support/error_message.h"
#include "tests/support/golden.h"
#include "tests/support/tiny_gemma.h"

namespace specdec {
namespace {

using testing::HasSubstr;

constexpr int64_t kLongText = 920;

std::unique_ptr<LanguageModel> model_over(const std::string& cache) {
  return std::make_unique<TransformerModel>(
      tiny_gemma(40, at::kFloat),
      parse_cache(cache, builtin_components()).factory(KvFormat::kNative),
      TransformerOptions{.max_length = kLongText});
}

std::string prefill_error(const std::string& cache) {
  const c10::InferenceMode guard;
  const std::vector<Token> text(kLongText, 3);
  const auto model = model_over(cache);
  const std::string message =
      error_message<CacheRoomError>([&] { (void)model->prefill_get_last_logits(text); });
  EXPECT_EQ(model->length(), message == "no error" ? kLongText : 0);
  return message;
}

TEST(CacheRoomTest, APromptInPiecesIsCountedWhole) {
  for (const char* pages : {"10", "32", "57"}) {  // the first piece alone takes 32
    EXPECT_THAT(prefill_error(fmt::format("{{type: paged, max_pages: {}}}", pages)),
                HasSubstr(fmt::format("holds {} pages of 16 tokens, not 58: ", pages)));
  }
  EXPECT_EQ(prefill_error("{type: paged, max_pages: 58}"), "no error");
}

TEST(CacheRoomTest, ABudgetIsNamedInMebibytes) {
  const char* budget = "{{type: paged, page_size: 512, megabytes: {}}}";
  EXPECT_THAT(prefill_error("{type: paged, max_pages: 10, megabytes: 1}"),
              HasSubstr("holds 10 pages of 16 tokens, not 58 (1 MiB): "));
  EXPECT_EQ(prefill_error(fmt::format(fmt::runtime(budget), 1)), "no error");
}

TEST(CacheRoomTest, RowsAndWindowsAreNotCountedAgain) {
  const CacheRoomError rows({.holds = "1 rows", .advice = "raise it", .needed = 2});
  EXPECT_EQ(std::string(rows.of_text(512, 920).what()), rows.what());
  EXPECT_STREQ(rows.what(), "the key/value cache holds 1 rows, not 2: raise it");
  const CacheRoomError pages({.holds = "9 pages",
                              .advice = "raise it",
                              .needed = 33,
                              .page_size = 16,
                              .page_bytes = 100'000});
  EXPECT_THAT(pages.of_text(512, 920).what(), HasSubstr("not 59 (6 MiB)"));
  EXPECT_EQ(std::string(pages.of_text(920, 920).what()), pages.what());
}

TEST(CacheRoomTest, AContextThatIsInspectedIsCountedWhole) {
  const ModelFiles files = read_model_files(SPECDEC_SOURCE_DIR "/models/target");
  const auto needs = [&](const std::string& cache) {
    ModelOptions options{.dtype = ""};
    options.cache = parse_cache(cache, builtin_components());
    return error_message<CacheRoomError>([&] { (void)memory_needs(files, options, 1000); });
  };
  EXPECT_THAT(needs("{type: paged, megabytes: 1}"),
              HasSubstr("21 pages of 16 tokens, not 63 (3 MiB)"));
  EXPECT_THAT(needs("{type: paged, megabytes: 2}"), HasSubstr("not 63 (3 MiB)"));
  EXPECT_EQ(needs("{type: paged, megabytes: 3}"), "no error");
  EXPECT_EQ(needs("{type: paged, max_pages: 63}"), "no error");
}

}  // namespace
}  // namespace specdec
