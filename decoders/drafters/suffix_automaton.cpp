#include "decoders/drafters/suffix_automaton.h"

#include <algorithm>
#include <limits>

#include "core/error.h"

namespace specdec {
namespace {

constexpr Token kBorder = -1;
// A text of n tokens has fewer than 2 n states.
constexpr int32_t kMaxTokens = std::numeric_limits<int32_t>::max() / 2;

}  // namespace

SuffixAutomaton::SuffixAutomaton() : states_(1) {}

int32_t SuffixAutomaton::next(int64_t state, Token token) const {
  const auto& edges = at(state).edges;
  const auto edge = std::lower_bound(edges.begin(), edges.end(), token,
                                     [](const Edge& e, Token t) { return e.token < t; });
  return edge != edges.end() && edge->token == token ? edge->state : -1;
}

void SuffixAutomaton::set_next(int64_t state, Token token, int32_t to) {
  auto& edges = at(state).edges;
  const auto edge = std::lower_bound(edges.begin(), edges.end(), token,
                                     [](const Edge& e, Token t) { return e.token < t; });
  if (edge != edges.end() && edge->token == token) {
    edge->state = to;
  } else {
    edges.insert(edge, {token, to});
  }
}

int32_t SuffixAutomaton::link_through(int32_t state, Token token, int32_t to) {
  if (at(state).length + 1 == at(to).length) {
    return to;
  }
  const auto clone = static_cast<int32_t>(states_.size());
  State copy = at(to);
  copy.length = at(state).length + 1;
  states_.push_back(std::move(copy));
  at(to).link = clone;
  for (int32_t from = state; from >= 0 && next(from, token) == to; from = at(from).link) {
    set_next(from, token, clone);
  }
  return clone;
}

void SuffixAutomaton::append(Token token) {
  SPECDEC_CHECK(size_ < kMaxTokens, "a suffix automaton holds at most {} tokens", kMaxTokens);
  const auto added = static_cast<int32_t>(states_.size());
  states_.push_back({.link = 0, .length = at(newest_state_).length + 1});
  int32_t from = newest_state_;
  for (; from >= 0 && next(from, token) < 0; from = at(from).link) {
    set_next(from, token, added);
  }
  if (from >= 0) {
    // Not in one statement: link_through moves the states.
    const int32_t link = link_through(from, token, next(from, token));
    at(added).link = link;
  }
  for (int32_t state = added; state > 0; state = at(state).link) {
    ++at(state).count;
    at(state).newest = size_;
  }
  newest_state_ = added;
  ++size_;
}

void SuffixAutomaton::append_border() { append(kBorder); }

SuffixAutomaton::Match SuffixAutomaton::newest_repeat() const {
  return size_ == 0 ? Match{} : shorter({newest_state_, at(newest_state_).length});
}

SuffixAutomaton::Match SuffixAutomaton::extend(Match match, Token token) const {
  while (next(match.state, token) < 0) {
    if (match.state == 0) {
      return {};
    }
    match = shorter(match);
  }
  return {next(match.state, token), match.length + 1};
}

SuffixAutomaton::Match SuffixAutomaton::shorter(Match match) const {
  const int32_t link = std::max(at(match.state).link, 0);
  return {link, at(link).length};
}

std::vector<Follower> SuffixAutomaton::followers(int64_t state, int64_t count) const {
  std::vector<Edge> edges = at(state).edges;
  std::erase_if(edges, [](const Edge& edge) { return edge.token == kBorder; });
  double total = 0.0;
  for (const Edge& edge : edges) {
    total += at(edge.state).count;
  }
  const auto wanted = edges.begin() + std::min(count, static_cast<int64_t>(edges.size()));
  std::partial_sort(edges.begin(), wanted, edges.end(), [&](const Edge& a, const Edge& b) {
    const State& of_a = at(a.state);
    const State& of_b = at(b.state);
    return of_a.count != of_b.count ? of_a.count > of_b.count : of_a.newest > of_b.newest;
  });
  std::vector<Follower> found;
  for (auto edge = edges.begin(); edge != wanted; ++edge) {
    found.push_back({edge->token, at(edge->state).count / total, edge->state});
  }
  return found;
}

}  // namespace specdec
