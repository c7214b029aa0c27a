#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "experiments/components/cache_choice.h"

namespace specdec {

struct LayerPlan;
struct ModelOptions;
struct TransformerConfig;

/// A cache that a run is going to make.
struct PlannedCache {
  std::string key = {};  ///< of the config: "model.cache", "strategies[1].drafter.cache"
  CacheChoice choice = {};
  bool is_own = true;  ///< false: a drafter's, like the target's, whose key it is
  bool drafts = false;
  std::function<std::unique_ptr<KvStore>(at::Device)> make_on = {};

  /// Makes the cache on a device without memory: its pages, not their bytes.
  std::unique_ptr<KvStore> measure() const { return make_on(at::kMeta); }
};

/// The cache of a model with this plan and the options of a run.
PlannedCache planned_cache(const std::string& key, const CacheChoice& choice,
                           const std::vector<LayerPlan>& plan, const TransformerConfig& config,
                           const ModelOptions& options);

/// The text of a run that takes most room.
struct LongestText {
  std::string prompt = {};  ///< its name; "" = the only one
  int64_t prompt_tokens = 0;
  int64_t new_tokens = 0;  ///< most: max_new_tokens, or those that the context leaves
};

/// What is wrong with a cache that cannot hold what it has to when the text is as long as it may
/// be; "" = nothing that is known.
std::string lacking_room(const PlannedCache& cache, const LongestText& text);

/// What a user should know whose disk has less room than the tiers of a cache take; "" = nothing.
std::string lacking_disk(const CacheChoice& cache);

/// What the disks lack of the room that caches take there together.
struct DiskNotes {
  std::vector<std::string> mistakes;  ///< more than all of the disk
  std::vector<std::string> warnings;  ///< more than is free now
};
DiskNotes lacking_disks(std::span<const PlannedCache> caches);

}  // namespace specdec
