#include <fmt/format.h>

#include <limits>
#include <memory>
#include <utility>

#include "decoders/autoregressive.h"
#include "decoders/beam_search.h"
#include "decoders/shapes/draft_length.h"
#include "decoders/speculative.h"
#include "decoders/speculative_beam.h"
#include "experiments/components/builtin/builtin.h"
#include "experiments/components/cache_checks.h"
#include "experiments/components/machine_profile.h"

namespace specdec {
namespace {

StrategyRegistry::Make prepare_autoregressive(const ConfigNode&, const RunPlan&) {
  return [](BuildContext& context) {
    return std::make_unique<AutoregressiveDecoding>(context.target);
  };
}

/// The length of drafts where none is given: the one that was the fastest with this drafter, if the
/// target's profile knows it.
int64_t usual_length(const ConfigNode& node, const RunPlan& plan) {
  std::optional<int64_t> profiled;
  if (plan.profile != nullptr && !node.has("draft_length") && node.has("drafter")) {
    (void)node.component("drafter");  // its name alone is a map from now on
    profiled = plan.profile->take_draft_length(*node.raw("drafter"), node.folder());
  }
  return profiled.value_or(FixedLengthOptions{}.length);
}

/// `tree` is a map whose `type` picks the shape. Else the draft is a chain: `draft_length` is a
/// number, or a map whose `type` picks how it changes.
ShapeRegistry::Make prepare_shape(const ConfigNode& node, const RunPlan& plan) {
  node.ignore("tree");  // known, whichever is given
  node.ignore("draft_length");
  if (node.has("tree")) {
    if (node.has("draft_length")) {
      node.fail("draft_length",
                "a strategy drafts chains (draft_length) or trees (tree), not both");
    }
    note_branches(plan, std::numeric_limits<int64_t>::max(), 0);  // if the tree does not note it
    return plan.components.trees.prepare(node.component("tree"), plan);
  }
  note_branches(plan, 1, 0);
  if (node.is_map("draft_length") || node.is_name("draft_length")) {
    return plan.components.draft_lengths.prepare(node.component("draft_length"), plan);
  }
  const auto length =
      node.get<int64_t>("draft_length", usual_length(node, plan), {1, kMaxDraftLength});
  return [length](BuildContext&) { return std::make_unique<FixedDraftLength>(length); };
}

StrategyRegistry::Make prepare_speculative(const ConfigNode& node, const RunPlan& run) {
  RunPlan plan = run;
  plan.draft = std::make_shared<DraftNotes>();
  const Components& all = plan.components;
  auto shape = prepare_shape(node, plan);
  auto drafter = all.drafters.prepare(node.component("drafter"), plan);
  const char* usual = plan.sampling.greedy() ? "exact_match" : "rejection";
  auto verifier = all.verifiers.prepare(node.component("verifier", usual), plan);
  return [drafter = std::move(drafter), verifier = std::move(verifier),
          shape = std::move(shape)](BuildContext& context) -> std::unique_ptr<DecodingStrategy> {
    auto built_drafter = drafter(context);  // first: it gives the shape its model
    auto built_verifier = verifier(context);
    return std::make_unique<SpeculativeDecoding>(context.target, std::move(built_drafter),
                                                 std::move(built_verifier), shape(context));
  };
}

constexpr NamedValue<EarlyStopping> kEarlyStopping[] = {{"false", EarlyStopping::kFalse},
                                                        {"true", EarlyStopping::kTrue},
                                                        {"never", EarlyStopping::kNever}};

constexpr int64_t kMaxBeams = 256;

OptionTable<BeamOptions> beam_options() {
  return OptionTable<BeamOptions>()
      .add("num_beams", &BeamOptions::num_beams, "sequences that grow side by side", {1, kMaxBeams})
      .add("length_penalty", &BeamOptions::length_penalty,
           "hypotheses are ranked by log-probability / length ^ length_penalty", {-100.0, 100.0})
      .add_choice("early_stopping", &BeamOptions::early_stopping, "Hugging Face's three rules",
                  kEarlyStopping)
      .describe(
          {{"num_return_sequences", "num_beams", "1 to num_beams", "hypotheses in the result"}});
}

BeamOptions read_beams(const ConfigNode& node, const RunPlan& plan) {
  BeamOptions options = beam_options().read(node);
  options.num_return_sequences =
      node.get<int64_t>("num_return_sequences", options.num_beams, {1, kMaxBeams});
  if (options.num_return_sequences > options.num_beams) {
    node.fail("num_return_sequences", fmt::format("{} is more than num_beams ({})",
                                                  options.num_return_sequences, options.num_beams));
  }
  if (plan.weights) {
    node.fail_at("type",
                 "beam search ranks sequences by the target's own probabilities, and the strategy "
                 "around it weighs them (DistributionWeights); use autoregressive or speculative");
  }
  check_beam_rows(node, plan, options.num_beams);
  if (plan.target_options != nullptr && plan.target_options->library_products) {
    node.fail_at("type",
                 "beam search reads parts of texts again, by exact products: leave out "
                 "model.prefill_products: library, or use another strategy");
  }
  if (!plan.sampling.greedy()) {
    node.fail_at("type", fmt::format("beam search ranks sequences by their probability and draws "
                                     "none, but sampling.temperature is {}; use temperature 0",
                                     plan.sampling.temperature));
  }
  return options;
}

StrategyRegistry::Make prepare_beam_search(const ConfigNode& node, const RunPlan& plan) {
  const BeamOptions options = read_beams(node, plan);
  return [options](BuildContext& context) {
    return std::make_unique<BeamSearchDecoding>(context.target, options);
  };
}

OptionTable<SpeculativeBeamSearch::Options> speculative_beam_options() {
  return OptionTable<SpeculativeBeamSearch::Options>()
      .describe({{"drafter", "", "{type: ...}", "one that reads tokens only"}})
      .add("draft_length", &SpeculativeBeamSearch::Options::draft_length,
           "levels of the draft trees", {1, kMaxDraftLength})
      .describe({{"draft_width", "twice num_beams", fmt::format("1 to {}", kMaxDraftLength),
                  "nodes per level, over all beams"}})
      .describe(beam_options().help());
}

StrategyRegistry::Make prepare_speculative_beam(const ConfigNode& node, const RunPlan& plan) {
  auto options = speculative_beam_options().read(node);
  options.beams = read_beams(node, plan);
  options.draft_width =
      node.get<int64_t>("draft_width", 2 * options.beams.num_beams, {1, kMaxDraftLength});
  if (options.beams.num_beams > 1 || options.draft_width > 1) {
    check_branch_levels(node, plan, options.draft_length);
  }
  RunPlan own = plan;
  own.draft = std::make_shared<DraftNotes>();
  own.beams = true;
  note_branches(own, options.draft_width, options.draft_length);
  auto drafter = plan.components.drafters.prepare(node.component("drafter"), own);
  if (own.draft->hidden_states) {
    node.fail("drafter",
              "follows the target's hidden states along one sequence, and beam search asks it for "
              "several in turn: choose a drafter that reads tokens only (draft_model, "
              "prompt_lookup)");
  }
  return [drafter = std::move(drafter), options](BuildContext& context) {
    return std::make_unique<SpeculativeBeamSearch>(context.target, drafter(context), options);
  };
}

void add_beam_searches(StrategyRegistry& strategies) {
  strategies.add(
      "beam_search",
      {.help = "the most likely sequences grow side by side, all in one forward per step",
       .page = "docs/beam_search.md",
       .options = beam_options().help(),
       .promise = Promise::kSearch,
       .prepare = prepare_beam_search,
       .examples = {{"{type: beam_search, num_beams: 2}"}}});
  strategies.add(
      "speculative_beam",
      {.help = "beam search with drafts: its hypotheses and scores, with fewer forwards",
       .page = "docs/beam_search.md",
       .options = speculative_beam_options().help(),
       .promise = Promise::kSearch,
       .prepare = prepare_speculative_beam,
       .examples = {{"{type: speculative_beam, num_beams: 2, draft_length: 2, drafter: <drafter>}",
                     "{type: beam_search, num_beams: 2}"}}});
}

}  // namespace

void add_strategies(StrategyRegistry& strategies) {
  strategies.add("autoregressive",
                 {.help = "plain decoding, one token per forward; the reference for all others",
                  .promise = Promise::kLossless,
                  .prepare = prepare_autoregressive});
  strategies.add(
      "speculative",
      {.help = "a drafter proposes tokens, one forward of the target verifies them",
       .source = "Leviathan et al., 2023, arXiv:2211.17192",
       .options = {{"drafter", "", "{type: ...}", "proposes tokens"},
                   {"verifier", "exact_match when greedy, else rejection", "{type: ...}",
                    "accepts or rejects them"},
                   {"draft_length", fmt::format("{}", FixedLengthOptions{}.length),
                    fmt::format("1 to {}, or {{type: ...}}", kMaxDraftLength),
                    "a chain of this length, or of one that changes"},
                   {"tree", "none", "{type: ...}", "a tree of tokens, instead of draft_length"}},
       .promise = Promise::kLossless,
       .prepare = prepare_speculative,
       .examples = {{"{type: speculative, drafter: <drafter>, verifier: <verifier>, <shape>}"}}});
  add_beam_searches(strategies);
}

}  // namespace specdec
