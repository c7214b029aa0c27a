#pragma once
#include <ATen/core/Tensor.h>

#include <functional>

#include "core/transformer/transformer_model.h"

namespace specdec {

/// The next token of each row, [rows] int64, from logits [rows, vocab]; `position` is the token's.
using ChooseNext = std::function<at::Tensor(const at::Tensor& logits, int64_t position)>;

/// Continues prompts of one length, all rows in one forward a token: prompts [rows, length] int64
/// -> [rows, length + new_tokens]. Forgets what `model` held.
at::Tensor continue_prompts(TransformerModel& model, const at::Tensor& prompts, int64_t new_tokens,
                            const ChooseNext& choose);

}  // namespace specdec
