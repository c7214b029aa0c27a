#include "core/kernels/recurrence.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "core/kernels/cuda/cuda_arguments.h"
#include "core/kernels/cuda/emulation/emulation.h"
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/cuda/launch_shape.h"
#include "tests/core/kernels/recurrence_case.h"

namespace specdec {
namespace {

void cuda_recurrence(const RecurrenceTensors& weights, const NodeStates& states, Tensor& branches) {
  cuda::RecurrenceTask task = cuda::recurrence_task(weights, states, kLayerOffset, branches);
  const Tensor workspace =
      at::full({specdec_cuda_recurrence_workspace(&task)}, std::numeric_limits<float>::quiet_NaN());
  task.workspace = workspace.mutable_data_ptr<float>();
  ASSERT_EQ(specdec_cuda_recurrence(&task, nullptr), 0);
}

TEST(CudaRecurrenceTest, EqualsTheOp) {
  at::manual_seed(1);
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
      cuda_recurrence(weights, states_of(memory, nodes), branches);
      EXPECT_TRUE(at::allclose(branches, expected, 1e-4, 1e-5)) << shape.size;
      EXPECT_TRUE(at::allclose(memory, expected_memory, 1e-4, 1e-5))
          << shape.size << ": of no other state or layer is anything changed";
    }
  }
}

TEST(CudaRecurrenceTest, ANodesBitsDependOnItsPathAlone) {
  at::manual_seed(2);
  const RecurrenceShape shape{2, 70, 4};
  const RecurrenceTensors weights = random_recurrence(shape);
  const auto nodes = nodes_of_trees();
  const Tensor inputs = at::randn({std::ssize(nodes), 2 * shape.channels()});
  inputs[2].fill_(std::numeric_limits<float>::quiet_NaN());  // of another branch
  const Tensor memory = random_states(shape);
  const Tensor one_by_one = memory.clone();
  Tensor together = inputs.clone();
  cuda_recurrence(weights, states_of(memory, nodes), together);
  for (const size_t node : {0U, 1U, 4U, 5U, 7U, 8U, 9U, 10U, 12U, 13U}) {
    const auto place = static_cast<int64_t>(node);
    cuda::emulation::set_seed(node);
    Tensor alone = inputs.narrow(0, place, 1).clone();
    cuda_recurrence(weights, states_of(one_by_one, {{-1, nodes[node].before, nodes[node].after}}),
                    alone);
    EXPECT_TRUE(at::equal(branch_of(alone, 0), branch_of(together, place))) << node;
    EXPECT_TRUE(at::equal(one_by_one[nodes[node].after].narrow(0, kLayerOffset, 4 * 140),
                          memory[nodes[node].after].narrow(0, kLayerOffset, 4 * 140)))
        << node;
  }
  EXPECT_TRUE(branch_of(together, 6).isnan().all().item<bool>()) << "behind node 2";
}

TEST(CudaRecurrenceTest, RefusesShapesThatItCannotTake) {
  cuda::RecurrenceTask task{};
  task.count = 1;
  task.channels = 10;
  task.width = 4;
  task.blocks = 3;
  EXPECT_EQ(specdec_cuda_recurrence(&task, nullptr), cuda::kInvalidValue);
  task.blocks = 5;
  task.width = 0;
  EXPECT_EQ(specdec_cuda_recurrence(&task, nullptr), cuda::kInvalidValue);
}

}  // namespace
}  // namespace specdec
