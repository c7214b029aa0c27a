// specdec with five components more: two drafters, a verifier, a tree and a draft length.
#include <memory>

#include "bigram_drafter.h"
#include "comb_tree.h"
#include "counting_drafter.h"
#include "experiments/cli/cli.h"
#include "last_run_length.h"
#include "leviathan_verifier.h"

using namespace specdec;

namespace {

DrafterRegistry::Make prepare_bigram(const ConfigNode&, const RunPlan&) {
  return [](BuildContext&) { return std::make_unique<BigramDrafter>(); };
}

DrafterRegistry::Make prepare_counting(const ConfigNode& node, const RunPlan&) {
  const auto prior = node.get<double>("prior", 0.1, {1e-6, 1e6});
  return [prior](BuildContext& context) {
    return std::make_unique<CountingDrafter>(context.target.vocab_size(), prior);
  };
}

VerifierRegistry::Make prepare_leviathan(const ConfigNode& node, const RunPlan& plan) {
  if (plan.branches != nullptr && *plan.branches > 1) {
    node.fail_at("type", "leviathan verifies chains only; use draft_length instead of tree");
  }
  return [](BuildContext&) { return std::make_unique<LeviathanVerifier>(); };
}

TreeRegistry::Make prepare_comb(const ConfigNode& node, const RunPlan& plan) {
  const auto depth = node.get<int64_t>("depth", 4, {1, 64});
  const auto width = node.get<int64_t>("width", 2, {1, 8});
  note_branches(plan, width);
  return [depth, width](BuildContext&) { return std::make_unique<CombTree>(depth, width); };
}

DraftLengthRegistry::Make prepare_last_run(const ConfigNode& node, const RunPlan&) {
  const auto max = node.get<int64_t>("max", 8, {1, 64});
  return [max](BuildContext&) { return std::make_unique<LastRunLength>(max); };
}

}  // namespace

int main(int argc, char** argv) {
  Components components = builtin_components();
  components.drafters.add("bigram", {.help = "what followed each token the last time",
                                     .promise = Promise::kLossless,
                                     .prepare = prepare_bigram});
  components.drafters.add("counting", {.help = "a bigram model of the text so far\nprior: 0.1",
                                       .promise = Promise::kLossless,
                                       .prepare = prepare_counting});
  components.verifiers.add("leviathan", {.help = "speculative sampling of chains, as published",
                                         .promise = Promise::kLossless,
                                         .prepare = prepare_leviathan});
  components.trees.add("comb", {.help = "a chain with side leaves\ndepth: 4, width: 2",
                                .promise = Promise::kLossless,
                                .prepare = prepare_comb,
                                .examples = {{"{type: comb, depth: 2, width: 2}"}}});
  components.draft_lengths.add("last_run",
                               {.help = "one more than were accepted in the last step\nmax: 8",
                                .promise = Promise::kLossless,
                                .prepare = prepare_last_run,
                                .examples = {{"{type: last_run, max: 2}"}}});
  return run_cli(argc, argv, components);
}
