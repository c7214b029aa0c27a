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

ChainColumns::ChainColumns(int64_t vocab, const DraftVocabulary* vocabulary, at::Device device)
    : vocab_(vocab) {
  if (vocabulary != nullptr) {
    tokens_.assign(vocabulary->tokens().begin(), vocabulary->tokens().end());
    on_device_ = at::tensor(c10::ArrayRef<Token>(tokens_), at::kInt).to(device);
  }
}

std::optional<DrawnChain> ChainColumns::draw(DeviceSampler& sampler, const ChainRequest& chain,
                                             const ChainLogits& logits) const {
  if (!on_device_.defined()) {
    return draw_steps(sampler, chain, vocab_, logits);
  }
  std::optional<DrawnChain> drawn =
      draw_steps(sampler, chain, on_device_.size(0), [&](const at::Tensor& column) {
        return logits(column.defined() ? on_device_.index_select(0, column) : column);
      });
  if (!drawn) {
    return drawn;
  }
  for (Token& token : drawn->tokens) {
    token = tokens_[static_cast<size_t>(token)];
  }
  if (drawn->probs.defined()) {
    drawn->probs = at::zeros({chain.count, vocab_}, drawn->probs.options())
                       .index_copy_(1, on_device_.to(at::kLong), drawn->probs);
  }
  return drawn;
}

}  // namespace specdec
