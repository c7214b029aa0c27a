#include "core/transformer/paging/residency.h"

#include <algorithm>

#include "core/error.h"
#include "core/transformer/paging/layer_pager.h"

namespace specdec {
namespace {

/// Residency with `count` layers on disk, spread over the model.
Residency spread(std::span<const int64_t> layer_bytes, int64_t count) {
  const int64_t layers = std::ssize(layer_bytes);
  Residency residency;
  int64_t largest = 0;
  for (int64_t layer = 0; layer < layers; ++layer) {
    const int64_t bytes = layer_bytes[static_cast<size_t>(layer)];
    const bool on_disk = (layer + 1) * count / layers > layer * count / layers;
    residency.in_memory.push_back(!on_disk);
    residency.memory_bytes += on_disk ? 0 : bytes;
    largest = on_disk ? std::max(largest, bytes) : largest;
  }
  residency.memory_bytes += LayerPager::kBuffers * largest;
  return residency;
}

}  // namespace

Residency plan_residency(std::span<const int64_t> layer_bytes, int64_t other_bytes,
                         int64_t memory_limit) {
  Residency best;
  for (int64_t count = 0; count <= std::ssize(layer_bytes); ++count) {
    Residency residency = spread(layer_bytes, count);
    residency.memory_bytes += other_bytes;
    if (residency.memory_bytes <= memory_limit) {
      return residency;
    }
    if (count == 0 || residency.memory_bytes < best.memory_bytes) {
      best = std::move(residency);
    }
  }
  throw ConfigError(fmt::format(
      "the memory limit of {:.1f} MB is too small: embedding, head and norms take {:.1f} MB, which "
      "stay in memory, and {:.1f} MB are needed with buffers for the layers that are read from "
      "disk. Raise the limit, or choose a dtype with fewer bytes.",
      static_cast<double>(memory_limit) / 1e6, static_cast<double>(other_bytes) / 1e6,
      static_cast<double>(best.memory_bytes) / 1e6));
}

}  // namespace specdec
