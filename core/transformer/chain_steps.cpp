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

std::optional<DrawnChain> draw_columns(DeviceSampler& sampler, const ChainRequest& chain,
                                       int64_t vocab, const DraftVocabulary* vocabulary,
                                       const ChainLogits& logits) {
  const auto drawing =
      sampler.begin_chain(chain, vocabulary == nullptr ? vocab : vocabulary->columns());
  draw_steps(*drawing, chain.count, [&](const at::Tensor& column) {
    const bool is_token = vocabulary == nullptr || !column.defined();
    return logits(is_token ? column : vocabulary->ids().index_select(0, column));
  });
  std::optional<DrawnChain> drawn = drawing->read();
  if (!drawn || vocabulary == nullptr) {
    return drawn;
  }
  for (Token& token : drawn->tokens) {
    token = vocabulary->tokens()[static_cast<size_t>(token)];
  }
  if (drawn->probs.defined()) {
    drawn->probs = vocabulary->widened(drawn->probs, 0.0);
  }
  return drawn;
}

}  // namespace specdec
