#pragma once
#include "experiments/components/components.h"

namespace specdec {

// The built-in components by kind; builtin_components() adds them all.
void add_strategies(StrategyRegistry& strategies);
void add_drafters(DrafterRegistry& drafters);
void add_head_drafters(DrafterRegistry& drafters);
void add_medusa(DrafterRegistry& drafters);
void add_verifiers(VerifierRegistry& verifiers);
void add_draft_lengths(DraftLengthRegistry& lengths);
void add_trees(TreeRegistry& trees);

/// Longest chain and largest tree that a config may ask for.
inline constexpr int64_t kMaxDraftLength = 1024;

}  // namespace specdec
