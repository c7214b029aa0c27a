#include "core/result_memory.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

namespace specdec {
namespace {

const void* address(const Tensor& tensor) { return tensor.const_data_ptr(); }

class ResultMemoryTest : public testing::Test {
 protected:
  ResultMemory memory_{3, at::TensorOptions(at::kFloat)};
};

TEST_F(ResultMemoryTest, HasTheShapeThatIsAskedFor) {
  EXPECT_EQ(memory_.rows(1).sizes(), (at::IntArrayRef{1, 3}));
  EXPECT_EQ(memory_.rows(64).sizes(), (at::IntArrayRef{64, 3}));
  EXPECT_EQ(memory_.rows(1000).sizes(), (at::IntArrayRef{1000, 3}));
  EXPECT_EQ(memory_.rows(2).sizes(), (at::IntArrayRef{2, 3}));
}

TEST_F(ResultMemoryTest, WhatNobodyHoldsIsHandedOutAgain) {
  const void* first = address(memory_.rows(4));
  EXPECT_EQ(address(memory_.rows(4)), first);
  EXPECT_EQ(address(memory_.rows(2)), first);  // of another number too
}

TEST_F(ResultMemoryTest, WhatIsHeldStaysAsItIs) {
  std::vector<Tensor> held;
  for (int i = 0; i < 5; ++i) {
    held.push_back(memory_.rows(4).fill_(i));
  }
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE((held[static_cast<size_t>(i)] == i).all().item<bool>()) << i;
  }
}

TEST_F(ResultMemoryTest, AViewOfAResultHoldsItsMemory) {
  memory_.rows(4);
  const Tensor row = memory_.rows(4).fill_(1.0F)[2];
  const Tensor kept = memory_.rows(4).fill_(2.0F).narrow(0, 0, 1);
  memory_.rows(4).fill_(3.0F);
  memory_.rows(1).fill_(4.0F);
  EXPECT_TRUE((row == 1.0F).all().item<bool>());
  EXPECT_TRUE((kept == 2.0F).all().item<bool>());
}

TEST_F(ResultMemoryTest, ResultsOfTwoNumbersDoNotShareMemory) {
  const Tensor four = memory_.rows(4).fill_(4.0F);
  const Tensor two = memory_.rows(2).fill_(2.0F);
  const Tensor one = memory_.rows(1).fill_(1.0F);
  EXPECT_TRUE((four == 4.0F).all().item<bool>());
  EXPECT_TRUE((two == 2.0F).all().item<bool>());
  EXPECT_TRUE((one == 1.0F).all().item<bool>());
}

TEST_F(ResultMemoryTest, TwoThatReplaceEachOtherAreEnough) {
  Tensor newest = memory_.rows(4);
  const void* first = address(newest);
  newest = memory_.rows(4);
  EXPECT_NE(address(newest), first);
  newest = memory_.rows(4);
  EXPECT_EQ(address(newest), first);
}

}  // namespace
}  // namespace specdec
