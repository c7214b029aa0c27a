// Recurrent layers by the Metal kernels, which run on the CPU, and whole models of them.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "core/kernels/cuda/emulation/emulation.h"
#include "core/row_view.h"
#include "core/transformer/transformer_model.h"
#include "kv/kv_cache.h"
#include "tests/core/kernels/metal/emulated_queue.h"
#include "tests/core/kernels/recurrence_case.h"
#include "tests/support/golden.h"
#include "tests/support/tiny_recurrent_gemma.h"

namespace specdec {
namespace {

class MetalRecurrenceTest : public testing::Test {
 protected:
  void SetUp() override { at::manual_seed(1); }

  std::shared_ptr<Ops> metal_ = mps::emulated_metal_ops();
};

TEST_F(MetalRecurrenceTest, EqualsTheCpu) {
  for (const RecurrenceShape& shape :
       {RecurrenceShape{2, 12, 4}, {1, 300, 4}, {3, 70, 2}, {4, 1, 1}, {2, 64, 6}}) {
    for (const auto& nodes : {nodes_of_trees(), nodes_of_chain(1, 2), nodes_of_chain(19, -1),
                              std::vector<NodeState>()}) {
      cuda::emulation::set_seed(static_cast<uint64_t>(shape.size) + nodes.size());
      const RecurrenceTensors weights = random_recurrence(shape);
      const Tensor memory = random_states(shape);
      Tensor branches = at::randn({std::ssize(nodes), 2 * shape.channels()});
      const Tensor expected_memory = memory.clone();
      Tensor expected = branches.clone();
      recurrence(weights, states_of(expected_memory, nodes), kLayerOffset, expected);
      metal_->recurrence(weights, states_of(memory, nodes), kLayerOffset, branches);
      EXPECT_TRUE(at::allclose(branches, expected, 1e-4, 1e-5)) << shape.size;
      EXPECT_TRUE(at::allclose(memory, expected_memory, 1e-4, 1e-5))
          << shape.size << ": of no other state or layer is anything changed";
    }
  }
}

TEST_F(MetalRecurrenceTest, ANodesBitsDependOnItsPathAlone) {
  const RecurrenceShape shape{2, 70, 4};
  const RecurrenceTensors weights = random_recurrence(shape);
  const auto nodes = nodes_of_trees();
  const Tensor inputs = at::randn({std::ssize(nodes), 2 * shape.channels()});
  inputs[2].fill_(std::numeric_limits<float>::quiet_NaN());  // of another branch
  const Tensor memory = random_states(shape);
  const Tensor one_by_one = memory.clone();
  Tensor together = inputs.clone();
  metal_->recurrence(weights, states_of(memory, nodes), kLayerOffset, together);
  for (const size_t node : {0U, 1U, 4U, 5U, 7U, 8U, 9U, 10U, 12U, 13U}) {
    const auto place = static_cast<int64_t>(node);
    Tensor alone = inputs.narrow(0, place, 1).clone();
    metal_->recurrence(weights,
                       states_of(one_by_one, {{-1, nodes[node].before, nodes[node].after}}),
                       kLayerOffset, alone);
    EXPECT_TRUE(at::equal(branch_of(alone, 0), branch_of(together, place))) << node;
    const auto state = [&](const Tensor& all) {
      return all[nodes[node].after].narrow(0, kLayerOffset, shape.width * shape.channels());
    };
    EXPECT_TRUE(at::equal(state(one_by_one), state(memory))) << node;
  }
  EXPECT_TRUE(branch_of(together, 6).isnan().all().item<bool>()) << "behind node 2";
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
