#include "experiments/train/continuations.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <vector>

#include "core/open_row.h"

namespace specdec {

at::Tensor continue_prompts(TransformerModel& model, const at::Tensor& prompts, int64_t new_tokens,
                            const ChooseNext& choose) {
  const c10::NoGradGuard no_grad;
  const int64_t rows = prompts.size(0);
  const int64_t length = prompts.size(1);
  std::vector<OpenRow> open;
  std::vector<RowId> names;
  for (int64_t row = 0; row < rows; ++row) {
    open.emplace_back(model);
    names.push_back(open.back().name());
  }
  TokenBatch batch;
  batch.tokens = prompts.reshape({-1}).to(at::kInt);
  const std::vector<int64_t> path = chain_path(length);
  for (const RowId row : names) {
    batch.rows.insert(batch.rows.end(), path.size(), row);
  }
  ForwardOptions options;
  options.logits = Logits::kLast;
  at::Tensor next = choose(model.forward(batch, options).logits, length);
  for (const RowId row : names) {
    model.commit(path, row);
  }
  std::vector<at::Tensor> columns = {prompts, next.unsqueeze(1)};
  for (int64_t i = 1; i < new_tokens; ++i) {
    const at::Tensor tokens = next.to(at::kInt);
    next = choose(model.decode_get_logits({tokens.const_data_ptr<Token>(), names.size()}, names),
                  length + i);
    columns.push_back(next.unsqueeze(1));
  }
  return at::cat(columns, 1);
}

}  // namespace specdec
