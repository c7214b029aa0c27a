#include "core/transformer/draft_steps.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "core/result_memory.h"

namespace specdec {

int64_t DraftSteps::nodes() const {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
}

int64_t DraftSteps::widest() const {
  return sizes.empty() ? 1 : *std::max_element(sizes.begin(), sizes.end());
}

bool DraftSteps::fits_graph() const {
  return !key.empty() && nodes() + 1 < ResultMemory::kMostRows;
}

int64_t DraftSteps::first_of(int64_t step) const {
  return std::accumulate(sizes.begin(), sizes.begin() + step - 1, int64_t{1});
}

std::vector<int64_t> DraftSteps::all_parents(int64_t fed) const {
  std::vector<int64_t> pending(static_cast<size_t>(fed + nodes()));
  std::iota(pending.begin(), pending.end(), -1);
  std::transform(parents.begin(), parents.end(), pending.begin() + fed,
                 [fed](int64_t parent) { return fed - 1 + parent; });
  return pending;
}

TokenBatch DraftSteps::batch(int64_t step, const at::Tensor& tokens, const TokenBatch& fed) const {
  const int64_t size = sizes[static_cast<size_t>(step - 1)];
  const std::vector<int64_t> all = all_parents(std::ssize(fed.rows));
  const auto first = all.begin() + std::ssize(fed.rows) + first_of(step) - 1;
  return {.tokens = tokens,
          .rows = std::vector<RowId>(static_cast<size_t>(size), fed.rows.front()),
          .parents = {first, first + size}};
}

TokenBatch fed_batch(TokenSpan tokens, const ForwardInputs& inputs, RowId row) {
  return {.tokens = token_tensor(tokens),
          .rows = std::vector<RowId>(tokens.size(), row),
          .inputs = inputs};
}

DraftSteps steps_of(ChainDrawing& chain, int64_t count) {
  SPECDEC_CHECK(count > 0, "a chain of {} tokens", count);
  return {
      .sizes = std::vector<int64_t>(static_cast<size_t>(count) - 1, 1),
      .parents = {},
      .draw = [&chain](int64_t step, const at::Tensor& logits) { return chain.draw(step, logits); },
      .parents_in_step = [](int64_t) { return at::Tensor(); },
      .key = chain.key()};
}

DraftSteps steps_of(DraftTreeDrawing& tree, std::span<const int64_t> parents) {
  const EvaluatedNodes evaluated = evaluated_nodes(parents);
  SPECDEC_CHECK(evaluated.levels() > 0, "a tree whose root has no children");
  DraftSteps steps{
      .sizes = {},
      .parents = {evaluated.parents.begin() + 1, evaluated.parents.end()},
      .draw = [&tree](int64_t step,
                      const at::Tensor& logits) { return tree.draw(step, logits, {}); },
      .parents_in_step = [&tree](int64_t step) { return tree.parents_in_level(step); },
      .key = tree.key()};
  for (int64_t level = 1; level < evaluated.levels(); ++level) {
    steps.sizes.push_back(evaluated.size_of(level));
  }
  return steps;
}

void draw_steps(const DraftSteps& steps, const StepLogits& logits) {
  at::Tensor tokens;
  for (int64_t step = 0; step <= std::ssize(steps.sizes); ++step) {
    tokens = steps.draw(step, logits(step, tokens));
  }
}

void check_may_draw(const LanguageModel& model, RowId row) {
  SPECDEC_CHECK(model.draws_drafts(),
                "draw_chain or draw_tree: this model draws no drafts, as draws_drafts() says");
  SPECDEC_CHECK(model.pending(row) == 0, "a draft is drawn in row {}, which has {} pending nodes",
                row, model.pending(row));
}

}  // namespace specdec
