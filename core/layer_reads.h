#pragma once
#include <cstdint>

namespace specdec {

/// What forwards read of the layers of a model that are not always in memory.
struct LayerReads {
  int64_t bytes = 0;          ///< read from disk
  int64_t layers = 0;         ///< uses of such layers
  int64_t ready = 0;          ///< of these, without waiting: read ahead, or still there
  double wait_seconds = 0.0;  ///< of forwards, for their layers
};
/// What was read since `before`.
LayerReads operator-(const LayerReads& now, const LayerReads& before);

}  // namespace specdec
