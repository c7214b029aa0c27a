#pragma once
#include "experiments/train/head_training.h"

namespace specdec {

/// The target's distribution over a draft vocabulary (EAGLE-3): its share of the mass, made to sum
/// to one.
struct DraftDistribution {
  at::Tensor distribution;  ///< [..., draft vocab]
  at::Tensor counts;        ///< [...] 1 where the target's best token can be drafted, else 0
};
/// distribution: [..., vocab]; draft_tokens: [draft vocab] int64.
DraftDistribution restrict_to_draft(const at::Tensor& distribution, const at::Tensor& draft_tokens);

/// The loss of a head's outputs on a batch, a scalar.
at::Tensor head_loss(const HeadTraining& head, const TargetBatch& batch, const HeadLoss& options);

}  // namespace specdec
