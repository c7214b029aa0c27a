#pragma once
#include <memory>
#include <utility>
#include <vector>

#include "core/transformer/transformer_model.h"
#include "kv/paged_kv.h"
#include "tests/support/fake_model.h"

namespace specdec {

/// The logits that a float64 model decodes by, as a table of texts.
inline LogitTable target_table(std::shared_ptr<const TransformerWeights> weights) {
  const auto model = std::make_shared<TransformerModel>(std::move(weights), paged_kv());
  return [model](TokenSpan history) {
    const Tensor logits = model->prefill_get_last_logits(history);
    const auto* values = logits.const_data_ptr<double>();
    return std::vector<double>(values, values + logits.numel());
  };
}

}  // namespace specdec
