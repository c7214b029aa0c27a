#include "core/transformer/chain_steps.h"

#include <ATen/ATen.h>

#include "core/error.h"

namespace specdec {

std::optional<DrawnChain> draw_steps(DeviceSampler& sampler, const ChainRequest& chain,
                                     int64_t vocab, const ChainLogits& logits) {
  const auto drawing = sampler.begin_chain(chain, vocab);
  at::Tensor newest;
  for (int64_t drawn = 0; drawn < chain.count; ++drawn) {
    newest = drawing->draw(logits(newest));
  }
  return drawing->read();
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
  if (vocabulary == nullptr) {
    return draw_steps(sampler, chain, vocab, logits);
  }
  const at::Tensor& ids = vocabulary->ids();
  std::optional<DrawnChain> drawn =
      draw_steps(sampler, chain, vocabulary->columns(), [&](const at::Tensor& column) {
        return logits(column.defined() ? ids.index_select(0, column) : column);
      });
  if (!drawn) {
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
