#include <fmt/format.h>

#include <memory>
#include <utility>

#include "core/error.h"
#include "experiments/components/builtin.h"

namespace specdec {
namespace {

DraftLengthRegistry::Make prepare_fixed(const ConfigNode& node, const RunPlan&) {
  const auto length = node.get<int64_t>("length", 5, {1, kMaxDraftLength});
  return [length](BuildContext&) { return std::make_unique<FixedDraftLength>(length); };
}

DraftLengthRegistry::Make prepare_heuristic(const ConfigNode& node, const RunPlan&) {
  HeuristicOptions options;
  options.initial = node.get<int64_t>("initial", options.initial, {1, kMaxDraftLength});
  options.min = node.get<int64_t>("min", options.min, {1, kMaxDraftLength});
  options.max = node.get<int64_t>("max", options.max, {1, kMaxDraftLength});
  if (options.min > options.initial || options.initial > options.max) {
    node.fail(fmt::format("min ({}), initial ({}) and max ({}) must not decrease", options.min,
                          options.initial, options.max));
  }
  return [options](BuildContext&) { return std::make_unique<HeuristicDraftLength>(options); };
}

DraftLengthRegistry::Make prepare_adaptive(const ConfigNode& node, const RunPlan&) {
  AdaptiveOptions options;
  options.initial = node.get<int64_t>("initial", options.initial, {1, kMaxDraftLength});
  options.max = node.get<int64_t>("max", options.max, {1, kMaxDraftLength});
  options.grow_above = node.get<double>("grow_above", options.grow_above, {0.0, 1.0});
  options.shrink_below = node.get<double>("shrink_below", options.shrink_below, {0.0, 1.0});
  options.memory = node.get<double>("memory", options.memory, {0.0, 0.999999});
  options.pause = node.get<int64_t>("pause", options.pause, {1, 1 << 20});
  options.max_pause = node.get<int64_t>("max_pause", options.max_pause, {1, 1 << 20});
  options.probe = node.get<int64_t>("probe", options.probe, {1, 1 << 20});
  const bool use_costs = node.get<bool>("use_costs", true);
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

void add_draft_lengths(DraftLengthRegistry& lengths) {
  lengths.add("fixed", {.help = "length: 5",
                        .promise = Promise::kLossless,
                        .prepare = prepare_fixed,
                        .examples = {{"{type: fixed, length: 1}"}, {"{type: fixed, length: 2}"}}});
  lengths.add("heuristic", {.help = "+2 when all drafted tokens were accepted, -1 otherwise\n"
                                    "initial: 5, min: 1, max: 20",
                            .promise = Promise::kLossless,
                            .prepare = prepare_heuristic,
                            .examples = {{"{type: heuristic, initial: 1, max: 2}"}}});
  lengths.add(
      "adaptive",
      {.help = "grows above 80 % acceptance, shrinks below 40 %, decodes plainly for a while when\n"
               "even one token does not pay by the measured cost curves, frozen with the run\n"
               "initial: 4, max: 16, grow_above: 0.8, shrink_below: 0.4, memory: 0.8, pause: 16,\n"
               "max_pause: 128, probe: 4, use_costs: true (false: acceptance alone decides)",
       .promise = Promise::kLossless,
       .prepare = prepare_adaptive,
       // Pauses early, so that short outputs have drafted and plain steps.
       .examples = {{"{type: adaptive, initial: 1, max: 2, memory: 0.5, pause: 1, probe: 1}"}}});
}

}  // namespace specdec
