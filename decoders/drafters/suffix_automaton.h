#pragma once
#include <cstdint>
#include <vector>

#include "core/types.h"
#include "decoders/drafters/best_first.h"

namespace specdec {

/// Every substring of a growing text, with the number of its occurrences: the suffix automaton of
/// Blumer et al., 1985, built online. A state stands for all substrings that end at the same
/// places. A token costs O(1) amortised for the automaton (times the logarithm of a state's
/// branches), and an increment for each state of the text's suffixes to keep the counts: a handful
/// in text, as many as its length only in one that repeats a few tokens throughout.
class SuffixAutomaton {
 public:
  /// A substring: the longest `length` tokens of what a state stands for.
  struct Match {
    int64_t state = 0;
    int64_t length = 0;  ///< 0 = nothing matches
  };

  SuffixAutomaton();
  void append(Token token);
  /// Ends a document: no match goes across.
  void append_border();
  /// Tokens so far, borders included.
  int64_t size() const { return size_; }

  /// The longest suffix of the text that ends earlier in it too.
  Match newest_repeat() const;
  /// The longest suffix of `match` and `token` that is in the text: a moving state to follow
  /// another text with, O(1) amortised.
  Match extend(Match match, Token token) const;
  /// The longest shorter suffix of `match` that occurs at more places.
  Match shorter(Match match) const;

  /// Tokens that follow a state's substrings, the most frequent first, then the newest: weights
  /// are their shares of the occurrences that are followed by anything.
  std::vector<Follower> followers(int64_t state, int64_t count) const;
  /// Number of times that a state's substrings occur.
  int64_t occurrences(int64_t state) const { return at(state).count; }

 private:
  struct Edge {
    Token token = 0;
    int32_t state = 0;
  };
  struct State {
    int32_t link = -1;             // of the longest suffix that ends at more places
    int32_t length = 0;            // of the longest substring
    int32_t count = 0;             // places where it ends
    int32_t newest = 0;            // the last of them
    std::vector<Edge> edges = {};  // by token
  };

  State& at(int64_t state) { return states_[static_cast<size_t>(state)]; }
  const State& at(int64_t state) const { return states_[static_cast<size_t>(state)]; }
  /// The state after a token, -1 = none.
  int32_t next(int64_t state, Token token) const;
  void set_next(int64_t state, Token token, int32_t to);
  /// The suffix link of a new state whose token `state` already leads to `to` with.
  int32_t link_through(int32_t state, Token token, int32_t to);

  std::vector<State> states_;
  int32_t newest_state_ = 0;
  int32_t size_ = 0;
};

}  // namespace specdec
