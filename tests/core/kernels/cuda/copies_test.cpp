// Copies beside kernels: in the emulation, and on a GPU where there is one.
#include "core/kernels/cuda/copies.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <span>
#include <thread>

#include "core/error.h"
#include "core/kernels/cuda/cuda_copy_queue.h"
#include "core/kernels/cuda/emulation/stream_copies.h"
#include "core/kernels/cuda/graphs.h"
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/cuda/launch_shape.h"
#include "tests/core/kernels/cuda/machine.h"

namespace specdec::cuda {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr int64_t kNumbers = 4;
constexpr int64_t kBytes = kNumbers * static_cast<int64_t>(sizeof(float));

/// Memory of the device, pinned memory, and an op that adds what lies in the one to a sum.
class Copies {
 public:
  std::span<float> pinned() { return numbers(pinned_); }
  std::span<float> sum() { return numbers(sum_); }
  const float* on_device() { return numbers(on_device_).data(); }
  CopyQueue& queue() { return *queue_; }

  void write(float number) { std::ranges::fill(pinned(), number); }
  void copy_up() { queue_->copy(on_device_.get(), pinned_.get(), kBytes); }
  void copy_back() { queue_->copy(pinned_.get(), on_device_.get(), kBytes); }
  void add() {
    const ElementwiseTask task = {ElementwiseTask::Kind::kAdd, on_device(), sum().data(), kNumbers,
                                  0.0F};
    ASSERT_EQ(specdec_cuda_elementwise(&task, nullptr), 0);
  }
  void wait() { queue_->wait(queue_->mark()); }

 private:
  static std::span<float> numbers(const std::shared_ptr<std::byte>& memory) {
    return {reinterpret_cast<float*>(memory.get()), kNumbers};
  }
  std::shared_ptr<CopyQueue> queue_ = cuda_copy_queue(at::kCPU);
  std::shared_ptr<std::byte> pinned_ = queue_->pinned(kBytes);
  std::shared_ptr<std::byte> on_device_ = queue_->on_device(kBytes);
  std::shared_ptr<std::byte> sum_ = [this] {
    auto memory = queue_->on_device(kBytes);
    std::memset(memory.get(), 0, static_cast<size_t>(kBytes));
    return memory;
  }();
};

TEST(CudaCopiesTest, TakeTurnsWithOps) {
  Copies copies;
  for (const float number : {1.0F, 2.0F, 4.0F}) {
    copies.write(number);
    copies.queue().wait_for_ops();
    copies.copy_up();
    copies.queue().let_ops_wait();
    copies.add();
    copies.wait();  // before pinned memory is written to
  }
  ASSERT_EQ(specdec_cuda_synchronize(nullptr), 0);
  EXPECT_THAT(copies.sum(), Each(7.0F));
}

TEST(CudaCopiesTest, GoBackAndMayComeFromSeveralThreads) {
  Copies copies;
  copies.write(3.0F);
  std::thread([&] {
    copies.copy_up();
    copies.queue().let_ops_wait();
  }).join();
  copies.add();
  copies.wait();
  copies.write(0.0F);
  copies.queue().wait_for_ops();
  copies.copy_back();
  const int64_t mark = copies.queue().mark();
  const int64_t later = copies.queue().mark();
  EXPECT_GT(later, mark);
  copies.queue().wait(later);
  copies.queue().wait(mark);  // which lies before it
  EXPECT_THAT(copies.pinned(), Each(3.0F));
}

TEST(CudaCopiesTest, MemoryIsAlignedAndSaysWhatIsMissing) {
  const auto queue = cuda_copy_queue(at::kCPU);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(queue->pinned(100).get()) % 4096, 0);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(queue->on_device(100).get()) % 256, 0);
  EXPECT_THAT([&] { queue->pinned(int64_t{1} << 60U); },
              ThrowsMessage<Error>(HasSubstr("1152921504606846976 bytes of pinned memory")));
}

// What a missing wait does in the emulation, whose copies are as late as they may be.
class EmulatedCopiesTest : public testing::Test {
 protected:
  void SetUp() override {
    if (runs_on_a_gpu()) {
      GTEST_SKIP() << "its copies may be done at once";
    }
    copies_.emplace();
    copies_->write(3.0F);
    copies_->copy_up();
  }
  std::optional<Copies> copies_;
};

TEST_F(EmulatedCopiesTest, AnOpThatDoesNotWaitReadsNaN) {
  copies_->add();
  EXPECT_TRUE(std::isnan(copies_->sum()[0]));
}

TEST_F(EmulatedCopiesTest, AWaitAfterTheOpIsTooLate) {
  copies_->add();
  copies_->queue().let_ops_wait();
  copies_->add();
  EXPECT_TRUE(std::isnan(copies_->sum()[0]));
}

TEST_F(EmulatedCopiesTest, WhatIsQueuedAfterTheWaitIsNotWaitedFor) {
  copies_->queue().let_ops_wait();
  copies_->copy_up();
  copies_->add();
  EXPECT_TRUE(std::isnan(copies_->sum()[0]));
}

TEST_F(EmulatedCopiesTest, TheHostHasToWaitBeforeItReusesTheSource) {
  copies_->write(5.0F);  // too early
  copies_->queue().let_ops_wait();
  copies_->add();
  EXPECT_THAT(copies_->sum(), Each(5.0F));
}

TEST_F(EmulatedCopiesTest, TheHostHasToWaitForWhatComesBack) {
  copies_->wait();
  copies_->copy_back();
  EXPECT_TRUE(std::isnan(copies_->pinned()[0]));
  copies_->wait();
  EXPECT_THAT(copies_->pinned(), Each(3.0F));
}

TEST_F(EmulatedCopiesTest, ACopyMayNotOvertakeALaunch) {
  const auto overtakes = ThrowsMessage<Error>(HasSubstr("a copy of 16 bytes failed with a copy"));
  copies_->queue().let_ops_wait();
  copies_->add();
  EXPECT_THAT([&] { copies_->copy_up(); }, overtakes) << "the op may still read";
  EXPECT_THAT([&] { copies_->copy_back(); }, overtakes);
  copies_->queue().wait_for_ops();
  copies_->copy_up();
  copies_->queue().let_ops_wait();
  copies_->add();
  EXPECT_THAT(copies_->sum(), Each(6.0F));
}

TEST_F(EmulatedCopiesTest, WaitingForAStreamIsWaitingForItsCopies) {
  void* stream = nullptr;
  ASSERT_EQ(create_stream(&stream), 0);
  float to = 0;
  const float from = 2;
  ASSERT_EQ(queue_copy(&to, &from, sizeof(to), stream), 0);
  EXPECT_TRUE(std::isnan(to));
  EXPECT_EQ(specdec_cuda_synchronize(nullptr), 0) << "the default stream has nothing to wait for";
  EXPECT_TRUE(std::isnan(to));
  EXPECT_EQ(specdec_cuda_synchronize(stream), 0);
  EXPECT_EQ(to, 2);
  EXPECT_EQ(destroy_stream(stream), 0);
  EXPECT_EQ(queue_copy(&to, &from, sizeof(to), stream), kInvalidValue);
}

}  // namespace
}  // namespace specdec::cuda
