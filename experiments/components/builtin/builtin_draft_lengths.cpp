#include <fmt/format.h>

#include <memory>
#include <utility>

#include "core/error.h"
#include "experiments/components/builtin/builtin.h"

namespace specdec {
namespace {

OptionTable<FixedLengthOptions> fixed_options() {
  return OptionTable<FixedLengthOptions>().add("length", &FixedLengthOptions::length,
                                               "tokens of every draft", {1, kMaxDraftLength});
}

ShapeRegistry::Make prepare_fixed(const ConfigNode& node, const RunPlan&) {
  const int64_t length = fixed_options().read(node).length;
  return [length](BuildContext&) { return std::make_unique<FixedDraftLength>(length); };
}

OptionTable<HeuristicOptions> heuristic_options() {
  return OptionTable<HeuristicOptions>()
      .add("initial", &HeuristicOptions::initial, "length of a request's first draft",
           {1, kMaxDraftLength})
      .add("min", &HeuristicOptions::min, "shortest draft", {1, kMaxDraftLength})
      .add("max", &HeuristicOptions::max, "longest draft", {1, kMaxDraftLength});
}

ShapeRegistry::Make prepare_heuristic(const ConfigNode& node, const RunPlan&) {
  const HeuristicOptions options = heuristic_options().read(node);
  if (options.min > options.initial || options.initial > options.max) {
    node.fail(fmt::format("min ({}), initial ({}) and max ({}) must not decrease", options.min,
                          options.initial, options.max));
  }
  return [options](BuildContext&) { return std::make_unique<HeuristicDraftLength>(options); };
}

/// AdaptiveOptions as a config gives them.
struct AdaptiveConfig : AdaptiveOptions {
  bool use_costs = true;
};

OptionTable<AdaptiveConfig> adaptive_options() {
  using Options = AdaptiveConfig;
  return OptionTable<Options>()
      .add("initial", &Options::initial, "length of a request's first draft", {1, kMaxDraftLength})
      .add("max", &Options::max, "longest draft", {1, kMaxDraftLength})
      .add("grow_above", &Options::grow_above, "acceptance rate above which drafts grow by a token",
           {0.0, 1.0})
      .add("shrink_below", &Options::shrink_below,
           "acceptance rate below which they shrink by a token", {0.0, 1.0})
      .add("memory", &Options::memory, "weight of the past in the running acceptance rate",
           {0.0, 0.999999})
      .add("pause", &Options::pause,
           "plain steps of the first pause; each that follows one in vain is twice as long",
           {1, 1 << 20})
      .add("max_pause", &Options::max_pause, "plain steps of the longest pause", {1, 1 << 20})
      .add("probe", &Options::probe, "steps with a draft of one token after a pause", {1, 1 << 20})
      .add("use_costs", &Options::use_costs,
           "pause by the measured cost curves; false: acceptance alone decides");
}

ShapeRegistry::Make prepare_adaptive(const ConfigNode& node, const RunPlan&) {
  const AdaptiveConfig config = adaptive_options().read(node);
  const AdaptiveOptions& options = config;
  const bool use_costs = config.use_costs;
  try {
    (void)AdaptiveDraftLength(options);
  } catch (const Error& error) {
    node.fail(error.what());
  }
  return [options, use_costs](BuildContext& context) {
    auto measured = options;
    if (use_costs) {
      measured.target_cost = context.cost_curve("target", context.target);
      if (context.draft_model != nullptr) {
        measured.drafter_cost = context.cost_curve(context.draft_model_name, *context.draft_model);
      }
    }
    return std::make_unique<AdaptiveDraftLength>(std::move(measured));
  };
}

}  // namespace

void add_draft_lengths(ShapeRegistry& lengths) {
  lengths.add("fixed", {.help = "always the same",
                        .options = fixed_options().help(),
                        .promise = Promise::kLossless,
                        .prepare = prepare_fixed,
                        .examples = {{"{type: fixed, length: 1}"}, {"{type: fixed, length: 2}"}}});
  lengths.add("heuristic", {.help = "+2 when all drafted tokens were accepted, -1 otherwise",
                            .source = "Hugging Face's assisted generation",
                            .options = heuristic_options().help(),
                            .promise = Promise::kLossless,
                            .prepare = prepare_heuristic,
                            .examples = {{"{type: heuristic, initial: 1, max: 2}"}}});
  lengths.add(
      "adaptive",
      {.help = "grows and shrinks with the acceptance rate; decodes plainly for a while when not "
               "even one token pays by the measured cost curves, which are frozen with the run",
       .options = adaptive_options().help(),
       .promise = Promise::kLossless,
       .prepare = prepare_adaptive,
       // Pauses early, so that short outputs have drafted and plain steps.
       .examples = {{"{type: adaptive, initial: 1, max: 2, memory: 0.5, pause: 1, probe: 1}"}}});
}

}  // namespace specdec
