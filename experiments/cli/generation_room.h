#pragma once
#include "experiments/components/model_files.h"
#include "experiments/components/model_options.h"
#include "experiments/run/experiment_config.h"

namespace specdec {

/// Throws ConfigError for a prompt that is longer than the model's texts can be. No option of a
/// command makes those longer, so the advice is to shorten it.
void check_prompt_fits(const ModelFiles& files, const ModelOptions& options, int64_t prompt_tokens);

/// Throws ConfigError where the cache of the target, or one of a drafter, cannot hold a text of so
/// many tokens with the new ones: before a token of it is printed. The prompt fits, see
/// check_prompt_fits.
void check_room(const ModelFiles& files, const ModelOptions& options,
                const StrategyConfig& strategy, int64_t prompt_tokens, int64_t max_new_tokens);

}  // namespace specdec
