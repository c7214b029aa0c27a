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

struct CountingOptions {
  double prior = 0.1;
};

OptionTable<CountingOptions> counting_options() {
  return OptionTable<CountingOptions>().add(
      "prior", &CountingOptions::prior, "added to every count; more drafts flatter", {1e-6, 1e6});
}

DrafterRegistry::Make prepare_counting(const ConfigNode& node, const RunPlan&) {
  const double prior = counting_options().read(node).prior;
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

struct CombOptions {
  int64_t depth = 4;
  int64_t width = 2;
};

OptionTable<CombOptions> comb_options() {
  return OptionTable<CombOptions>()
      .add("depth", &CombOptions::depth, "nodes of the chain", {1, 64})
      .add("width", &CombOptions::width, "children of each of them", {1, 8});
}

ShapeRegistry::Make prepare_comb(const ConfigNode& node, const RunPlan& plan) {
  const auto [depth, width] = comb_options().read(node);
  note_branches(plan, width, depth);
  return [depth = depth, width = width](BuildContext&) {
    return std::make_unique<CombTree>(depth, width);
  };
}

struct LastRunOptions {
  int64_t max = 8;
};

OptionTable<LastRunOptions> last_run_options() {
  return OptionTable<LastRunOptions>().add("max", &LastRunOptions::max, "longest draft", {1, 64});
}

ShapeRegistry::Make prepare_last_run(const ConfigNode& node, const RunPlan&) {
  const int64_t max = last_run_options().read(node).max;
  return [max](BuildContext&) { return std::make_unique<LastRunLength>(max); };
}

}  // namespace

int main(int argc, char** argv) {
  Components components = builtin_components();
  components.drafters.add("bigram", {.help = "what followed each token the last time",
                                     .promise = Promise::kLossless,
                                     .prepare = prepare_bigram});
  components.drafters.add("counting", {.help = "a bigram model of the text so far",
                                       .options = counting_options().help(),
                                       .promise = Promise::kLossless,
                                       .prepare = prepare_counting});
  components.verifiers.add("leviathan", {.help = "speculative sampling of chains, as published",
                                         .promise = Promise::kLossless,
                                         .prepare = prepare_leviathan});
  components.trees.add("comb", {.help = "a chain with side leaves",
                                .options = comb_options().help(),
                                .promise = Promise::kLossless,
                                .prepare = prepare_comb,
                                .examples = {{"{type: comb, depth: 2, width: 2}"}}});
  components.draft_lengths.add("last_run", {.help = "one more than were accepted in the last step",
                                            .options = last_run_options().help(),
                                            .promise = Promise::kLossless,
                                            .prepare = prepare_last_run,
                                            .examples = {{"{type: last_run, max: 2}"}}});
  return run_cli(argc, argv, components);
}
