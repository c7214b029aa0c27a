#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "experiments/components/cache_choice.h"

namespace specdec {

struct LayerPlan;
struct ModelOptions;
struct TransformerConfig;

// What model, device and strategies of a run rule out of caches.

/// Notes as mistakes of `model`'s key `cache` what the dtype or device of `options` rules out.
void check_cache(const ConfigNode& model, const CacheChoice& choice, const ModelOptions& options);
/// Checks as check_cache a cache that no config names: throws ConfigError with all mistakes, as of
/// `flag`.
void require_cache(const CacheChoice& choice, const ModelOptions& options, const std::string& flag);
/// Notes as a mistake of `owner`'s key `cache`, or of its `weights` where the target's cache is
/// used, what layers of this plan rule out: makes the cache, for at most
/// config.max_position_embeddings tokens, on a device without memory.
void check_cache_layers(const ConfigNode& owner, const CacheChoice& choice,
                        const std::vector<LayerPlan>& plan, const TransformerConfig& config,
                        const ModelOptions& options);
/// Notes what check_cache_layers does for a drafter's layers, over its own cache or one like the
/// target's, which is noted (StrategyNotes::draft_caches).
void check_draft_layers(const ConfigNode& drafter, const RunPlan& run,
                        const std::vector<LayerPlan>& plan, const TransformerConfig& config,
                        const std::optional<CacheChoice>& own = {});

/// Notes as a mistake of a strategy's key `num_beams` that the target's cache has no room for so
/// many beams beside the row of the prompt, with a token of each.
void check_beam_rows(const ConfigNode& strategy, const RunPlan& run, int64_t beams);

/// What heads and draft models beside the target add to the memory of a GPU, where the target's
/// cache has tiers; "" = nothing more than any cache.
std::string tiers_beside_target(const CacheChoice& target, const std::string& device);
/// Notes as a mistake of a tree that it has more levels than branches may have over the target's
/// cache (KvCacheOptions::exact_recent of a format with groups of keys).
void check_branch_levels(const ConfigNode& tree, const RunPlan& plan, int64_t levels);
/// Notes what check_branch_levels does for the key `cache` of a drafter that evaluates all levels
/// but the last of a tree that branches (DraftNotes::branch_levels), behind `fed` tokens of the
/// text, which are pending too.
void check_draft_levels(const ConfigNode& drafter, const RunPlan& plan, const CacheChoice& cache,
                        int64_t fed);

}  // namespace specdec
