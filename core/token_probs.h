#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/randomness.h"
#include "core/types.h"

namespace specdec {

/// A token with its probability.
struct Candidate {
  Token token = 0;
  double probability = 0.0;
};

/// The distribution of a token, or weights that need not sum to one: what a target or a drafter
/// says comes next. It holds no row of the whole vocabulary: few tokens are kept with their
/// probabilities, and of many only the sums of blocks (see WeightBlocks), each block's
/// probabilities being made when they are asked for. Immutable, and cheap to copy.
class TokenProbs {
 public:
  /// Over no token.
  TokenProbs() = default;
  /// Distribution of these probabilities, [vocab].
  explicit TokenProbs(std::vector<double> row);
  /// Distribution over some tokens, ascending; all others have no mass.
  TokenProbs(std::vector<Token> ids, std::vector<double> weights, int64_t vocab_size);
  /// Each weight times `unit`.
  explicit TokenProbs(std::shared_ptr<const WeightBlocks> blocks, double unit = 1.0);
  /// Distribution with all the mass on one token.
  static TokenProbs one_hot(Token token, int64_t vocab_size);

  int64_t vocab_size() const { return vocab_size_; }
  bool empty() const { return vocab_size_ == 0; }
  /// The tokens, ascending, of a distribution that keeps few, with their probabilities in visit();
  /// empty for one over all tokens.
  TokenSpan ids() const { return ids_; }
  /// What makes its probabilities; nullptr where it keeps few tokens, or multiplies what is made.
  const WeightBlocks* blocks() const { return unit_ == 1.0 ? blocks_.get() : nullptr; }
  /// The probability of a token; InternalError when it is outside the vocabulary.
  double operator[](Token token) const;
  double sum() const;
  /// The most likely token; the lowest id on a tie. InternalError when none has any mass.
  Token best() const;
  /// The `count` most likely tokens, best first, equal ones by their ids; only those with mass.
  std::vector<Candidate> top(int64_t count) const;
  /// The sum must be positive.
  Token draw(Randomness& random) const;
  /// Probabilities of all tokens, [vocab].
  std::vector<double> row() const;
  /// Calls `see` with the probabilities part by part, by token; those of some are left out, all
  /// zero.
  void visit(const std::function<void(std::span<const double>)>& see) const;

  /// This distribution divided by its sum, which must be positive.
  TokenProbs normalised() const;
  /// This distribution with its probabilities made now, once: for one that is read several times.
  TokenProbs stored() const;
  /// Copy with no mass on one token; not normalised.
  TokenProbs without(Token token) const;
  /// This distribution over a larger vocabulary: names[i] is there what token i is here; ascending.
  TokenProbs renamed(TokenSpan names, int64_t vocab_size) const;

 private:
  friend TokenProbs residual(const TokenProbs& p, const TokenProbs& q, double scale);
  class Difference;

  bool is_sparse() const { return blocks_ == nullptr; }
  /// The probabilities of a block; of a sparse distribution too.
  void fill(int64_t block, std::span<double> probs) const;
  /// Range [begin, end) of the ids that lie in a block.
  std::pair<size_t, size_t> ids_of(int64_t block) const;

  int64_t vocab_size_ = 0;
  std::vector<Token> ids_;       // of a sparse distribution
  std::vector<double> weights_;  // the same
  std::shared_ptr<const WeightBlocks> blocks_;
  double unit_ = 1.0;
};

/// The residual max(scale * p - q, 0) of speculative sampling (Leviathan et al., 2023), not
/// normalised. Nothing may be left of it: sum() is 0.
TokenProbs residual(const TokenProbs& p, const TokenProbs& q, double scale = 1.0);

}  // namespace specdec
