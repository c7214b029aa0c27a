#include "experiments/cli/generation_room.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "core/error.h"
#include "experiments/components/cache_room.h"

namespace specdec {

void check_room(const ModelFiles& files, const ModelOptions& options,
                const StrategyConfig& strategy, int64_t prompt_tokens, int64_t max_new_tokens) {
  const int64_t context = max_length_of(options, files.config);
  if (prompt_tokens == context) {
    return;  // one token is left, which no cache has to hold
  }
  const LongestText text{.prompt_tokens = prompt_tokens,
                         .new_tokens = std::min(max_new_tokens, context - prompt_tokens)};
  std::vector<PlannedCache> caches = {
      planned_cache("--cache", options.cache, files.plan, files.config, options)};
  for (const PlannedCache& cache : strategy.notes.draft_caches) {
    if (cache.is_own) {
      caches.push_back(cache);
      caches.back().key = "--strategy: " + cache.key;
    }
  }
  for (const PlannedCache& cache : caches) {
    if (const std::string lacking = lacking_room(cache, text); !lacking.empty()) {
      throw ConfigError(lacking);
    }
  }
}

void check_prompt_fits(const ModelFiles& files, const ModelOptions& options,
                       int64_t prompt_tokens) {
  const int64_t context = max_length_of(options, files.config);
  if (prompt_tokens <= context) {
    return;
  }
  const int64_t most = files.config.max_position_embeddings;
  throw ConfigError(
      context < most
          ? fmt::format("the prompt has {} tokens, but {} keeps at most {} here, though the model "
                        "takes up to {}: shorten it, or run a config with model.max_length",
                        prompt_tokens, files.folder.string(), context, most)
          : fmt::format("the prompt has {} tokens, but {} takes at most {} (its "
                        "max_position_embeddings): shorten the prompt",
                        prompt_tokens, files.folder.string(), context));
}

}  // namespace specdec
