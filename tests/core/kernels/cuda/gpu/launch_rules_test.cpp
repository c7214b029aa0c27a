// What launches ask CUDA's runtime for, on a runtime that notes it: no GPU is needed.
#include <gtest/gtest.h>
#include <launch_rules.h>

#include <cstdlib>
#include <map>
#include <thread>
#include <utility>
#include <vector>

namespace {

/// Two GPUs of compute capability 9 and 8, and what they were asked.
struct FakeRuntime {
  int device = 0;
  std::map<std::pair<int, const void*>, int> shared_bytes;  ///< by device and kernel
  int limits_set = 0, attributes_asked = 0;
};

FakeRuntime runtime;
const bool kOverlapIsWanted = setenv("SPECDEC_CUDA_OVERLAP", "1", 1) == 0;
const bool kClustersAreUnsaid = unsetenv("SPECDEC_CUDA_CLUSTERS") == 0;

}  // namespace

extern "C" {

cudaError_t cudaGetDevice(int* device) {
  *device = runtime.device;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr /*attribute*/, int device) {
  ++runtime.attributes_asked;
  *value = 9 - device;
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  *attributes = {};
  const auto found = runtime.shared_bytes.find({runtime.device, kernel});
  attributes->maxDynamicSharedSizeBytes =
      found == runtime.shared_bytes.end() ? 48 << 10 : found->second;
  std::this_thread::yield();  // between the question and the order
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute /*attribute*/, int value) {
  runtime.shared_bytes[{runtime.device, kernel}] = value;
  ++runtime.limits_set;
  return cudaSuccess;
}

}  // extern "C"

namespace specdec::cuda {
namespace {

class LaunchRulesTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(kOverlapIsWanted);
    runtime = {};
  }
  const int kernel_ = 0, other_ = 0;
};

TEST_F(LaunchRulesTest, SharedMemoryIsNeverLowered) {
  for (const unsigned kilobytes : {16U, 48U, 100U, 64U, 100U, 120U}) {
    EXPECT_EQ(allow_shared_bytes(&kernel_, kilobytes << 10U), cudaSuccess);
  }
  EXPECT_EQ(runtime.limits_set, 2);
  EXPECT_EQ((runtime.shared_bytes[{0, &kernel_}]), 120 << 10);
  EXPECT_EQ(allow_shared_bytes(&other_, 64U << 10U), cudaSuccess);
  EXPECT_EQ((runtime.shared_bytes[{0, &other_}]), 64 << 10);
}

TEST_F(LaunchRulesTest, EachDeviceIsAskedForItsSharedMemory) {
  ASSERT_EQ(allow_shared_bytes(&kernel_, 100U << 10U), cudaSuccess);
  runtime.device = 1;
  ASSERT_EQ(allow_shared_bytes(&kernel_, 64U << 10U), cudaSuccess);
  EXPECT_EQ((runtime.shared_bytes[{0, &kernel_}]), 100 << 10);
  EXPECT_EQ((runtime.shared_bytes[{1, &kernel_}]), 64 << 10);
}

/// A question and an order belong together: else the smaller limit may come last.
TEST_F(LaunchRulesTest, ThreadsDoNotLowerEachOthersLimits) {
  for (int round = 0; round < 50; ++round) {
    runtime.shared_bytes.clear();
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] { allow_shared_bytes(&kernel_, (60U + i) << 10U); });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    ASSERT_EQ((runtime.shared_bytes[{0, &kernel_}]), 63 << 10) << round;
  }
}

TEST_F(LaunchRulesTest, ADeviceWhoseKernelsDoNotWaitDoesNotOverlap) {
  EXPECT_TRUE(may_begin_early(nullptr));
  runtime.device = 1;
  EXPECT_FALSE(may_begin_early(nullptr));
  runtime.device = 0;
  EXPECT_TRUE(may_begin_early(nullptr));
  runtime.device = 1000;
  EXPECT_FALSE(may_begin_early(nullptr));
  runtime.device = -1;
  EXPECT_FALSE(may_begin_early(nullptr));
  EXPECT_LE(runtime.attributes_asked, 2);
}

TEST_F(LaunchRulesTest, ADeviceOfAnotherComputeCapabilityHasNoClusters) {
  ASSERT_TRUE(kClustersAreUnsaid);
  EXPECT_TRUE(has_clusters());
  runtime.device = 1;
  EXPECT_FALSE(has_clusters());
  EXPECT_FALSE(wants_clusters("0"));
  EXPECT_TRUE(wants_clusters("1"));
}

/// A copy that the stream waits for may bring the weights that the kernel reads first.
TEST_F(LaunchRulesTest, TheFirstKernelAfterAWaitDoesNotBeginEarly) {
  int copies = 0;
  note_wait(nullptr);
  EXPECT_TRUE(may_begin_early(&copies)) << "another stream's";
  EXPECT_FALSE(may_begin_early(nullptr));
  EXPECT_TRUE(may_begin_early(nullptr));
  note_wait(&copies);
  EXPECT_TRUE(may_begin_early(nullptr));
  EXPECT_FALSE(may_begin_early(&copies));
  std::thread([] { note_wait(nullptr); }).join();
  EXPECT_FALSE(may_begin_early(nullptr)) << "another thread's wait";
  EXPECT_TRUE(may_begin_early(nullptr));
}

}  // namespace
}  // namespace specdec::cuda
