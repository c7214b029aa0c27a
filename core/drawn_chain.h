#pragma once
#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/sampling.h"
#include "core/types.h"

namespace specdec {

/// Copies from a device's memory to the host's, each of which waits for the device.
struct ReadBacks {
  int64_t count = 0;
  int64_t bytes = 0;

  ReadBacks& operator+=(const ReadBacks& other) {
    count += other.count;
    bytes += other.bytes;
    return *this;
  }
  bool operator==(const ReadBacks&) const = default;
};

/// The random numbers of CounterRandomness at a position, as a device draws them.
struct DeviceRandomness {
  std::array<uint32_t, 2> key = {};  ///< Randomness::device_key
  int64_t position = 0;              ///< what the source was sought to
};

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
