// What memory the GPU tests get, in the rehearsal.
#include "tests/core/kernels/cuda/gpu/pinned_memory.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <new>
#include <vector>

namespace specdec::cuda {
namespace {

/// More than half of a slab: each block needs a slab of its own.
constexpr size_t kLargeBytes = size_t{40} << 20U;

TEST(PinnedMemoryTest, GoesOnAfterAnAllocationThatFails) {
  for (int i = 0; i < 2; ++i) {
    EXPECT_THROW(at::empty({int64_t{1} << 60U}, at::kByte), std::bad_alloc);
    std::vector<std::unique_ptr<char[]>> blocks;
    for (const size_t bytes : {size_t{100}, kLargeBytes, size_t{5000}, kLargeBytes}) {
      blocks.push_back(std::make_unique<char[]>(bytes));
      std::memset(blocks.back().get(), 1, bytes);
    }
    EXPECT_EQ(at::ones({1 << 20U}).sum().item<float>(), 1 << 20U);
  }
}

TEST(PinnedMemoryTest, LiesAtMultiplesOf64Bytes) {
  for (const int64_t bytes : {1, 64, 65, 4096, 1 << 20}) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(at::empty({bytes}, at::kByte).data_ptr()) % 64, 0);
  }
}

}  // namespace
}  // namespace specdec::cuda
