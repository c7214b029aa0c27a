#pragma once
#include <cstdint>
#include <vector>

#include "decoders/drafter.h"

namespace specdec {

/// Collects the target's features of the committed tokens, for a head that keeps a cache of them:
/// of the prompt, then of each step's accepted path.
class TargetFeatures {
 public:
  /// The residual streams after these layers, concatenated; none: the final hidden state.
  explicit TargetFeatures(std::vector<int64_t> capture_layers)
      : capture_layers_(std::move(capture_layers)) {}

  const std::vector<int64_t>& capture_layers() const { return capture_layers_; }
  /// A new request begins.
  void reset();
  /// Takes what was committed since; to be called at every step, plain ones too.
  void collect(const DraftContext& context);
  /// Committed tokens whose features were collected: all but the newest one.
  int64_t known() const { return known_; }
  /// Features [n, width] of those that were not taken yet; undefined when there are none.
  Tensor untaken();
  /// Takes the first `count` features, which are known.
  void drop(int64_t count);
  /// Takes all features.
  Tensor take();

 private:
  Tensor features_of(const ForwardResult& result) const;

  std::vector<int64_t> capture_layers_;
  int64_t known_ = 0;
  std::vector<Tensor> parts_;  // untaken, [n, width] each
};

}  // namespace specdec
