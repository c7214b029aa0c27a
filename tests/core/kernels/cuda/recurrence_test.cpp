#include "core/kernels/recurrence.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "core/kernels/cuda/cuda_tasks.h"
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
  expect_the_ops_recurrence(cuda_recurrence);
}

TEST(CudaRecurrenceTest, ANodesBitsDependOnItsPathAlone) {
  at::manual_seed(2);
  expect_bits_of_the_path_alone(cuda_recurrence);
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
