#pragma once
#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "core/transformer/heads/eagle_head.h"
#include "core/transformer/heads/mtp_head.h"
#include "core/transformer/reference.h"

namespace specdec {

/// What one step of a head reads. Column t pairs the token at t + 1 with the feature at t.
struct HeadInputs {
  Tensor tokens;    ///< [rows, T] int64
  Tensor features;  ///< [rows, T, width] of the target (see target_features), or the head's own
  bool own_features = false;         ///< the latter: EAGLE-3's skip fc
  UnrolledKeys* unrolled = nullptr;  ///< of the earlier steps, and the first column wanted
  std::optional<at::ScalarType> matmul_dtype = {};  ///< as in reference_forward
  /// [n] int64: those columns of the outputs, row * their number + column, that logits are wanted
  /// of; undefined = of all.
  Tensor places = {};
};

/// What a head says of a batch. With an UnrolledKeys::first, T and column t are those from it on.
struct HeadOutputs {
  Tensor features;  ///< [rows, T, hidden], column t: at t + 1; what the next step is fed
  /// [rows, T, vocab], or [n, vocab] of HeadInputs::places; column t: of the token at t + 2. With a
  /// draft vocabulary entry i is the target's token target_ids[i].
  Tensor logits;
};

/// The plain, differentiable, uncached forward of a head in ATen ops: the oracle of the cached one
/// and the path of training. Runs on the target's device; see docs/eagle.md for how to unroll it.
HeadOutputs eagle_reference(const EagleHead& head, const TransformerTensors& target,
                            const HeadInputs& inputs);
/// The reference forward of MTP module `module`: column t of `tokens` is then the token at t + 1 +
/// module, and the features are those of the module before (the target's for module 0).
HeadOutputs mtp_reference(const MtpHead& head, const TransformerTensors& target, size_t module,
                          const HeadInputs& inputs);

/// [rows, T, width]: the residual streams after `capture_layers`, concatenated, or the final hidden
/// state when there are none.
Tensor target_features(const ReferenceResult& result, const std::vector<int64_t>& capture_layers);

}  // namespace specdec
