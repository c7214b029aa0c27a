#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace specdec {

/// Which layers of a model stay in memory. The others are spread evenly among them, so that they
/// are read while more of these are computed, and take turns in two buffers.
struct Residency {
  std::vector<bool> in_memory;
  int64_t memory_bytes = 0;  ///< of the whole model, buffers included
};

/// Keeps as many layers as fit. `layer_bytes`: of each layer's matrices; `other_bytes`: of all that
/// is always in memory. Throws ConfigError where not even two buffers fit, saying what is needed.
Residency plan_residency(std::span<const int64_t> layer_bytes, int64_t other_bytes,
                         int64_t memory_limit);

}  // namespace specdec
