#pragma once
#include <cstdint>

#include "experiments/cli/generation_arguments.h"

namespace specdec {

/// What a generation is planned for, before its model is loaded.
struct GenerationFacts {
  const ModelFiles& files;
  ModelCatalog& catalog;
  const SamplingParams& sampling;
  int64_t max_new_tokens = 0;
  bool has_grammar = false;
};

/// How a model is loaded and decodes, checked.
struct PlannedGeneration {
  ProfileDefaults profile;  ///< of the target: what it gave; see CommandContext::note_profile
  ModelOptions options;     ///< of the target, and of draft models beside it
  StrategyConfig strategy;
};

/// What the options and --strategy say, over what the target's machine profile gives. Throws
/// ConfigError with all mistakes of the strategy.
PlannedGeneration plan_generation(const CommandContext& context,
                                  const GenerationArguments& arguments,
                                  const GenerationFacts& facts);

/// What a command builds its strategy with: cost curves are measured when the strategy asks for
/// them. Borrows both.
BuildContext measuring_context(LanguageModel& target, ModelLoader& models);

}  // namespace specdec
