#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "core/randomness.h"
#include "core/read_backs.h"
#include "core/sampling.h"
#include "core/types.h"

namespace specdec {

class DraftVocabulary;

/// A chain that a model is to draft on its device. Borrows all.
struct ChainRequest {
  int64_t count = 1;               ///< tokens, at least 1
  const SamplingParams& sampling;  ///< without bias and penalty
  /// Tokens are drawn with choices 0, 1, ... of Purpose::kDraft; none = each is the best one.
  std::optional<DeviceRandomness> random = {};
  /// Vocabulary of a head that has logits for some tokens only; nullptr = it has them for all.
  const DraftVocabulary* vocabulary = nullptr;
};

/// What a model drafted of it.
struct DrawnChain {
  std::vector<Token> tokens;
  /// [tokens, vocab] float64 on the model's device, what each was drawn from, over the target's
  /// vocabulary; undefined for best tokens.
  at::Tensor probs = {};
  ReadBacks read_backs = {};
};

}  // namespace specdec
