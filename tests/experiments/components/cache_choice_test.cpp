// What a config says of a cache: its options, and the mistakes that are named.
#include "experiments/components/cache_choice.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "core/error.h"
#include "core/row_tiers.h"
#include "core/transformer/transformer_model.h"
#include "experiments/components/builtin/builtin.h"
#include "experiments/components/cache_checks.h"
#include "experiments/components/cache_room.h"
#include "kv/page_capacity.h"
#include "tests/support/error_message.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_gemma.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kChoiceVocab = 40;

TEST(CacheChoiceTest, AWrongKindOfValueIsOneMistake) {
  const std::string message = error_message<ConfigError>([] {
    (void)parse_cache("{type: paged, format: [q4], rotation: hadamard, lossy: true}",
                      builtin_components());
  });
  EXPECT_THAT(message, HasSubstr("format: expected text, found a list"));
  EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 0) << message;
}

TEST(CacheChoiceTest, TiersHoldNoMoreInMemoryThanInAll) {
  const Components all = builtin_components();
  const auto error = [&](const std::string& text) {
    return error_message<ConfigError>([&] { (void)parse_cache(text, all); });
  };
  EXPECT_THAT(error("{type: tiered, memory_megabytes: 17, megabytes: 16}"),
              HasSubstr("memory_megabytes: 17 is more than megabytes (16)"));
  EXPECT_EQ(error("{type: tiered, memory_megabytes: 16, megabytes: 16}"), "no error");
}

TEST(CacheChoiceTest, TiersBeyondTheDiskAreSaidBefore) {
  const auto lacking = [](const std::string& options) {
    return lacking_disk(parse_cache(options, builtin_components()));
  };
  EXPECT_EQ(lacking("{type: tiered, memory_megabytes: 1, megabytes: 1}"), "");
  EXPECT_EQ(lacking("paged"), "");
  const TemporaryFolder folder;
  for (const char* cache : {"{{{}}}", "{{type: tracing, of: {{{}}}}}"}) {
    EXPECT_THAT(
        lacking(fmt::format(fmt::runtime(cache), "type: tiered, megabytes: 1073741824, disk: " +
                                                     folder.path().string())),
        AllOf(HasSubstr(folder.path().string() + ": has "),
              HasSubstr("less than the 1073741824 MiB")));
  }
}

/// Each has room; both together are more than is free, or than there is.
TEST(CacheChoiceTest, CachesTakeADisksRoomTogether) {
  const TemporaryFolder folder;
  const auto free = std::filesystem::space(folder.path()).available >> 20U;
  const CacheChoice choice =
      parse_cache(fmt::format("{{type: tiered, memory_megabytes: 1, megabytes: {}, disk: {}}}",
                              std::max<uintmax_t>(1, free / 4 * 3), folder.path().string()),
                  builtin_components());
  const auto texts = [](const std::vector<PlannedCache>& caches) {
    DiskNotes notes = lacking_disks(caches);
    notes.mistakes.insert(notes.mistakes.end(), notes.warnings.begin(), notes.warnings.end());
    return notes.mistakes;
  };
  EXPECT_THAT(texts({{.key = "a", .choice = choice}}), testing::IsEmpty());
  EXPECT_THAT(texts({{.key = "a", .choice = choice}, {.key = "b", .choice = choice}}),
              testing::ElementsAre(AllOf(HasSubstr("a, b: " + folder.path().string() + ": has "),
                                         HasSubstr("that the caches take there"))));
}

TEST(CacheChoiceTest, TiersTakeAPolicyAndAShareToKeepFree) {
  const Components all = builtin_components();
  const auto error = [&](const std::string& options) {
    return error_message<ConfigError>(
        [&] { (void)parse_cache("{type: tiered, " + options + "}", all); });
  };
  EXPECT_THAT(error("policy: mru"),
              HasSubstr("policy: unknown value 'mru'; did you mean 'lru'? Known: lru, lfu"));
  EXPECT_THAT(error("keep_free: 1.5"), HasSubstr("keep_free"));
  const auto tiers_of = [&](const std::string& text) {
    const auto cache =
        parse_cache(text, all).factory(KvFormat::kNative)({{1, 64, 0, -1}}, {.max_length = 16});
    if (RowTiers* tiers = cache->row_tiers()) {
      cache->extend({.count = 3});
      (void)cache->view(0);
      cache->commit(0, std::vector<int64_t>{0, 1, 2});
      EXPECT_GT(tiers->demote(0), 0);
      EXPECT_EQ(tiers->bytes(0).memory, 0);
      return true;
    }
    return false;
  };
  EXPECT_TRUE(tiers_of("{type: tiered, policy: lfu, keep_free: 0.25, megabytes: 256}"));
  EXPECT_TRUE(tiers_of("{type: tracing, of: {type: tiered, megabytes: 256}}"));
  EXPECT_FALSE(tiers_of("paged"));
}

