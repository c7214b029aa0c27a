#include "decoders/shapes/beam_shape.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "core/error.h"
#include "decoders/shapes/draft_growth.h"

namespace specdec {
namespace {

struct ScoredChild {
  int64_t parent = 0;
  Token token = 0;
  double score = 0.0;
};

}  // namespace

BeamShape::BeamShape(int64_t depth, int64_t width) : depth_(depth), width_(width) {
  SPECDEC_CHECK(depth >= 1 && width >= 1, "a beam shape of {} levels of {}", depth, width);
}

void BeamShape::begin_step(std::vector<Token> ends) {
  ends_ = std::move(ends);
  levels_.assign(static_cast<size_t>(depth_), {});
}

void BeamShape::begin_beam(double log_prob) {
  log_prob_ = log_prob;
  grown_ = {};
}

BeamShape::Scored BeamShape::scored(Draft draft) {
  const bool grown_here = !grown_.scores.empty() && grown_.draft.tokens == draft.tokens &&
                          grown_.draft.parents == draft.parents;
  if (!grown_here) {  // what was grown is not verified, so it takes no place on its levels
    return {std::move(draft), {}};
  }
  levels_ = std::move(grown_levels_);
  return std::exchange(grown_, {});
}

Draft BeamShape::prune(const Scored& grown) const {
  const Draft& draft = grown.draft;
  if (grown.scores.empty()) {
    return draft;
  }
  const std::vector<int64_t> depths = draft.depths();
  Draft pruned = Draft::root(draft.tokens.front());
  std::vector<int64_t> kept(draft.tokens.size(), -1);
  kept[0] = 0;
  for (size_t node = 1; node < draft.tokens.size(); ++node) {
    const int64_t parent = kept[static_cast<size_t>(draft.parents[node])];
    if (parent >= 0 && is_among_best(depths[node] - 1, grown.scores[node])) {
      kept[node] = pruned.add(draft.tokens[node], parent);
    }
  }
  return pruned;
}

DraftLimits BeamShape::next(int64_t /*context*/) {
  return {.tokens = depth_ * width_, .depth = depth_, .branches = width_};
}

bool BeamShape::is_among_best(int64_t level, double score) const {
  const std::vector<double>& best = levels_[static_cast<size_t>(level)];
  return static_cast<int64_t>(best.size()) < width_ || score >= best.back();
}

bool BeamShape::admit(int64_t level, double score) {
  std::vector<double>& best = grown_levels_[static_cast<size_t>(level)];
  const bool full = static_cast<int64_t>(best.size()) == width_;
  if (full && score <= best.back()) {
    return false;
  }
  best.insert(std::upper_bound(best.begin(), best.end(), score, std::greater<>()), score);
  best.resize(static_cast<size_t>(std::min(width_, static_cast<int64_t>(best.size()))));
  return true;
}

Draft BeamShape::grow(const DraftContext& context, ChildDistribution& distribution,
                      Siblings /*siblings*/) {
  DraftGrowth growth(context, distribution, Siblings::kBest);
  grown_levels_ = levels_;
  std::vector<double> scores = {log_prob_};
  // A single best token would be found without its probability.
  const int64_t wanted = std::max<int64_t>(2, width_ + static_cast<int64_t>(ends_.size()));
  std::vector<int64_t> frontier = {0};
  for (int64_t level = 0; level < depth_ && !frontier.empty(); ++level) {
    growth.expand(frontier);
    std::vector<ScoredChild> children;
    for (const int64_t parent : frontier) {
      const double score = scores[static_cast<size_t>(parent)];
      for (const Candidate& candidate : growth.best(parent, wanted)) {
        if (std::find(ends_.begin(), ends_.end(), candidate.token) == ends_.end()) {
          children.push_back({parent, candidate.token, score + std::log(candidate.probability)});
        }
      }
    }
    std::stable_sort(children.begin(), children.end(),
                     [](const auto& a, const auto& b) { return a.score > b.score; });
    frontier.clear();
    for (const ScoredChild& child : children) {
      if (growth.room() > 0 && admit(level, child.score)) {
        frontier.push_back(growth.add(child.token, child.parent));
        scores.push_back(child.score);
      }
    }
  }
  grown_ = {std::move(growth).finish(), std::move(scores)};
  return grown_.draft;
}

}  // namespace specdec
