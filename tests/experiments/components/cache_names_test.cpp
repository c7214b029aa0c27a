// Names that users give where a cache is read: a type alone, formats, and what stands elsewhere.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "experiments/components/builtin/builtin.h"
#include "tests/experiments/cli/cli_result.h"
#include "tests/support/error_message.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string cache_mistake(const std::string& text) {
  return error_message<ConfigError>([&] { (void)parse_cache(text, builtin_components()); });
}

TEST(CacheNamesTest, ATypeAloneNamesATracedCache) {
  const Components all = builtin_components();
  EXPECT_EQ(parse_cache("{type: tracing, of: contiguous}", all).yaml,
            parse_cache("{type: tracing, of: {type: contiguous}}", all).yaml);
  EXPECT_EQ(parse_cache("{type: tracing, of: tiered}", all).tiers.memory_bytes,
            int64_t{256} << 20U);
  EXPECT_THAT(parse_cache("{type: tracing, of: window, lossy: true}", all).loss,
              HasSubstr("type: window"));
}

TEST(CacheNamesTest, AMistakeIsSaidOnce) {
  const std::string found = cache_mistake("{type: tracing, of: windo, lossy: true}");
  EXPECT_THAT(found, AllOf(HasSubstr("cache.of: unknown type 'windo'; did you mean 'window'?"),
                           Not(HasSubstr("are exact"))));
  EXPECT_THAT(cache_mistake("{type: pagd, lossy: true}"),
              AllOf(HasSubstr("did you mean 'paged'?"), Not(HasSubstr("are exact"))));
}

TEST(CacheNamesTest, ATraceIsNotTraced) {
  for (const char* of : {"tracing", "{type: tracing}", "{type: tracing, of: contiguous}"}) {
    EXPECT_THAT(cache_mistake(std::string("{type: tracing, of: ") + of + "}"),
                HasSubstr("cache.of.type: is a trace itself"))
        << of;
  }
}

TEST(CacheNamesTest, NothingIsAnUnknownType) {
  for (const char* text : {"null", "~"}) {
    EXPECT_THAT(cache_mistake(text), HasSubstr("unknown type '" + std::string(text) + "'"));
  }
}

TEST(CacheNamesTest, AFormatInPlaceOfATypeIsExplained) {
  for (const char* name :
       {"float16", "fp8_e4m3", "q8", "q4", "q3", "hierarchical", "kivi2", "kivi4"}) {
    const std::string wanted = fmt::format("{0} is a format: {{type: paged, format: {0}", name);
    EXPECT_THAT(cache_mistake(name), AllOf(HasSubstr(wanted), Not(HasSubstr("unknown"))));
    EXPECT_EQ(cache_mistake(fmt::format("{{type: paged, format: {}, lossy: true}}", name)),
              "no error");
    const CliResult listed = cli({"list", name});
    EXPECT_EQ(listed.code, 2);
    EXPECT_THAT(listed.err, HasSubstr(wanted));
  }
  EXPECT_THAT(cache_mistake("bfloat16"), HasSubstr("kv_dtype: bfloat16"));
  EXPECT_THAT(cache_mistake("radix"), HasSubstr("prefix_cache: {megabytes: 256}"));
  EXPECT_THAT(cli({"list", "radix"}).err, HasSubstr("prefix_cache"));
  EXPECT_THAT(cli({"list", "format"}).err, HasSubstr("float16, fp8_e4m3, q8"));
}

TEST(CacheNamesTest, ExplainedNamesAreNoTypes) {
  const Components all = builtin_components();
  for (const auto& [name, text] : all.caches.explained()) {
    EXPECT_FALSE(all.caches.entries().contains(name)) << name;
    EXPECT_FALSE(all.drafters.entries().contains(name)) << name;
    EXPECT_FALSE(all.strategies.entries().contains(name)) << name;
  }
}

TEST(CacheNamesTest, FormatsAreSuggested) {
  const auto format = [](const std::string& name) {
    return cache_mistake("{type: paged, lossy: true, format: " + name + "}");
  };
  EXPECT_THAT(format("Q8"), HasSubstr("unknown format 'Q8'; did you mean 'q8'?"));
  EXPECT_THAT(format("fp8"), HasSubstr("did you mean 'fp8_e4m3'?"));
  EXPECT_THAT(format("KIVI2"), HasSubstr("did you mean 'kivi2'?"));
}

TEST(CacheNamesTest, AKindMayBeAPlural) {
  EXPECT_EQ(cli({"list", "caches"}).out, cli({"list", "cache"}).out);
  EXPECT_EQ(cli({"list", "strategies"}).out, cli({"list", "strategy"}).out);
}

}  // namespace
}  // namespace specdec
