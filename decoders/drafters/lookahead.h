#pragma once
#include <unordered_map>
#include <vector>

#include "decoders/drafter.h"

namespace specdec {

struct LookaheadOptions {
  int64_t window = 7;             ///< W: places ahead that are guessed in parallel
  int64_t ngram = 5;              ///< N: tokens of an n-gram; N - 1 Jacobi iterations are kept
  int64_t guesses = 7;            ///< G: n-grams kept of each first token, and verified in a step
  bool pool_from_prompt = false;  ///< take the n-grams of prompt and output too

  /// The window's own children of a node: the next column's, and the newer iteration's, if any.
  int64_t window_branches() const { return ngram == 2 ? 1 : 2; }
  /// Children of a node that a tree must allow: the window's and a guess.
  int64_t least_branches() const { return window_branches() + 1; }
};

/// N-grams by their first token, the G newest of each.
class NgramPool {
 public:
  explicit NgramPool(int64_t most) : most_(static_cast<size_t>(most)) {}
  void clear() { ngrams_.clear(); }
  /// Adds an n-gram; one that is there already becomes the newest.
  void add(Token first, std::vector<Token> rest);
  /// What may follow a token, the oldest first.
  const std::vector<std::vector<Token>>& after(Token first) const;

 private:
  size_t most_;
  std::unordered_map<Token, std::vector<std::vector<Token>>> ngrams_;
};

/// Lookahead decoding (Fu et al., 2024, arXiv:2402.02057): the target itself guesses a window of W
/// places ahead by Jacobi iteration, N - 1 iterations deep; the n-grams that appear along the
/// iterations go into a pool, and those that begin with the newest token are verified.
///
/// Both branches ride in one draft tree. The window's oldest iteration is a path from the root, W -
/// 1 tokens; under its j-th node (the root for j = 0) hangs the path of the newer iterations at
/// that column: exactly what the paper's attention mask lets them see. After the forward the
/// target's best token at each column's end is the newest iteration. A step moves the window by one
/// place, however many tokens were accepted, as the authors' program does.
///
/// Deviations: the window's tokens are verified too, which costs nothing and can only accept more;
/// n-grams that begin alike share nodes; the window begins with the prompt's newest tokens instead
/// of randomly chosen ones of it, so drafting needs no randomness; it is narrowed where the tree or
/// the output's end leaves less room at a request's begin, and rests in steps that leave no room
/// for it.
class LookaheadDrafter final : public Drafter {
 public:
  /// Throws ConfigError for options out of range.
  explicit LookaheadDrafter(const LookaheadOptions& options = {});
  void reset() override;
  void skip(const DraftContext& context) override;
  /// Drafts, but rests in steps of a tree that allows fewer than least_branches. Throws ConfigError
  /// when the shape is a chain, where there is no window.
  Draft propose(const DraftContext& context) override;
  Needs needs() const override { return {.logits = true}; }
  bool reads_rejected() const override { return true; }

 private:
  /// Columns of the window in its present state.
  int64_t columns() const { return static_cast<int64_t>(levels_.front().size()) + 1; }
  /// Nodes of the window in its present state.
  int64_t window_tokens() const;
  /// The first iteration, as wide as the context allows.
  void begin_window(const DraftContext& context);
  /// Reads the newest iteration from the last step, if that verified this drafter's draft.
  void take_results(const StepResult* step);
  void add_iteration(Token root, std::vector<Token> newest);
  void take_committed(TokenSpan committed);
  void add_guesses(Draft& draft, const DraftContext& context, int64_t max_tokens) const;
  void add_window(Draft& draft);

  LookaheadOptions options_;
  NgramPool pool_;
  /// Tokens of the window, [iteration][column], the oldest iteration first; that has no token at
  /// column 0, where the root stands. Empty = no window yet, or no room for one.
  std::vector<std::vector<Token>> levels_;
  bool begun_ = false;
  Draft drafted_;                // the last proposal
  std::vector<int64_t> ends_;    // [column] its deepest node in drafted_; empty = the window rested
  int64_t committed_taken_ = 0;  // n-grams that end before it are in the pool
};

}  // namespace specdec
