#include "decoders/drafters/best_first.h"

#include <queue>
#include <tuple>

namespace specdec {
namespace {

/// A token that is not in the draft yet; its parent is.
struct Open {
  double weight = 0.0;  // of the whole path
  int64_t order = 0;
  int64_t parent = 0;
  int64_t depth = 1;
  Token token = 0;
  int64_t place = 0;

  bool operator<(const Open& other) const {  // the greatest is taken first
    return std::tuple(weight, -order) < std::tuple(other.weight, -other.order);
  }
};

}  // namespace

GrownDraft grow_best_first(Token root, int64_t place, const BestFirstLimits& limits,
                           const Followers& followers) {
  GrownDraft grown{.draft = Draft::root(root)};
  std::priority_queue<Open> open;
  int64_t order = 0;
  const auto look_after = [&](int64_t node, const Open& at) {
    if (at.depth < limits.max_depth) {
      for (const Follower& next : followers(at.place, limits.max_branches)) {
        const double weight = at.weight * next.weight;
        if (weight >= limits.min_weight) {
          open.push({weight, order++, node, at.depth + 1, next.token, next.place});
        }
      }
    }
  };
  look_after(0, {.weight = 1.0, .depth = 0, .place = place});
  while (!open.empty() && grown.draft.proposed() < limits.max_tokens) {
    const Open best = open.top();
    open.pop();
    grown.score += best.weight;
    look_after(grown.draft.add(best.token, best.parent), best);
  }
  return grown;
}

}  // namespace specdec
