#pragma once
#include <ATen/core/Tensor.h>

#include <memory>

#include "core/transformer/transformer_model.h"

namespace specdec {

/// Token unlikelihood (Welleck et al., 2020, eq. 4): the mean over positions of
/// -sum log(1 - p(c)) over the tokens c of the context so far, except the position's own target.
/// log_probs: [rows, T, vocab]; inputs, targets: [rows, T] int64.
at::Tensor token_unlikelihood(const at::Tensor& log_probs, const at::Tensor& inputs,
                              const at::Tensor& targets);

/// Sequence unlikelihood (the same paper, section 5.2): the model continues prompts greedily, and
/// tokens that complete an n-gram which its continuation or the prompt held before are made less
/// likely.
class SequenceUnlikelihood {
 public:
  /// `weights` are those being trained, changed in place between calls; they outlive this object.
  explicit SequenceUnlikelihood(std::shared_ptr<const TransformerTensors> weights);

  /// What the model greedily continues: prompts [rows, length] int64 -> [rows, length +
  /// new_tokens].
  at::Tensor continue_greedily(const at::Tensor& prompts, int64_t new_tokens);
  /// True at tokens [rows, T] that complete a 4-gram which their row held before, from `begin` on.
  static at::Tensor repeated(const at::Tensor& sequences, int64_t begin);
  /// The loss over the continuations of `prompts`: -log(1 - p) of the repeated tokens, a mean over
  /// all new tokens.
  at::Tensor loss(const at::Tensor& prompts, int64_t new_tokens);

 private:
  std::shared_ptr<const TransformerTensors> weights_;
};

}  // namespace specdec
