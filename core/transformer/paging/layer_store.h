#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace specdec {

/// Where a LayerPager gets the bytes of layers: LayerFile, or one's own.
class LayerStore {
 public:
  virtual ~LayerStore() = default;
  LayerStore() = default;
  LayerStore(const LayerStore&) = delete;
  LayerStore& operator=(const LayerStore&) = delete;

  virtual int64_t layers() const = 0;
  /// Bytes of one layer, a multiple of kLayerAlignment.
  virtual int64_t bytes(int64_t layer) const = 0;
  /// Fills `memory`, which has that many bytes and begins at a multiple of kLayerAlignment. Called
  /// by one thread at a time. Throws Error where the layer cannot be read.
  virtual void read(int64_t layer, std::span<std::byte> memory) = 0;
};

/// Alignment of a layer in a file and in memory: that of reads past the page cache.
inline constexpr int64_t kLayerAlignment = 4096;

}  // namespace specdec
