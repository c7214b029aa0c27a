#include "experiments/components/builtin/builtin.h"

#include <fmt/format.h>

#include <algorithm>

namespace specdec {

std::string promise_name(Promise promise) {
  switch (promise) {
    case Promise::kLossless:
      return "lossless";
    case Promise::kUnverified:
      return "unverified";
    case Promise::kLossy:
      return "lossy";
    case Promise::kSearch:
      return "search";
  }
  return "";
}

Promise weaker(Promise a, Promise b) { return std::max(a, b); }

void note_promise(const RunPlan& plan, Promise promise) {
  plan.strategy->promise = weaker(plan.strategy->promise, promise);
}

void note_uncertified(const RunPlan& plan, const std::string& component) {
  auto& noted = plan.strategy->uncertified;
  if (std::find(noted.begin(), noted.end(), component) == noted.end()) {
    noted.push_back(component);
  }
}

void note_branches(const RunPlan& plan, int64_t most, int64_t levels) {
  plan.draft->branches = most;
  plan.draft->branch_levels = most > 1 ? levels : 0;
}

void note_best_only(const RunPlan& plan) { plan.draft->best_only = true; }

void note_hidden_states(const RunPlan& plan) { plan.draft->hidden_states = true; }

void check_sample(const ConfigNode& node, const RunPlan& plan, std::optional<bool> sample) {
  if (sample.value_or(false) && plan.draft->best_only) {
    node.fail("sample",
              "is true, and this tree leaves nodes out after their siblings were found: over "
              "siblings drawn at random that changes the output's distribution; give false, or "
              "another tree");
  }
}

Components builtin_components() {
  Components all;
  add_strategies(all.strategies);
  add_drafters(all.drafters);
  add_draft_model(all.drafters);
  add_head_drafters(all.drafters);
  add_self_drafter(all.drafters);
  add_medusa(all.drafters);
  add_assistant(all.drafters);
  add_block_heads(all.drafters);
  add_verifiers(all.verifiers);
  add_draft_lengths(all.draft_lengths);
  add_trees(all.trees);
  add_caches(all.caches);
  add_tracing_cache(all.caches);
  for (const std::string& drafter : all.drafters.names()) {
    all.strategies.explain(
        drafter, fmt::format("'{}' is a drafter, not a strategy: give {{type: speculative, "
                             "drafter: {{type: {}}}}}",
                             drafter, drafter));
  }
  // CertifyTest.EverythingRegisteredKeepsItsPromise
  all.strategies.mark_certified();
  all.drafters.mark_certified();
  all.verifiers.mark_certified();
  all.draft_lengths.mark_certified();
  all.trees.mark_certified();
  all.caches.mark_certified();  // CachesTest.ExactCachesGiveTheSameBits
  return all;
}

}  // namespace specdec
