#pragma once
#include <cstdint>
#include <span>

#include "core/layer_reads.h"

namespace specdec {

/// Brings layers' matrices into memory, where forwards multiply with them: LayerPager reads them
/// from a file. Layers have numbers (LayerOf::in_source) and their matrices fixed addresses, whose
/// memory several layers may share; a thread holds one layer at a time. All calls may come from
/// several threads at once.
class LayerSource {
 public:
  virtual ~LayerSource() = default;
  LayerSource() = default;
  LayerSource(const LayerSource&) = delete;
  LayerSource& operator=(const LayerSource&) = delete;

  /// The layers that the next forward acquires, in order: what to read ahead. The forward after it
  /// is expected to begin with the same ones.
  virtual void prefetch(std::span<const int64_t> layers) = 0;
  /// Returns once the layer's matrices hold their numbers; they do until it is released. Throws
  /// Error where they cannot be read, and may be called again.
  virtual void acquire(int64_t layer) = 0;
  virtual void release(int64_t layer) = 0;
  /// Reads since the source was made.
  virtual LayerReads reads() const = 0;
};

/// Holds a layer of a model while it is evaluated; nothing for one that is always in memory.
class HeldLayer {
 public:
  HeldLayer(LayerSource* source, int64_t layer)
      : source_(layer < 0 ? nullptr : source), layer_(layer) {
    if (source_ != nullptr) {
      source_->acquire(layer_);
    }
  }
  ~HeldLayer() {
    if (source_ != nullptr) {
      source_->release(layer_);
    }
  }
  HeldLayer(const HeldLayer&) = delete;
  HeldLayer& operator=(const HeldLayer&) = delete;

 private:
  LayerSource* source_;
  int64_t layer_;
};

}  // namespace specdec
