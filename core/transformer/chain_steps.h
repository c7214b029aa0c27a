#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>

#include "core/device_sampler.h"
#include "core/draft_vocabulary.h"
#include "core/language_model.h"

namespace specdec {

/// Logits [1, columns] of a chain's next token on the device, after its newest one there: [1]
/// int32, undefined before the first. They may lie in the same memory each time.
using ChainLogits = std::function<at::Tensor(const at::Tensor& newest)>;

/// Draws a chain's `count` tokens one after the other.
void draw_steps(ChainDrawing& drawing, int64_t count, const ChainLogits& logits);

/// What LanguageModel::draw_chain leaves of a row around `draw`: nothing may be pending before it
/// (InternalError), and nothing is after it where it throws or draws nothing.
std::optional<DrawnChain> draw_in_row(LanguageModel& model, RowId row,
                                      const std::function<std::optional<DrawnChain>()>& draw);

/// Draws a chain so on a sampler's device, by logits of a head's own columns, and reads it back at
/// once: tokens and distributions are the target's. `vocabulary` nullptr: the columns are all
/// `vocab` tokens. Nothing where logits were not numbers or all -inf.
std::optional<DrawnChain> draw_columns(DeviceSampler& sampler, const ChainRequest& chain,
                                       int64_t vocab, const DraftVocabulary* vocabulary,
                                       const ChainLogits& logits);

}  // namespace specdec
