#include "core/kernels/cuda/split_memory.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/kernels/cuda/kernels.h"

namespace specdec::cuda {
namespace {

TEST(CudaSplitMemoryTest, GrowsToTwiceItsSizeAndStaysWhereThereIsRoom) {
  SplitMemory memory(at::kCPU);
  EXPECT_FALSE(memory.has_room(1, 32));
  EXPECT_FALSE(memory.tensor().defined());
  const float* first = memory.reserve(2, 256);
  EXPECT_GE(memory.tensor().nbytes(), specdec_cuda_split_bytes(2, 256));
  EXPECT_TRUE(memory.has_room(2, 256));
  EXPECT_EQ(memory.reserve(1, 32), first);
  const int64_t before = memory.tensor().numel();
  int64_t inputs = 256;
  while (memory.has_room(2, inputs)) {
    inputs += 64;
  }
  ASSERT_LT(specdec_cuda_split_bytes(2, inputs), 2 * memory.tensor().nbytes());
  memory.reserve(2, inputs);
  EXPECT_EQ(memory.tensor().numel(), 2 * before);
}

TEST(CudaSplitMemoryTest, HoldsTheRowsOfOneTensorOfOneShape) {
  SplitMemory memory(at::kCPU);
  const at::Tensor input = at::zeros({2, 64});
  EXPECT_FALSE(memory.holds(input, 2, 64));
  memory.keep(input, 2, 64);
  EXPECT_TRUE(memory.holds(input, 2, 64));
  EXPECT_TRUE(memory.holds(input.view({2, 64}), 2, 64)) << "the same numbers";
  EXPECT_FALSE(memory.holds(input, 1, 64));
  EXPECT_FALSE(memory.holds(input, 2, 32));
  EXPECT_FALSE(memory.holds(at::zeros({2, 64}), 2, 64));
  memory.forget();
  EXPECT_FALSE(memory.holds(input, 2, 64));
}

TEST(CudaSplitMemoryTest, WhoSharesWhatItHoldsCanEmptyIt) {
  SplitMemory memory(at::kCPU);
  const at::Tensor input = at::zeros({1, 32});
  const auto held = memory.held();
  memory.keep(input, 1, 32);
  EXPECT_TRUE(held->tensor.is_same(input));
  *held = {};
  EXPECT_FALSE(memory.holds(input, 1, 32));
}

}  // namespace
}  // namespace specdec::cuda
