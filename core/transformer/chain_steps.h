#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>

#include "core/device_sampler.h"
#include "core/language_model.h"

namespace specdec {

/// Logits [1, columns] of a chain's next token on the device, after its newest one there: [1]
/// int32, undefined before the first. They may lie in the same memory each time.
using ChainLogits = std::function<at::Tensor(const at::Tensor& newest)>;

/// What a head does in a chain before and after the layers of its engine: calls ops only, into
/// memory that does not move.
struct ChainSurroundings {
  /// What a token is fed as, which was drawn by the newest logits: [1] int32 on the device.
  std::function<ForwardInputs(const at::Tensor& token)> enter;
  /// Logits [1, columns] of what the layers came to, [1, hidden].
  std::function<at::Tensor(const at::Tensor& output)> logits;
};

/// Draws a chain's `count` tokens one after the other.
void draw_steps(ChainDrawing& drawing, int64_t count, const ChainLogits& logits);

/// What LanguageModel::draw_chain leaves of a row around `draw`: nothing may be pending before it
/// (InternalError), and nothing is after it where it throws or draws nothing.
std::optional<DrawnChain> draw_in_row(LanguageModel& model, RowId row,
                                      const std::function<std::optional<DrawnChain>()>& draw);

}  // namespace specdec
