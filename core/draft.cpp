#include "core/draft.h"

#include <algorithm>
#include <iterator>
#include <numeric>

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

const TokenProbs* Draft::drawn_from(int64_t node) const {
  const int64_t index = child_probs[static_cast<size_t>(node)];
  return index < 0 ? nullptr : &probs[static_cast<size_t>(index)];
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

int64_t Draft::depth() const {
  const std::vector<int64_t> all = depths();
  return all.empty() ? 0 : *std::max_element(all.begin(), all.end());
}

std::vector<int64_t> Draft::path_to(int64_t node) const {
  std::vector<int64_t> path;
  for (; node >= 0; node = parents[static_cast<size_t>(node)]) {
    path.push_back(node);
  }
  std::reverse(path.begin(), path.end());
  return path;
}

std::vector<Token> Draft::history(TokenSpan committed, int64_t node) const {
  const std::vector<int64_t> path = path_to(node);
  std::vector<Token> seen(committed.begin(), committed.end());
  std::transform(path.begin() + 1, path.end(), std::back_inserter(seen),
                 [this](int64_t drafted) { return tokens[static_cast<size_t>(drafted)]; });
  return seen;
}

std::vector<int64_t> chain_path(int64_t nodes) {
  std::vector<int64_t> path(static_cast<size_t>(nodes));
  std::iota(path.begin(), path.end(), 0);
  return path;
}

}  // namespace specdec
