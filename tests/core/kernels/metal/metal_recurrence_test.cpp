// Recurrent layers by the Metal kernels, which run on the CPU, and whole models of them.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/row_view.h"
#include "core/transformer/transformer_model.h"
#include "kv/paged_kv.h"
#include "tests/core/kernels/metal/emulated_queue.h"
#include "tests/core/kernels/recurrence_case.h"
#include "tests/support/golden.h"
#include "tests/support/tiny_recurrent_gemma.h"

namespace specdec {
namespace {

void metal_recurrence(const RecurrenceTensors& weights, const NodeStates& states,
                      Tensor& branches) {
  mps::emulated_metal_ops()->recurrence(weights, states, kLayerOffset, branches);
}

TEST(MetalRecurrenceTest, EqualsTheCpu) {
  at::manual_seed(1);
  expect_the_ops_recurrence(metal_recurrence);
}

TEST(MetalRecurrenceTest, ANodesBitsDependOnItsPathAlone) {
  at::manual_seed(1);
  expect_bits_of_the_path_alone(metal_recurrence);
}

TransformerModel recurrent_on_metal(std::shared_ptr<const TransformerWeights> weights) {
  return {std::move(weights), paged_kv(4), {.ops = mps::emulated_metal_ops()}};
}

TokenBatch recurrent_batch(std::vector<Token> tokens) {
  return {.tokens = at::tensor(tokens, at::kInt)};
}

TEST(MetalRecurrentModelTest, TheGoldenSetMatches) {
  const Golden golden("recurrentgemma-a");
  const Placement rows{at::kCPU, WeightLayout::kRows};
  TransformerModel model =
      recurrent_on_metal(load_model(golden.folder(), {.dtype = at::kFloat, .place = rows}));
  const auto tokens = golden.tokens("tokens");
  const Tensor wanted = golden.tensor("logits");
  const Tensor logits = model.forward(recurrent_batch({tokens.begin(), tokens.end()})).logits;
  EXPECT_LE(max_difference(logits, wanted), 1e-4);
}

TEST(MetalRecurrentModelTest, AVerifiedTokenHasTheBitsOfADecodedOne) {
  const std::vector<Token> text = {3, 1, 4, 1, 5, 9, 2, 6};
  TransformerModel model =
      recurrent_on_metal(tiny_recurrent_gemma(40, at::kFloat, 1, {at::kCPU, WeightLayout::kRows}));
  const std::span<const Token> all(text);
  model.prefill_get_last_logits(all.first(4));
  const RowId other = model.fork(0, 4);
  std::vector<Tensor> alone;
  for (const Token& token : all.subspan(4, 3)) {
    alone.push_back(model.decode_get_logits({&token, 1})[0].clone());
  }
  TokenBatch tree = recurrent_batch({text[4], 11, text[5], 12, 13, text[6]});
  tree.parents = {-1, 0, 0, 1, 2, 2};
  tree.rows = std::vector<RowId>(6, other);
  const Tensor logits = model.forward(tree).logits;
  const std::vector<int64_t> path = {0, 2, 5};
  for (size_t i = 0; i < path.size(); ++i) {
    EXPECT_TRUE(at::equal(logits[path[i]], alone[i])) << i;
  }
}

}  // namespace
}  // namespace specdec
