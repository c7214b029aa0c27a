#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "core/forward.h"
#include "core/kernels/ops.h"
#include "core/transformer/heads/eagle_head.h"
#include "core/transformer/heads/mtp_head.h"
#include "core/transformer/weights.h"

namespace specdec {

/// The mathematics of a head around its layers, by ops of its device, whose results are in order
/// where a draft is drawn. All tensors [n, ...], of the activations' dtype.
class FeatureHead {
 public:
  virtual ~FeatureHead() = default;
  /// The layers; the head keeps none of their tensors, since products read them packed.
  virtual std::vector<HeadLayer> take_layers() = 0;
  /// Columns of the target's features.
  virtual int64_t feature_width() const = 0;
  /// The target's features [n, width] as enter() reads them, by what no graph can hold.
  virtual Tensor prepared(Ops& /*ops*/, const Tensor& features) const { return features; }
  /// What the layers are fed, their embeddings and, where they join them, attention_inputs. tokens
  /// [n] int32; features [n, width] of the target, prepared, or [n, hidden] of the head itself.
  virtual ForwardInputs enter(Ops& ops, const Tensor& tokens, const Tensor& features,
                              bool own) const = 0;
  /// What recurs, of the layer's output.
  virtual Tensor feature(Ops& ops, const Tensor& output) const = 0;
  /// Writes logits [n, vocab] of the target, or [n, columns] of the head's own vocabulary.
  virtual void logits(Ops& ops, const Tensor& output, const Tensor& feature,
                      Tensor& logits) const = 0;
  /// The head's vocabulary; nullptr: the target's.
  virtual const DraftVocabulary* draft_vocabulary() const { return nullptr; }
};

/// EAGLE-1, 2 and 3; shares norms with the head, which must have been loaded for this target.
std::unique_ptr<FeatureHead> eagle_feature_head(const std::shared_ptr<const EagleHead>& head,
                                                std::shared_ptr<const TransformerWeights> target);
/// One multi-token-prediction module of several.
std::unique_ptr<FeatureHead> mtp_feature_head(const std::shared_ptr<const MtpHead>& head,
                                              size_t module,
                                              std::shared_ptr<const TransformerWeights> target);

}  // namespace specdec
