#pragma once
#include "experiments/train/head_training.h"

namespace specdec {

/// The target's logits [..., vocab or draft vocab] as it decodes: those of the tokens that its
/// checkpoint suppresses become -inf. draft_tokens: whose they are; undefined = all tokens.
at::Tensor decoded_logits(const at::Tensor& logits, const TransformerTensors& target,
                          const at::Tensor& draft_tokens = {});

/// The target's probabilities at the places, of all tokens or of draft_tokens: [n, vocab or draft
/// vocab]. They sum to less than one where the draft vocabulary leaves mass outside. `target` gives
/// those of recorded answers.
at::Tensor guessed_distribution(const TargetBatch& batch, const GuessedPlaces& places,
                                const at::Tensor& draft_tokens, const TransformerTensors& target);

/// The loss of a head's outputs on a batch, a scalar.
at::Tensor head_loss(const HeadTraining& head, const TargetBatch& batch, const HeadLoss& options,
                     const TransformerTensors& target);

}  // namespace specdec
