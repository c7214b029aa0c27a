// specdec with ten components more: five drafters, a verifier, a tree, a draft length and two
// strategies.
#include <memory>
#include <utility>
#include <vector>

#include "bigram_drafter.h"
#include "comb_tree.h"
#include "counting_drafter.h"
#include "experiments/cli/cli.h"
#include "last_run_length.h"
#include "leviathan_verifier.h"
#include "likeliest_pair.h"
#include "nearest_state_drafter.h"
#include "no_repeat_ngram.h"
#include "patient_drafter.h"
#include "ucb_drafter.h"

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

struct PatientOptions {
  int64_t rest = 4;
};

OptionTable<PatientOptions> patient_options() {
  return OptionTable<PatientOptions>()
      .describe({{"drafter", "", "{type: ...}", "the one that rests"}})
      .add("rest", &PatientOptions::rest, "steps after a draft that was rejected", {1, 1000});
}

DrafterRegistry::Make prepare_patient(const ConfigNode& node, const RunPlan& plan) {
  const int64_t rest = patient_options().read(node).rest;
  auto inner = plan.components.drafters.prepare(node.component("drafter"), plan);
  return [inner, rest](BuildContext& context) {
    return std::make_unique<PatientDrafter>(inner(context), rest);
  };
}

struct UcbOptions {
  double exploration = 1.0;
};

OptionTable<UcbOptions> ucb_options() {
  return OptionTable<UcbOptions>()
      .describe({{"drafters", "", "[{type: ...}, ...]", "those to choose among"}})
      .add("exploration", &UcbOptions::exploration,
           "tokens that a drafter of which little is known may be better by", {0.0, 1000.0});
}

DrafterRegistry::Make prepare_ucb(const ConfigNode& node, const RunPlan& plan) {
  const double exploration = ucb_options().read(node).exploration;
  std::vector<DrafterRegistry::Make> makes;
  for (const ConfigNode& member : node.components("drafters")) {
    makes.push_back(plan.components.drafters.prepare(member, plan));
  }
  if (makes.empty() && node.is_list("drafters")) {
    node.fail("drafters", "the list is empty; give at least one drafter");
  }
  return [makes, exploration](BuildContext& context) {
    std::vector<std::unique_ptr<Drafter>> drafters;
    for (const auto& make : makes) {
      drafters.push_back(make(context));
    }
    return std::make_unique<UcbDrafter>(std::move(drafters), exploration);
  };
}

DrafterRegistry::Make prepare_nearest_state(const ConfigNode&, const RunPlan& plan) {
  note_hidden_states(plan);  // beam search refuses such drafters
  return [](BuildContext&) { return std::make_unique<NearestStateDrafter>(); };
}

VerifierRegistry::Make prepare_leviathan(const ConfigNode& node, const RunPlan& plan) {
  if (plan.draft->has_branches()) {
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

struct PairOptions {
  int64_t width = 4;
};

OptionTable<PairOptions> pair_options() {
  return OptionTable<PairOptions>().add("width", &PairOptions::width, "first tokens to try",
                                        {1, 64});
}

StrategyRegistry::Make prepare_likeliest_pair(const ConfigNode& node, const RunPlan& plan) {
  const int64_t width = pair_options().read(node).width;
  if (plan.sampling.greedy()) {
    node.fail_at("type", "likeliest_pair ranks tokens by their probability: set a temperature");
  }
  return [width](BuildContext& context) {
    return std::make_unique<LikeliestPair>(context.target, width);
  };
}

struct NoRepeatOptions {
  int64_t n = 3;
};

OptionTable<NoRepeatOptions> no_repeat_options() {
  return OptionTable<NoRepeatOptions>()
      .add("n", &NoRepeatOptions::n, "tokens of an n-gram", {1, 1000})
      .describe({{"strategy", "", "{type: ...}", "the one that decodes"}});
}

StrategyRegistry::Make prepare_no_repeat(const ConfigNode& node, const RunPlan& plan) {
  const int64_t n = no_repeat_options().read(node).n;
  RunPlan own = plan;
  own.weights = true;  // beam search refuses such a rule
  auto inner = plan.components.strategies.prepare(node.component("strategy"), own);
  return [inner, n](BuildContext& context) {
    return std::make_unique<NoRepeatNgram>(inner(context), static_cast<size_t>(n));
  };
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
  components.drafters.add("patient", {.help = "another drafter, which rests after rejections",
                                      .options = patient_options().help(),
                                      .promise = Promise::kLossless,
                                      .prepare = prepare_patient,
                                      .examples = {{"{type: patient, drafter: {type: bigram}}"}}});
  components.drafters.add(
      "ucb", {.help = "the drafter that promises the most accepted tokens, by a bandit's rule",
              .options = ucb_options().help(),
              .promise = Promise::kLossless,
              .prepare = prepare_ucb,
              .examples = {{"{type: ucb, drafters: [{type: bigram}, {type: nearest_state}]}"}}});
  components.drafters.add("nearest_state",
                          {.help = "copies what followed the most similar hidden state",
                           .promise = Promise::kLossless,
                           .prepare = prepare_nearest_state});
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
  components.strategies.add("likeliest_pair", {.help = "the likeliest pair of next tokens",
                                               .options = pair_options().help(),
                                               .promise = Promise::kLossy,
                                               .prepare = prepare_likeliest_pair});
  components.strategies.add(
      "no_repeat_ngram",
      {.help = "another strategy, without n-grams that come twice",
       .options = no_repeat_options().help(),
       .promise = Promise::kSearch,
       .prepare = prepare_no_repeat,
       .examples = {
           {.yaml = "{type: no_repeat_ngram, n: 2, strategy: {type: speculative, "
                    "draft_length: 2, drafter: {type: prompt_lookup, min_ngram: 1}}}",
            .equals = "{type: no_repeat_ngram, n: 2, strategy: {type: autoregressive}}"}}});
  return run_cli(argc, argv, components);
}
