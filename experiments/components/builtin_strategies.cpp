#include <fmt/format.h>

#include <limits>
#include <memory>
#include <utility>

#include "decoders/autoregressive.h"
#include "decoders/beam_search.h"
#include "decoders/shapes/chain.h"
#include "decoders/speculative.h"
#include "decoders/speculative_beam.h"
#include "experiments/components/builtin.h"

namespace specdec {
namespace {

StrategyRegistry::Make prepare_autoregressive(const ConfigNode&, const RunPlan&) {
  return [](BuildContext& context) {
    return std::make_unique<AutoregressiveDecoding>(context.target);
  };
}

/// `tree` is a map whose `type` picks the shape. Else the draft is a chain: `draft_length` is a
/// number, or a map whose `type` picks how it changes.
TreeRegistry::Make prepare_shape(const ConfigNode& node, const RunPlan& plan) {
  if (node.has("tree")) {
    if (node.has("draft_length")) {
      node.fail("draft_length",
                "a strategy drafts chains (draft_length) or trees (tree), not both");
    }
    note_branches(plan, std::numeric_limits<int64_t>::max());  // if the tree does not note it
    return plan.components.trees.prepare(node.child("tree"), plan);
  }
  note_branches(plan, 1);
  if (node.is_map("draft_length")) {
    auto length = plan.components.draft_lengths.prepare(node.child("draft_length"), plan);
    return
        [length](BuildContext& context) { return std::make_unique<ChainShape>(length(context)); };
  }
  const auto length = node.get<int64_t>("draft_length", 5, {1, kMaxDraftLength});
  return [length](BuildContext&) { return std::make_unique<ChainShape>(length); };
}

StrategyRegistry::Make prepare_speculative(const ConfigNode& node, const RunPlan& run) {
  int64_t branches = 1;
  RunPlan plan = run;
  plan.branches = &branches;
  const Components& all = plan.components;
  auto shape = prepare_shape(node, plan);
  auto drafter = all.drafters.prepare(node.child("drafter"), plan);
  const char* usual = plan.sampling.greedy() ? "exact_match" : "rejection";
  auto verifier = all.verifiers.prepare(node.typed_child("verifier", usual), plan);
  return [drafter = std::move(drafter), verifier = std::move(verifier),
          shape = std::move(shape)](BuildContext& context) -> std::unique_ptr<DecodingStrategy> {
    auto built_drafter = drafter(context);  // first: it gives the shape its model
    auto built_verifier = verifier(context);
    return std::make_unique<SpeculativeDecoding>(context.target, std::move(built_drafter),
                                                 std::move(built_verifier), shape(context));
  };
}

/// false, true or never; a bare `never` and a quoted one are the same.
EarlyStopping read_early_stopping(const ConfigNode& node) {
  const auto text = node.get<std::string>("early_stopping", "false");
  if (text != "false" && text != "true" && text != "never") {
    node.fail("early_stopping", "must be false, true or never, not '" + text + "'");
  }
  return text == "true"    ? EarlyStopping::kTrue
         : text == "never" ? EarlyStopping::kNever
                           : EarlyStopping::kFalse;
}

constexpr int64_t kMaxBeams = 256;

BeamOptions read_beams(const ConfigNode& node, const RunPlan& plan) {
  BeamOptions options;
  options.num_beams = node.get<int64_t>("num_beams", options.num_beams, {1, kMaxBeams});
  options.length_penalty =
      node.get<double>("length_penalty", options.length_penalty, {-100.0, 100.0});
  options.early_stopping = read_early_stopping(node);
  options.num_return_sequences =
      node.get<int64_t>("num_return_sequences", options.num_beams, {1, kMaxBeams});
  if (options.num_return_sequences > options.num_beams) {
    node.fail("num_return_sequences", fmt::format("{} is more than num_beams ({})",
                                                  options.num_return_sequences, options.num_beams));
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

StrategyRegistry::Make prepare_speculative_beam(const ConfigNode& node, const RunPlan& plan) {
  SpeculativeBeamSearch::Options options{.beams = read_beams(node, plan)};
  options.draft_length =
      node.get<int64_t>("draft_length", options.draft_length, {1, kMaxDraftLength});
  options.draft_width =
      node.get<int64_t>("draft_width", 2 * options.beams.num_beams, {1, kMaxDraftLength});
  RunPlan own = plan;
  own.branches = &options.draft_width;
  auto drafter = plan.components.drafters.prepare(node.child("drafter"), own);
  return [drafter = std::move(drafter), options](BuildContext& context) {
    return std::make_unique<SpeculativeBeamSearch>(context.target, drafter(context), options);
  };
}

}  // namespace

void add_strategies(StrategyRegistry& strategies) {
  strategies.add("autoregressive",
                 {.help = "plain decoding: one token a forward; what others are compared with",
                  .promise = Promise::kLossless,
                  .prepare = prepare_autoregressive});
  strategies.add(
      "speculative",
      {.help = "a drafter proposes tokens, one forward of the target verifies them\n"
               "drafter: {type: ...}\n"
               "verifier: {type: ...}  (default: exact_match when greedy, else rejection)\n"
               "draft_length: 5, or {type: fixed | heuristic | adaptive, ...}: a chain\n"
               "tree: {type: ...}: a tree of tokens, instead of draft_length",
       .promise = Promise::kLossless,
       .prepare = prepare_speculative,
       .examples = {{"{type: speculative, drafter: <drafter>, verifier: <verifier>, <shape>}"}}});
  const std::string beam_options =
      "num_beams: 4\n"
      "length_penalty: 1.0; hypotheses are ranked by log-probability / length ^ length_penalty\n"
      "early_stopping: false, true or never (Hugging Face's three rules)\n"
      "num_return_sequences: hypotheses in the result (default: num_beams)";
  strategies.add("beam_search",
                 {.help = "the most likely sequences grow side by side, all in one forward a "
                          "step\n" +
                          beam_options,
                  .promise = Promise::kSearch,
                  .prepare = prepare_beam_search,
                  .examples = {{"{type: beam_search, num_beams: 2}"}}});
  strategies.add(
      "speculative_beam",
      {.help = "beam search with drafts: its hypotheses and scores, with fewer forwards\n"
               "drafter: {type: ...} that reads tokens only\n"
               "draft_length: 2, levels of the draft trees\n"
               "draft_width: nodes a level, over all beams (default: 2 * num_beams)\n" +
               beam_options,
       .promise = Promise::kSearch,
       .prepare = prepare_speculative_beam,
       .examples = {{"{type: speculative_beam, num_beams: 2, draft_length: 2, drafter: <drafter>}",
                     "{type: beam_search, num_beams: 2}"}}});
}

}  // namespace specdec
