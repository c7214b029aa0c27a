#include "experiments/components/cache_format.h"

#include <fmt/format.h>

#include "experiments/config/config_node.h"
#include "experiments/config/names.h"
#include "experiments/config/option_table.h"
#include "kv/page_capacity.h"

namespace specdec {
namespace {

/// Formats that a cache's `format` names; the others are said by kv_dtype.
constexpr KvFormat kLossyFormats[] = {
    KvFormat::kFloat16, KvFormat::kFp8E4m3,      KvFormat::kQ8,    KvFormat::kQ4,
    KvFormat::kQ3,      KvFormat::kHierarchical, KvFormat::kKivi2, KvFormat::kKivi4};

/// The names of kLossyFormats, and of those that round each key alone.
constexpr const char* kLossyNames = "float16, fp8_e4m3, q8, q4, q3, hierarchical, kivi2 or kivi4";
constexpr const char* kNamesOfOneKey = "float16, fp8_e4m3, q8, q4, q3 or hierarchical";

constexpr NamedValue<KvRotation> kRotations[] = {{"none", KvRotation::kNone},
                                                 {"hadamard", KvRotation::kHadamard}};

}  // namespace

std::optional<KvFormat> read_cache_format(const ConfigNode& cache) {
  cache.ignore("format");  // known, also where it is not given
  if (!cache.has("format")) {
    return std::nullopt;
  }
  const auto name = cache.find<std::string>("format");
  if (!name) {
    return std::nullopt;  // a mistake, which is noted
  }
  for (const KvFormat format : kLossyFormats) {
    if (*name == kv_format_name(format)) {
      return format;
    }
  }
  std::vector<std::string> names;
  for (const KvFormat format : kLossyFormats) {
    names.emplace_back(kv_format_name(format));
  }
  cache.fail("format", fmt::format("unknown format '{}'{}. float32 and bfloat16 are values of the "
                                   "model's kv_dtype",
                                   *name, known_names_text(*name, names)));
  return std::nullopt;
}

KvRotation read_rotation(const ConfigNode& cache, const std::optional<KvFormat>& format) {
  cache.ignore("rotation");  // known, also where it is not given
  if (!cache.has("rotation") ||
      cache.choose("rotation", kRotations, KvRotation::kNone) == KvRotation::kNone) {
    return KvRotation::kNone;
  }
  if (cache.has("format") && !format) {
    return KvRotation::kNone;  // a mistake, which is noted
  }
  if (format && kv_key_group(*format) > 1) {
    cache.fail("rotation",
               fmt::format("mixes the channels of a head, and {} rounds keys channel by "
                           "channel: leave it out, or choose another format",
                           kv_format_name(*format)));
    return KvRotation::kNone;
  }
  if (!format || !has_scales(*format)) {
    cache.fail("rotation",
               "is for formats with scales, whose error it lowers: give format: q8, q4, q3 or "
               "hierarchical, or leave it out");
    return KvRotation::kNone;
  }
  return KvRotation::kHadamard;
}

int64_t read_exact_recent(const ConfigNode& cache, const std::optional<KvFormat>& format,
                          bool has_tiers) {
  constexpr int64_t kMostRecent = int64_t{1} << 30;
  const int64_t group = format ? kv_key_group(*format) : 1;
  if (!has_tiers || cache.has("exact_recent")) {
    cache.ignore("exact_recent");  // known, also where it is not given
  }
  const int64_t usual = group > 1 ? kGroupedRecent : 0;
  const int64_t tokens = usual > 0 || cache.has("exact_recent")
                             ? cache.get<int64_t>("exact_recent", usual, {0, kMostRecent})
                             : 0;
  if (tokens < group && group > 1) {
    cache.fail(
        "exact_recent",
        fmt::format("is {}, but {} rounds the keys of {} tokens together, and holds those as "
                    "they are that still come together: give {} or more, or leave it out",
                    tokens, kv_format_name(*format), group, group));
    return group;
  }
  if (tokens > 0 && !cache.has("format")) {
    cache.fail("exact_recent",
               fmt::format("counts the last tokens that a format does not round: give format: {}, "
                           "or leave it out",
                           kLossyNames));
  }
  return format ? tokens : 0;  // else a mistake is noted
}

std::map<std::string, std::string> names_beside_types() {
  constexpr const char* kExample = "{type: paged, format: q4, lossy: true}";
  std::map<std::string, std::string> texts = {
      {"format", fmt::format("format is an option of caches, as in {} (a drafter's cache without "
                             "lossy); known: {}",
                             kExample, kLossyNames)},
      {"kv_dtype", "kv_dtype is a key of the model beside cache: kv_dtype: bfloat16 (--kv-dtype)"}};
  for (const KvFormat format : kLossyFormats) {
    const std::string name(kv_format_name(format));
    texts[name] = fmt::format(
        "{0} is a format: {{type: paged, format: {0}, lossy: true}} (a drafter's cache without "
        "lossy)",
        name);
  }
  for (const char* name : {"float32", "bfloat16"}) {
    texts[name] = fmt::format(
        "{0} is a value of the model's key kv_dtype, beside cache: kv_dtype: {0} (--kv-dtype)",
        name);
  }
  for (const char* name : {"radix", "radix_tree", "prefix", "prefix_cache"}) {
    texts[name] = fmt::format(
        "{}: prefixes are shared above caches of all types, by a run's own key prefix_cache: "
        "{{megabytes: 256}}",
        name);
  }
  return texts;
}

std::vector<OptionHelp> with_format(std::vector<OptionHelp> options, const FormatSupport& support) {
  options.push_back({"format", "as kv_dtype says",
                     support.key_groups ? kLossyNames : kNamesOfOneKey,
                     "of keys and values, rounded when they are written: lossy; on the CPU and "
                     "CUDA"});
  options.push_back({"rotation", "none", join_alternatives(names_of(kRotations)),
                     "what keys and values are multiplied with before a format with scales rounds "
                     "them"});
  options.push_back({"codebook", "none", "a file of specdec score --calibrate",
                     "levels of q3 that were calibrated for the model, with this rotation"});
  if (support.exact_recent) {
    const char* usual = support.key_groups ? "; of kivi2 and kivi4 32 or more, 128 by default" : "";
    options.push_back({"exact_recent", "0", "0 to 1073741824",
                       fmt::format("last tokens, itself among them, that a token reads as they are "
                                   "beside a format; 0: none{}",
                                   usual)});
  }
  options.push_back({"lossy", "false", "true or false",
                     "true where a target's cache is lossy, which makes another model of it"});
  return options;
}

}  // namespace specdec
