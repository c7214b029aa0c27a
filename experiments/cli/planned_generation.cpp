#include "experiments/cli/planned_generation.h"

#include <c10/core/InferenceMode.h>

#include <memory>
#include <string>

#include "decoders/analysis/cost_curve.h"
#include "experiments/config/yaml_tree.h"
#include "experiments/terminal/interrupt.h"

namespace specdec {

static StrategyConfig read_strategy_text(const std::string& text, const RunPlan& plan,
                                         const Components& components) {
  const auto errors = std::make_shared<ConfigErrors>();
  const ConfigNode node(component_tree(parse_yaml(text, "--strategy", false)), errors);
  auto strategy = read_strategy(node, plan, components);
  errors->throw_if_any();
  return strategy;
}

PlannedGeneration plan_generation(const CommandContext& context,
                                  const GenerationArguments& arguments,
                                  const GenerationFacts& facts) {
  PlannedGeneration planned{
      .profile = context.machine_profile(arguments.model),
      .options = context.model_options({arguments.model, arguments.active_layers}),
      .strategy = {}};
  planned.profile.take_all(planned.options, context.components);
  const RunPlan plan{.components = context.components,
                     .target = &facts.files,
                     .models = facts.catalog,
                     .sampling = facts.sampling,
                     .max_new_tokens = facts.max_new_tokens,
                     .grammar = facts.has_grammar,
                     .profile = &planned.profile,
                     .target_options = &planned.options};
  planned.strategy = read_strategy_text(arguments.strategy, plan, context.components);
  return planned;
}

BuildContext measuring_context(LanguageModel& target, ModelLoader& models) {
  return {target, models, [](const std::string&, LanguageModel& model) {
            const c10::InferenceMode guard;
            return measure_cost_curve(model, {.between = InterruptGuard::check});
          }};
}

}  // namespace specdec
