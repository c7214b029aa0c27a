// Small tables that go up without a wait. The programs have tensors of the host, so what is shown
// is which bytes go where: neither that the host waits for nothing, nor that its memory is pinned.
#include "core/kernels/staged_upload.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "core/error.h"

namespace specdec {
namespace {

TEST(CudaStagedUploadTest, NumbersAreCopiedToTheirPlace) {
  at::Tensor memory;
  {
    const c10::InferenceMode inference;  // memory that is kept from a forward
    memory = at::zeros({6}, at::kInt);
  }
  std::vector<int32_t> numbers = {7, -8, 9};
  upload(numbers.data(), memory.narrow(0, 2, 3));
  numbers.assign(3, 0);
  EXPECT_TRUE(at::equal(memory, at::tensor({0, 0, 7, -8, 9, 0}, at::kInt)));
  upload(nullptr, memory.narrow(0, 2, 0));  // of nothing
  EXPECT_TRUE(at::equal(memory, at::tensor({0, 0, 7, -8, 9, 0}, at::kInt)));
  EXPECT_THROW(upload(numbers.data(), at::zeros({3, 2}).select(1, 0)), InternalError);
}

TEST(CudaStagedUploadTest, WhatLiesThereIsItself) {
  const at::Tensor ids = at::tensor({3, 1, 4}, at::kInt);
  EXPECT_TRUE(uploaded(ids, at::kCPU).is_same(ids));
  EXPECT_THROW(uploaded(at::zeros({3, 2}).select(1, 0), at::kCPU), InternalError);
}

}  // namespace
}  // namespace specdec
