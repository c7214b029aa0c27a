#include "core/transformer/chain_steps.h"

#include <ATen/ATen.h>

#include "core/error.h"

namespace specdec {

void draw_steps(ChainDrawing& drawing, int64_t count, const ChainLogits& logits) {
  at::Tensor newest;
  for (int64_t index = 0; index < count; ++index) {
    newest = drawing.draw(index, logits(newest));
  }
}

std::optional<DrawnChain> draw_in_row(LanguageModel& model, RowId row,
                                      const std::function<std::optional<DrawnChain>()>& draw) {
  SPECDEC_CHECK(model.draws_chains(), "draw_chain: this model does not draw chains");
  SPECDEC_CHECK(model.pending(row) == 0, "draw_chain: row {} has {} pending nodes", row,
                model.pending(row));
  std::optional<DrawnChain> drawn;
  try {
    drawn = draw();
  } catch (...) {
    model.truncate(model.length(row), row);
    throw;
  }
  if (!drawn) {
    model.truncate(model.length(row), row);
  }
  return drawn;
}

}  // namespace specdec