TEST(CacheChoiceTest, EntriesSayWhatLiesInMemory) {
  const Components all = builtin_components();
  const auto bytes = [&](const std::string& text) {
    return parse_cache(text, all).tiers.memory_bytes;
  };
  EXPECT_EQ(bytes("paged"), 0);
  EXPECT_EQ(bytes("tiered"), 256 << 20);
  EXPECT_EQ(bytes("{type: tiered, memory_megabytes: 3}"), 3 << 20);
  EXPECT_EQ(bytes("tracing"), 0);
  EXPECT_EQ(bytes("{type: tracing, of: {type: tiered, memory_megabytes: 3}}"), 3 << 20);
  EXPECT_EQ(parse_cache("{type: tiered, host_megabytes: 5}", all).tiers.host_bytes, 5 << 20);
}

TEST(CacheChoiceTest, AGpusTiersAreSaidToBeOfEachModel) {
  const CacheChoice choice =
      parse_cache("{type: tiered, memory_megabytes: 3}", builtin_components());
  EXPECT_THAT(tiers_beside_target(choice, "cuda:1"), HasSubstr("3 MiB more of the GPU's memory"));
  EXPECT_EQ(tiers_beside_target(choice, "cpu"), "");
  EXPECT_EQ(tiers_beside_target({}, "cuda"), "");
}

TEST(CacheChoiceTest, SomeTypesAreForTheCpu) {
  const auto error = [](const std::string& type, at::DeviceType device) {
    const char* lossy = type == "compressed" ? ", lossy: true" : "";
    const CacheChoice choice =
        parse_cache(fmt::format("{{type: {}{}}}", type, lossy), builtin_components());
    return error_message<Error>([&] {
      (void)choice.factory(KvFormat::kNative)({{1, 8}},
                                              {.device = at::Device(device), .max_length = 16});
    });
  };
  EXPECT_THAT(error("tiered", at::kMPS), HasSubstr("is for the CPU and CUDA"));
  EXPECT_THAT(error("tiered, host_megabytes: 1", at::kCPU), HasSubstr("is for a GPU"));
  EXPECT_THAT(error("tracing, of: {type: tiered}", at::kCUDA), HasSubstr("is for the CPU"));
  EXPECT_THAT(error("tracing", at::kMPS), HasSubstr("is for the CPU and CUDA"));
  EXPECT_THAT(error("compressed", at::kMPS), HasSubstr("is for the CPU and CUDA"));
}

TEST(CacheChoiceTest, AnUnknownTypeOrOptionNamesTheKnownOnes) {
  const Components all = builtin_components();
  const auto error = [&](const std::string& text) {
    return error_message<ConfigError>([&] { (void)parse_cache(text, all); });
  };
  EXPECT_THAT(error("radox"), HasSubstr("unknown type 'radox'"));
  EXPECT_THAT(error("{type: paged, page_size: 0}"), HasSubstr("page_size"));
  EXPECT_THAT(error("{type: contiguous, page_size: 8}"),
              AllOf(HasSubstr("page_size: unknown key"), HasSubstr("exact_recent")));
  EXPECT_THAT(error("{type: tiered, radox: 8}"),
              AllOf(HasSubstr("radox: unknown key"), HasSubstr("keep_free"),
                    testing::Not(HasSubstr("exact_recent"))));
  EXPECT_EQ(parse_cache("", all).yaml, "");
  EXPECT_THAT(parse_cache("paged", all).yaml, HasSubstr("window_slack: 0"));
}

TEST(CacheChoiceTest, AFormatThatRoundsByChannelSaysWhatItNeeds) {
  const Components all = builtin_components();
  const auto error = [&](const std::string& options) {
    return error_message<ConfigError>(
        [&] { (void)parse_cache("{type: " + options + ", lossy: true}", all); });
  };
  EXPECT_THAT(error("paged, format: kivi2, exact_recent: 16"),
              HasSubstr("is 16, but kivi2 rounds the keys of 32 tokens together"));
  EXPECT_THAT(error("paged, format: kivi4, rotation: hadamard"),
              HasSubstr("mixes the channels of a head"));
  EXPECT_THAT(error("tiered, format: kivi2"),
              HasSubstr("format: kivi2 is not for a cache of type tiered"));
  const auto cache = [&](const std::string& options) {
    return parse_cache("{type: " + options + ", lossy: true}", all)
        .factory(KvFormat::kNative)({{1, 64, 0, -1}}, {.max_length = 500});
  };
  const auto refusal = [&](const std::string& options) {
    return error_message<Error>([&] { (void)cache(options); });
  };
  EXPECT_THAT(refusal("paged, page_size: 16, format: kivi2"), HasSubstr("multiples of 32 tokens"));
  EXPECT_THAT(refusal("compressed, format: kivi2"),
              AllOf(HasSubstr("--cache {type: compressed"), HasSubstr("choose another format")));
  for (const auto& [type, entry] : all.caches.entries()) {
    const auto format = std::find_if(entry.options.begin(), entry.options.end(),
                                     [](const OptionHelp& help) { return help.name == "format"; });
    EXPECT_EQ(format->values.find("kivi2") == std::string::npos,
              type == "compressed" || type == "tiered")
        << type;
  }
  EXPECT_THAT(refusal("window, recent: 100, format: kivi2"),
              HasSubstr("raise the window's recent"));
  for (const char* type :
       {"paged", "contiguous", "window", "tracing", "tracing, of: {type: contiguous}"}) {
    const auto made = cache(fmt::format("{}, format: kivi4", type));
    made->extend({.count = 1});
    EXPECT_EQ(made->describe(0).page_size() % kKeyGroup, 0) << type;
    EXPECT_EQ(made->describe(0).exact.recent, kGroupedRecent) << type;
  }
  const CacheChoice choice = parse_cache("{type: paged, format: kivi2, lossy: true}", all);
  EXPECT_THAT(choice.loss, HasSubstr("exact_recent: 128"));
  EXPECT_EQ(parse_cache(choice.loss, all).loss, choice.loss) << "it is read again";
}

