#include "decoders/step_statistics.h"

#include <algorithm>
#include <utility>

#include "decoders/draft_grammar.h"

namespace specdec {

int64_t counted_depth(const Draft& draft, const VerifyResult& result, int64_t committed) {
  return committed < std::ssize(result.path) ? committed : draft.depth();
}

void count_draft(const Draft& draft, const VerifyResult& result, StepStatistics& step) {
  const std::vector<int64_t> depths = draft.depths();
  step.depth = counted_depth(draft, result, step.committed);
  step.accepted = std::min(std::ssize(result.path) - 1, step.committed);
  step.drafted = std::count_if(depths.begin() + 1, depths.end(),
                               [&](int64_t depth) { return depth <= step.depth; });
}

std::vector<std::vector<Token>> rejected_branches(const Draft& draft, const VerifyResult& result,
                                                  int64_t committed) {
  std::vector<std::vector<Token>> branches;
  if (committed < std::ssize(result.path)) {
    return branches;
  }
  for (const int64_t child : draft.children(result.path.back())) {
    std::vector<Token>& branch = branches.emplace_back();
    for (std::vector<int64_t> next = {child}; !next.empty(); next = draft.children(next.front())) {
      branch.push_back(draft.tokens[static_cast<size_t>(next.front())]);
    }
  }
  return branches;
}

void count_by_freedom(const Draft& draft, const VerifyResult& result,
                      std::span<const TokenMask> masks, StepStatistics& step) {
  const int64_t deepest = counted_depth(draft, result, step.committed);
  const std::vector<int64_t> depths = draft.depths();
  std::vector<bool> accepted(draft.tokens.size(), false);
  for (const int64_t node : result.path) {
    accepted[static_cast<size_t>(node)] = true;
  }
  std::vector<DraftCounts> children(draft.tokens.size());
  for (size_t node = 1; node < draft.tokens.size(); ++node) {
    if (depths[node] <= deepest) {
      DraftCounts& counts = children[static_cast<size_t>(draft.parents[node])];
      counts.drafted += 1;
      counts.accepted += accepted[node] ? 1 : 0;
    }
  }
  for (size_t node = 0; node < children.size(); ++node) {
    if (children[node].drafted > 0) {
      DraftCounts& counts = step.by_freedom[static_cast<size_t>(freedom_of(masks[node]))];
      counts.drafted += children[node].drafted;
      counts.accepted += children[node].accepted;
    }
  }
}

}  // namespace specdec
