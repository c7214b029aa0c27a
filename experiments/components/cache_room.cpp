#include "experiments/components/cache_room.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>

#include "core/draft.h"
#include "core/error.h"
#include "core/prefill_size.h"
#include "core/transformer/model_store.h"
#include "experiments/components/model_options.h"

namespace specdec {
namespace {

/// Whether a row may get so many tokens; they are kept then.
bool grows(KvStore& cache, int64_t count) {
  try {
    cache.extend({.count = count});
  } catch (const Error&) {
    return false;
  }
  cache.commit(0, chain_path(count));
  return true;
}

/// Tokens of a row that a cache holds, fewer than `tokens`, of which the first ones are read as a
/// prompt; nullopt where it holds all of them.
std::optional<int64_t> held_tokens(KvStore& cache, int64_t prompt, int64_t tokens) {
  int64_t length = 0;
  int64_t count = kPrefillTokens;
  while (length < tokens) {
    const int64_t left = length < prompt ? prompt - length : 1;
    const int64_t piece = std::min(count, left);
    if (grows(cache, piece)) {
      length += piece;
    } else if (piece == 1) {
      return length;
    } else {
      count = piece / 2;
    }
  }
  return std::nullopt;
}

/// Whether the cache holds a row of all the tokens in pieces of kPrefillTokens: found in few steps,
/// and then held_tokens need not be asked.
bool holds(const PlannedCache& planned, int64_t tokens) {
  const auto cache = planned.measure();
  for (int64_t length = 0; length < tokens; length += kPrefillTokens) {
    if (!grows(*cache, std::min(kPrefillTokens, tokens - length))) {
      return false;
    }
  }
  return true;
}

struct Folder {
  std::vector<std::string> keys;
  uintmax_t bytes = 0;  ///< that caches take there
};

std::filesystem::path folder_of(const CacheChoice& cache) {
  std::error_code failure;
  return cache.tiers.disk.empty() ? std::filesystem::temp_directory_path(failure)
                                  : cache.tiers.disk;
}

std::string disk_text(const std::filesystem::path& folder, const char* has, uintmax_t bytes,
                      const Folder& caches) {
  const bool are_several = caches.keys.size() > 1;
  return fmt::format(
      "{}: has {} MiB {}, less than the {} MiB that {} there for {} pages when {} made, which is "
      "refused then. Lower the {} megabytes, or name another folder with {} disk",
      folder.string(), bytes >> 20U, has, caches.bytes >> 20U,
      are_several ? "the caches take" : "the cache takes", are_several ? "their" : "its",
      are_several ? "they are" : "it is", are_several ? "caches'" : "cache's",
      are_several ? "their" : "its");
}

}  // namespace

PlannedCache planned_cache(const std::string& key, const CacheChoice& choice,
                           const std::vector<LayerPlan>& plan, const TransformerConfig& config,
                           const ModelOptions& options) {
  const bool is_half = options.kv_dtype == "bfloat16" && !choice.format;
  const bool is_double = options.dtype == "float64" && !is_half && !choice.format;  // else noted
  const int64_t max_length = max_length_of(options, config);
  return {
      .key = key, .choice = choice, .make_on = [=, layers = cache_layers(plan)](at::Device device) {
        return choice.factory(is_half ? KvFormat::kBFloat16 : KvFormat::kNative)(
            layers, {.dtype = is_double ? at::kDouble : at::kFloat,
                     .device = device,
                     .max_length = max_length});
      }};
}

std::string lacking_room(const PlannedCache& cache, const LongestText& text) {
  // The last token is in no cache; what drafts may know the text up to two tokens before it only.
  const int64_t tokens = text.prompt_tokens + text.new_tokens - (cache.drafts ? 3 : 1);
  if (!cache.choice.make || tokens <= 0 || holds(cache, tokens)) {
    return "";
  }
  const auto measured = cache.measure();
  const auto held = held_tokens(*measured, text.prompt_tokens, tokens);
  return !held ? ""
               : fmt::format(
                     "{}: holds {} tokens of a row, and {} with max_new_tokens takes "
                     "{} ({} + {}): raise {}, or give a shorter prompt or fewer max_new_tokens",
                     cache.key, *held,
                     text.prompt.empty() ? "the prompt" : fmt::format("prompt '{}'", text.prompt),
                     tokens, text.prompt_tokens, tokens - text.prompt_tokens,
                     cache.choice.tiers.is_given()
                         ? "its megabytes"
                         : "its limit (max_pages or megabytes; of recurrent layers "
                           "state_megabytes)");
}

std::string lacking_disk(const CacheChoice& cache) {
  const PlannedCache planned{.choice = cache};
  const DiskNotes notes = lacking_disks({&planned, 1});
  const std::string key = ": ";  // of no config
  const auto& texts = notes.mistakes.empty() ? notes.warnings : notes.mistakes;
  return texts.empty() ? "" : texts.front().substr(key.size());
}

DiskNotes lacking_disks(std::span<const PlannedCache> caches) {
  std::map<std::filesystem::path, Folder> folders;
  for (const PlannedCache& cache : caches) {
    if (cache.choice.tiers.disk_bytes > 0) {
      Folder& folder = folders[folder_of(cache.choice)];
      folder.keys.push_back(cache.key);
      folder.bytes += static_cast<uintmax_t>(cache.choice.tiers.disk_bytes);
    }
  }
  DiskNotes notes;
  for (auto& [path, folder] : folders) {
    std::error_code failure;
    const auto space = std::filesystem::space(path, failure);
    if (failure || folder.bytes <= space.available) {
      continue;
    }
    const bool never = folder.bytes > space.capacity;
    std::vector<std::string> keys;  // each once
    for (const std::string& key : folder.keys) {
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
        keys.push_back(key);
      }
    }
    (never ? notes.mistakes : notes.warnings)
        .push_back(fmt::format("{}: {}", fmt::join(keys, ", "),
                               disk_text(path, never ? "in all" : "free",
                                         never ? space.capacity : space.available, folder)));
  }
  return notes;
}

}  // namespace specdec
