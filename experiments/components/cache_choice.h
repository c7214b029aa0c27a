#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/kv_store.h"

namespace specdec {

struct CacheCodebook;
struct Components;
struct OptionHelp;
struct RunPlan;
class ConfigNode;

/// Most bytes of the pages of a cache that keeps the others on disk.
struct TierBudget {
  int64_t memory_bytes = 0;         ///< of the device; 0 = all pages lie there
  int64_t host_bytes = 0;           ///< on a GPU, of the host's pinned memory
  int64_t disk_bytes = 0;           ///< that are taken when the cache is made
  std::filesystem::path disk = {};  ///< a folder; "" = the system's for temporary files

  bool is_given() const { return memory_bytes > 0; }
};

/// What a cache is made for: the layers of a model, and the type of its keys and values.
struct CacheContext {
  std::vector<LayerKv> layers;
  KvStoreOptions store;
  KvFormat format = KvFormat::kNative;
  KvRotation rotation = KvRotation::kNone;
  int64_t exact_recent = 0;  ///< see KvCacheOptions
  bool traced = true;        ///< false: a cache of type tracing is the one that it would wrap
};

/// The type and options of a model's key/value cache.
struct CacheChoice {
  std::string yaml = {};  ///< with all options; "" = none was chosen: `paged`
  std::string loss = {};  ///< of one that is lossy: its type and options, in a line
  TierBudget tiers = {};
  std::string no_mps = {};  ///< the type that Metal does not have; "" = it does
  std::function<std::unique_ptr<KvStore>(const CacheContext&)> make = {};
  /// What `format` chose for keys and values: a lossy one; none = as kv_dtype says.
  std::optional<KvFormat> format = {};
  KvRotation rotation = KvRotation::kNone;
  int64_t exact_recent = 0;  ///< last tokens that are read as they are, beside a `format`
  std::shared_ptr<const CacheCodebook> codebook = {};  ///< of q3; nullptr = kNormalLevels

  /// Makes the caches of models whose kv_dtype is this.
  KvStoreFactory factory(KvFormat kv_dtype) const;
  /// This choice for heads and draft models beside the target: nobody reads a trace of theirs, and
  /// its time would be in their cost curves; a codebook is the target's alone.
  CacheChoice beside_target() const;
  /// Lets errors of a cache that is made begin with `name`, where the config has it; not of one
  /// that is measured.
  void name_errors(const std::string& name);
  /// Throws Error for weights, by their weights_fingerprint, that the codebook is not for.
  void check_model(const std::string& fingerprint) const;
};

/// The key `cache` of a model, a map with a type. Notes a mistake where a lossy one is given
/// without `lossy: true`.
CacheChoice read_cache(const ConfigNode& model, const RunPlan& plan);
/// The key `cache` of a drafter, of any type and format, since the target verifies; nullopt where
/// there is none. Notes as a mistake what the target's dtype or device rules out.
std::optional<CacheChoice> read_draft_cache(const ConfigNode& drafter, const RunPlan& plan);
/// What `specdec list` says of that key, `fallback` where it is not given.
OptionHelp draft_cache_help(const std::string& fallback);
/// The value of --cache as YAML: a type's name alone is {type: NAME}.
std::string cache_yaml(const std::string& text);
/// Reads the value of --cache, or of another flag; "" chooses none. Throws ConfigError with all
/// mistakes.
CacheChoice parse_cache(const std::string& text, const Components& components,
                        const std::string& flag = "--cache");

}  // namespace specdec
