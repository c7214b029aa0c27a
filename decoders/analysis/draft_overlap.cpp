#include "decoders/analysis/draft_overlap.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "core/error.h"

namespace specdec {

double overlap(std::span<const double> p, std::span<const double> q) {
  SPECDEC_CHECK(p.size() == q.size(), "the overlap of distributions over {} and {} tokens",
                p.size(), q.size());
  double sum = 0.0;
  for (size_t i = 0; i < p.size(); ++i) {
    sum += std::min(p[i], q[i]);
  }
  return sum;
}

std::vector<double> draft_overlaps(const Draft& draft, TargetProbs& target, int64_t max_depth) {
  const std::vector<int64_t> depths = draft.depths();
  std::vector<double> overlaps;
  for (int64_t node = 0; node < draft.size(); ++node) {
    const std::vector<int64_t> children = draft.children(node);
    if (children.empty() || depths[static_cast<size_t>(node)] >= max_depth) {
      continue;
    }
    if (const TokenProbs* q = draft.drawn_from(node)) {
      overlaps.push_back(overlap(target.after(node).row(), q->row()));
      continue;
    }
    double mass = 0.0;
    for (const int64_t child : children) {
      mass += target.probability(node, draft.tokens[static_cast<size_t>(child)]);
    }
    overlaps.push_back(mass);
  }
  return overlaps;
}

}  // namespace specdec
