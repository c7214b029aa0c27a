#include "tests/support/retrieval.h"

#include "core/error.h"
#include "tests/support/draft_bench.h"

namespace specdec {

DraftLimits Room::next(int64_t /*context*/) { return limits_; }

Draft Room::grow(const DraftContext& /*context*/, ChildDistribution& /*distribution*/,
                 Siblings /*siblings*/) {
  throw InternalError("a room grows nothing");
}

Draft propose_within(Drafter& drafter, TokenSpan committed, const DraftLimits& limits,
                     const StepResult* last_step) {
  Room room(limits);
  DraftBench bench;
  DraftContext context = bench.context(committed, room, limits);
  context.last_step = last_step;
  return drafter.propose(context);
}

std::vector<std::vector<Token>> paths_of(const Draft& draft) {
  std::vector<std::vector<Token>> paths(1);
  for (size_t node = 1; node < draft.tokens.size(); ++node) {
    std::vector<Token> path = paths[static_cast<size_t>(draft.parents[node])];
    path.push_back(draft.tokens[node]);
    paths.push_back(std::move(path));
  }
  paths.erase(paths.begin());
  return paths;
}

}  // namespace specdec
