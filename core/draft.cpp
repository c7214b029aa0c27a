#include "core/draft.h"

#include "core/error.h"

namespace specdec {

Draft Draft::root(Token newest) {
  Draft draft;
  draft.tokens = {newest};
  draft.parents = {-1};
  draft.child_probs = {-1};
  return draft;
}

int64_t Draft::add(Token token, int64_t parent) {
  SPECDEC_CHECK(parent >= 0 && parent < size(), "draft: no node {} among {} to follow", parent,
                size());
  tokens.push_back(token);
  parents.push_back(parent);
  child_probs.push_back(-1);
  return size() - 1;
}

std::vector<int64_t> Draft::children(int64_t node) const {
  std::vector<int64_t> found;
  for (int64_t i = node + 1; i < size(); ++i) {
    if (parents[static_cast<size_t>(i)] == node) {
      found.push_back(i);
    }
  }
  return found;
}

std::vector<int64_t> Draft::depths() const {
  std::vector<int64_t> depths(tokens.size(), 0);
  for (size_t i = 1; i < depths.size(); ++i) {
    depths[i] = depths[static_cast<size_t>(parents[i])] + 1;
  }
  return depths;
}

}  // namespace specdec
