#pragma once
#include <ATen/core/Tensor.h>

#include <limits>
#include <vector>

#include "core/sampling.h"

namespace specdec {

/// The tokens that a drafter's head has a row for: a part of the target's vocabulary (EAGLE-3).
/// Its logits are processed as they are, one a column, and only what comes of them is named by the
/// target's tokens.
class DraftVocabulary {
 public:
  /// tokens[i]: the target's token of column i; ascending, below vocab_size. InternalError if not.
  /// `device`: where the head lies.
  DraftVocabulary(std::vector<Token> tokens, int64_t vocab_size, at::Device device = at::kCPU);

  int64_t vocab_size() const { return vocab_size_; }
  int64_t columns() const { return static_cast<int64_t>(tokens_.size()); }
  /// [columns] the target's token of each, ascending.
  TokenSpan tokens() const { return tokens_; }
  /// The tokens of tokens(), [columns] int32 on the head's device.
  const at::Tensor& ids() const { return ids_; }
  /// token_probs over the target's vocabulary, of logits [columns]; `history` and `allowed` are of
  /// the target's tokens. Empty when mask and bias leave none of the columns.
  TokenProbs probs(LogitRow logits, TokenSpan history, const SamplingParams& params,
                   const AllowedTokens& allowed) const;
  /// The columns of some of the target's tokens, as a mask of the columns.
  AllowedTokens columns_of(const AllowedTokens& allowed) const;
  /// Logits [n, columns], on any device, as [n, vocab], with `other` for all other tokens.
  at::Tensor widened(const at::Tensor& logits,
                     double other = -std::numeric_limits<double>::infinity()) const;

 private:
  std::vector<Token> columns_of(TokenSpan history) const;
  LogitBias columns_of(const LogitBias& bias) const;

  std::vector<Token> tokens_;
  int64_t vocab_size_;
  at::Tensor ids_;
};

}  // namespace specdec
