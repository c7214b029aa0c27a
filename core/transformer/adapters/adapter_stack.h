#pragma once
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/kernels/linear.h"
#include "core/transformer/adapters/lora_adapter.h"

namespace specdec {

/// An adapter and how strongly it is applied.
struct ScaledAdapter {
  std::shared_ptr<const LoraAdapter> adapter;
  double scale = 1.0;  ///< of what the adapter adds
};

/// The adapters of one model, which add up: a matrix's output is W x + sum of scale * B(A x). Those
/// of a matrix are evaluated as one product with all A and one with all B, so a row's bits depend
/// on nothing beside it.
class AdapterStack {
 public:
  /// A stack for one base, whose matrices the adapters' pairs name.
  explicit AdapterStack(std::shared_ptr<const TransformerWeights> base);

  /// Throws Error for an adapter that was read for other weights, and for a scale that is no finite
  /// number.
  void push(ScaledAdapter adapter);
  /// Removes the newest; InternalError where there is none.
  void pop();
  void clear();
  const std::vector<ScaledAdapter>& adapters() const { return adapters_; }
  const TransformerWeights& base() const { return *base_; }
  /// The base's fingerprint where there are no adapters; else of base, adapters and scales, 16 hex
  /// digits.
  std::string fingerprint() const;
  /// Throws InternalError where a draft by `layers` layers of `weights` cannot apply it: other
  /// weights, or all layers, whose nodes could be committed with keys and values of the draft.
  void check_draft(const TransformerWeights& weights, int64_t layers) const;

  /// What is added to the outputs of a matrix: b(a x).
  struct Update {
    Linear a;  ///< [sum of ranks, in]
    Linear b;  ///< [out, sum of ranks], scales included
  };
  /// The update of a matrix; nullptr where nothing is added.
  const Update* find(const Linear& matrix) const {
    const auto found = updates_.find(&matrix);
    return found == updates_.end() ? nullptr : &found->second;
  }

 private:
  void update();

  std::shared_ptr<const TransformerWeights> base_;
  std::vector<ScaledAdapter> adapters_;
  std::unordered_map<const Linear*, Update> updates_;
};

}  // namespace specdec
