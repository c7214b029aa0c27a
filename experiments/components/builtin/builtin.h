#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "experiments/components/components.h"
#include "experiments/config/option_table.h"

namespace specdec {

// The built-in components by kind; builtin_components() adds them all.
void add_strategies(StrategyRegistry& strategies);
void add_drafters(DrafterRegistry& drafters);
void add_head_drafters(DrafterRegistry& drafters);
void add_self_drafter(DrafterRegistry& drafters);
void add_draft_model(DrafterRegistry& drafters);
void add_medusa(DrafterRegistry& drafters);
void add_assistant(DrafterRegistry& drafters);
void add_block_heads(DrafterRegistry& drafters);
void add_verifiers(VerifierRegistry& verifiers);
void add_draft_lengths(ShapeRegistry& lengths);
void add_trees(ShapeRegistry& trees);
void add_caches(CacheRegistry& caches);
void add_tracing_cache(CacheRegistry& caches);

/// Options of drafters that run a model or a head of their own.
struct WeightsOptions {
  std::filesystem::path weights;
  std::optional<bool> sample = {};
};
/// `weights`: what the folder holds.
OptionTable<WeightsOptions> weights_options(const std::string& weights);

/// Meaning and default of `sample`, of drafters that have a distribution.
inline constexpr const char* kSampleMeaning =
    "true draws from the drafter's distribution when the target samples, false takes its best "
    "tokens";
inline constexpr const char* kSampleDefault = "true, but false under a dynamic tree";

/// Longest chain and largest tree that a config may ask for.
inline constexpr int64_t kMaxDraftLength = 1024;

struct FixedLengthOptions {
  int64_t length = 5;
};

}  // namespace specdec
