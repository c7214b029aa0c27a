#include <fmt/format.h>

#include <memory>
#include <utility>

#include "core/error.h"
#include "decoders/autoregressive.h"
#include "decoders/drafters/draft_model.h"
#include "decoders/drafters/prompt_lookup.h"
#include "decoders/speculative.h"
#include "decoders/verifiers/exact_match.h"
#include "decoders/verifiers/rejection.h"
#include "experiments/components.h"

namespace specdec {
namespace {

constexpr int64_t kMaxDraftLength = 1024;

StrategyRegistry::Make prepare_autoregressive(const ConfigNode&, const RunPlan&) {
  return [](BuildContext& context) {
    return std::make_unique<AutoregressiveDecoding>(context.target);
  };
}

DrafterRegistry::Make prepare_draft_model(const ConfigNode& node, const RunPlan& plan) {
  const auto weights = node.require_path("weights");
  const DraftModelOptions options{.sample = node.get<bool>("sample", true)};
  if (!weights.empty() && plan.target != nullptr) {
    try {
      const auto& draft = plan.models.read(weights);
      const auto mismatch = vocabulary_mismatch(*plan.target, draft);
      if (!mismatch.empty()) {
        node.fail("weights", mismatch + "; a draft model must share the target's tokenizer");
      } else if (draft.config.bidirectional) {
        node.fail("weights", "is an encoder (bidirectional attention): cannot decode");
      }
    } catch (const Error& error) {
      node.fail("weights", error.what());
    }
  }
  return [weights, options](BuildContext& context) {
    auto model = context.models.load(weights);
    context.draft_model = model.get();
    context.draft_model_name = weights.string();
    return std::make_unique<DraftModelDrafter>(std::move(model), options);
  };
}

DrafterRegistry::Make prepare_prompt_lookup(const ConfigNode& node, const RunPlan&) {
  PromptLookupOptions options;
  options.max_ngram = node.get<int64_t>("max_ngram", options.max_ngram, {1, 1024});
  options.min_ngram = node.get<int64_t>("min_ngram", options.min_ngram, {1, 1024});
  if (options.min_ngram > options.max_ngram) {
    node.fail("min_ngram",
              fmt::format("{} is more than max_ngram ({})", options.min_ngram, options.max_ngram));
  }
  return [options](BuildContext&) { return std::make_unique<PromptLookupDrafter>(options); };
}

VerifierRegistry::Make prepare_exact_match(const ConfigNode& node, const RunPlan& plan) {
  if (!plan.sampling.greedy()) {
    node.fail_at("type", fmt::format("exact_match compares with greedy decoding, but "
                                     "sampling.temperature is {}; use rejection, or temperature 0",
                                     plan.sampling.temperature));
  }
  return [](BuildContext&) { return std::make_unique<ExactMatchVerifier>(); };
}

VerifierRegistry::Make prepare_rejection(const ConfigNode&, const RunPlan&) {
  return [](BuildContext&) { return std::make_unique<RejectionVerifier>(); };
}

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

/// `draft_length` is a number, or a map whose `type` picks how it changes.
DraftLengthRegistry::Make prepare_draft_length(const ConfigNode& node, const RunPlan& plan,
                                               const DraftLengthRegistry& lengths) {
  if (node.is_map("draft_length")) {
    return lengths.prepare(node.child("draft_length"), plan);
  }
  const auto length = node.get<int64_t>("draft_length", 5, {1, kMaxDraftLength});
  return [length](BuildContext&) { return std::make_unique<FixedDraftLength>(length); };
}

StrategyRegistry::Make prepare_speculative(const ConfigNode& node, const RunPlan& plan) {
  const Components& all = plan.components;
  auto drafter = all.drafters.prepare(node.child("drafter"), plan);
  const char* usual = plan.sampling.greedy() ? "exact_match" : "rejection";
  auto verifier = all.verifiers.prepare(node.typed_child("verifier", usual), plan);
  auto length = prepare_draft_length(node, plan, all.draft_lengths);
  return [drafter = std::move(drafter), verifier = std::move(verifier),
          length = std::move(length)](BuildContext& context) -> std::unique_ptr<DecodingStrategy> {
    auto built_drafter = drafter(context);  // first: it tells the draft length its model
    auto built_verifier = verifier(context);
    return std::make_unique<SpeculativeDecoding>(context.target, std::move(built_drafter),
                                                 std::move(built_verifier), length(context));
  };
}

}  // namespace

Components builtin_components() {
  Components all;
  all.strategies.add("autoregressive",
                     {.help = "plain decoding: one token a forward; what others are compared with",
                      .prepare = prepare_autoregressive});
  all.strategies.add(
      "speculative",
      {.help = "a drafter proposes tokens, one forward of the target verifies them\n"
               "drafter: {type: ...}\n"
               "verifier: {type: ...}  (default: exact_match when greedy, else rejection)\n"
               "draft_length: 5, or {type: fixed | heuristic | adaptive, ...}",
       .prepare = prepare_speculative});
  all.drafters.add("draft_model",
                   {.help = "a smaller model with the same tokenizer decodes ahead\n"
                            "weights: its checkpoint folder\n"
                            "sample: true draws from its law when the target samples, false takes "
                            "its best token",
                    .prepare = prepare_draft_model});
  all.drafters.add("prompt_lookup",
                   {.help = "copies what followed the longest earlier match of the newest tokens\n"
                            "max_ngram, min_ngram: lengths of the match to try",
                    .prepare = prepare_prompt_lookup});
  all.verifiers.add("exact_match",
                    {.help = "keeps drafted tokens that equal the target's best (greedy only)",
                     .prepare = prepare_exact_match});
  all.verifiers.add("rejection",
                    {.help = "accepts with min(1, p/q), else draws from the residual: the target's "
                             "law is kept (Leviathan et al., 2023)",
                     .prepare = prepare_rejection});
  all.draft_lengths.add("fixed", {.help = "length: 5", .prepare = prepare_fixed});
  all.draft_lengths.add("heuristic",
                        {.help = "+2 when all drafted tokens were accepted, -1 otherwise\n"
                                 "initial: 5, min: 1, max: 20",
                         .prepare = prepare_heuristic});
  all.draft_lengths.add(
      "adaptive",
      {.help = "grows above 80 % acceptance, shrinks below 40 %, decodes plainly for a while when\n"
               "even one token does not pay by the measured cost curves, frozen with the run\n"
               "initial: 4, max: 16, grow_above: 0.8, shrink_below: 0.4, memory: 0.8, pause: 16,\n"
               "max_pause: 128, probe: 4, use_costs: true (false: acceptance alone decides)",
       .prepare = prepare_adaptive});
  return all;
}

}  // namespace specdec
