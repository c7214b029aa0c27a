#pragma once
#include "experiments/components/model_loading.h"
#include "experiments/run/experiment_config.h"

namespace specdec {

/// Throws ConfigError where the cache of the target, or one of a drafter, cannot hold a text of so
/// many tokens with the new ones: before a token of it is printed.
void check_room(const ModelFiles& files, const ModelOptions& options,
                const StrategyConfig& strategy, int64_t prompt_tokens, int64_t max_new_tokens);

}  // namespace specdec
