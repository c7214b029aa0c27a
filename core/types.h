#pragma once
#include <cstdint>
#include <span>

namespace specdec {

/// Index of a vocabulary entry.
using Token = int32_t;
/// A run of tokens that somebody else owns.
using TokenSpan = std::span<const Token>;

/// Name of a sequence in a model: 0, or what LanguageModel::open and fork gave. Never given twice.
using RowId = int64_t;

/// What greedy decoding takes from a row of logits.
struct GreedyChoice {
  Token token = 0;   ///< the lowest id on a tie
  double gap = 0.0;  ///< processed logit of the token minus the second best; infinite when no other
                     ///< token is possible
};

}  // namespace specdec
