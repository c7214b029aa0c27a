#include "experiments/components/builtin.h"

namespace specdec {

void note_promise(const RunPlan& plan, Promise promise) {
  if (plan.promise == nullptr || promise == Promise::kLossless) {
    return;
  }
  if (promise == Promise::kSearch || *plan.promise == Promise::kLossless) {
    *plan.promise = promise;
  }
}

void note_branches(const RunPlan& plan, int64_t most) {
  if (plan.branches != nullptr) {
    *plan.branches = most;
  }
}

Components builtin_components() {
  Components all;
  add_strategies(all.strategies);
  add_drafters(all.drafters);
  add_head_drafters(all.drafters);
  add_medusa(all.drafters);
  add_verifiers(all.verifiers);
  add_draft_lengths(all.draft_lengths);
  add_trees(all.trees);
  return all;
}

}  // namespace specdec