TEST(CacheChoiceTest, ALossyFormatOfATargetSaysSo) {
  const Components all = builtin_components();
  const auto error = [&](const std::string& text) {
    return error_message<ConfigError>([&] { (void)parse_cache(text, all); });
  };
  EXPECT_THAT(error("{type: paged, format: q8}"),
              AllOf(HasSubstr("format: q8 changes what"), HasSubstr("say so with lossy: true")));
  EXPECT_THAT(error("{type: paged, lossy: true}"),
              HasSubstr("type and format of the cache are exact"));
  EXPECT_THAT(error("window"), HasSubstr("type: window changes what the target sees"));
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
      TransformerModel model(tiny_gemma(kChoiceVocab, at::kFloat),
                             choice.factory(KvFormat::kNative));
      EXPECT_EQ(model.cache().view(0).format, format);
    }
  }
}

TEST(CacheChoiceTest, ARotationIsSaidWithAFormatThatHasScales) {
  const Components all = builtin_components();
  const auto error = [&](const std::string& text) {
    return error_message<ConfigError>([&] { (void)parse_cache(text, all); });
  };
  EXPECT_THAT(error("{type: paged, rotation: hadamard}"), HasSubstr("formats with scales"));
  EXPECT_THAT(error("{type: paged, format: float16, rotation: hadamard, lossy: true}"),
              HasSubstr("give format: q8, q4, q3 or hierarchical"));
  EXPECT_THAT(error("{type: paged, format: q4, rotation: fourier, lossy: true}"),
              HasSubstr("rotation: unknown value 'fourier'; known: none, hadamard"));
  for (const char* type : {"paged", "contiguous", "window"}) {
    const CacheChoice choice = parse_cache(
        fmt::format("{{type: {}, format: q4, rotation: hadamard, lossy: true}}", type), all);
    TransformerModel model(tiny_gemma(kChoiceVocab, at::kFloat), choice.factory(KvFormat::kNative));
    EXPECT_EQ(model.cache().view(0).rotation, KvRotation::kHadamard);
    EXPECT_THAT(choice.loss, HasSubstr("rotation: hadamard"));
  }
}

TEST(CacheChoiceTest, AFormatIsSaidOnce) {
  ModelOptions options{.dtype = "", .kv_dtype = "bfloat16"};
  options.cache = parse_cache("{type: paged, format: q4, lossy: true}", builtin_components());
  EXPECT_THAT(error_message<ConfigError>([&] { (void)kv_format_of(options); }),
              HasSubstr("kv_dtype bfloat16 and the cache's format q4"));
  options.kv_dtype.clear();
  EXPECT_EQ(kv_format_of(options), KvFormat::kQ4);
  EXPECT_EQ(kv_format_of({.dtype = "", .kv_dtype = "bfloat16"}), KvFormat::kBFloat16);
}

TEST(CacheChoiceTest, AMemoryBelowAPageIsAnErrorBeforeAnythingIsLoaded) {
  const auto cache =
      parse_cache("{type: tiered, page_size: 65536, memory_megabytes: 1}", builtin_components())
          .factory(KvFormat::kNative);
  for (const at::DeviceType device : {at::kMeta, at::kCPU}) {
    EXPECT_THAT(error_message<Error>([&] {
                  (void)cache({{1, 64, 0, -1}}, {.device = at::Device(device), .max_length = 100});
                }),
                AllOf(HasSubstr("do not hold 65536 tokens of layer 0"),
                      HasSubstr("raise the cache's memory_megabytes")));
  }
}

TEST(CacheChoiceTest, ABudgetBelowAPageIsAnError) {
  const auto cache =
      parse_cache("{type: paged, page_size: 1000000, megabytes: 1}", builtin_components());
  EXPECT_THAT(error_message<Error>([&] {
                TransformerModel(tiny_gemma(kChoiceVocab, at::kFloat),
                                 cache.factory(KvFormat::kNative));
              }),
              HasSubstr("raise the cache's megabytes"));
}

}  // namespace
}  // namespace specdec
