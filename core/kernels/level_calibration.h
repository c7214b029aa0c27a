#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/kernels/kv_format.h"

namespace specdec {

/// Which numbers the levels of kQ3 should be near: all groups alike, or groups by their squared
/// scale, so that the error of the numbers themselves counts.
enum class LevelWeights { kEqual, kByMagnitude };

/// Finds the levels of kQ3 of least squared error for the numbers of a head's keys, or values, each
/// divided by the root mean square of its group: as the codebooks of KVQuant (Hooper et al., 2024,
/// arXiv:2401.18079), by dynamic programming (Wang and Song, 2011, doi:10.32614/RJ-2011-015). Its
/// memory does not depend on how many numbers there are: they are counted in narrow bins.
class LevelCalibration {
 public:
  explicit LevelCalibration(LevelWeights weights);

  /// Takes the numbers of one head, [head_dim], as they are rounded. Groups of zeros and groups
  /// with a number that is not finite count for nothing.
  void add(std::span<const float> head);
  /// Levels by code, ascending: no others have less error, but for the width of a bin. The first
  /// ones are equal where there are fewer than kQ3Levels different numbers; kNormalLevels where
  /// there are none.
  std::array<float, kQ3Levels> levels() const;

 private:
  LevelWeights weights_;
  std::vector<double> masses_, sums_;  ///< of each bin: weights, and numbers times them
};

}  // namespace specdec
