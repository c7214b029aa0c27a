#include "core/kernels/cuda/emulation/emulation.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "core/kernels/cuda/emulation/stream_capture.h"
#include "tests/core/kernels/cuda/planted_kernels.h"

namespace specdec::cuda {
namespace {

constexpr unsigned kBlocks = 5;

/// Sums of 0..127, 128..255, ...: exact in float32.
std::vector<float> sums_with(Fault fault, uint64_t seed) {
  std::vector<float> input(kBlocks * 128);
  std::iota(input.begin(), input.end(), 0.0F);
  std::vector<float> out(kBlocks, -1.0F);
  emulation::set_seed(seed);
  EXPECT_EQ(planted_sum(fault, input.data(), out.data(), kBlocks), 0);
  return out;
}

const std::vector<float> kSums = {8128, 24512, 40896, 57280, 73664};

TEST(EmulationTest, ReducesInEveryOrderOfThreads) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    EXPECT_EQ(sums_with(Fault::kNone, seed), kSums) << seed;
  }
}

TEST(EmulationTest, FindsAMissingBarrier) {
  for (const Fault fault : {Fault::kNoBarrier, Fault::kEarlyReuse}) {
    int wrong = 0;
    for (uint64_t seed = 0; seed < 20; ++seed) {
      wrong += sums_with(fault, seed) == kSums ? 0 : 1;
    }
    EXPECT_GT(wrong, 10) << static_cast<int>(fault);
  }
}

/// Sums of a graph of two grids: those of 128 times 128 numbers, and of these by one block, which
/// writes where the first grid reads. The sum of 0..16383.
float sum_of_sums(Fault fault, uint64_t seed) {
  std::vector<float> input(size_t{128} * 128);
  std::iota(input.begin(), input.end(), 0.0F);
  std::vector<float> sums(128, 0.0F);
  void* stream = nullptr;
  void* graph = nullptr;
  emulation::set_seed(seed);
  EXPECT_EQ(begin_capture(&stream), 0);
  EXPECT_EQ(planted_sum(Fault::kNone, input.data(), sums.data(), 128, stream), 0);
  EXPECT_EQ(planted_sum(fault, sums.data(), &input[300], 1, stream), 0);
  EXPECT_EQ(end_capture(stream, &graph), 0);
  EXPECT_EQ(launch_graph(graph, nullptr), 0);
  EXPECT_EQ(destroy_graph(graph), 0);
  EXPECT_EQ(sums.front(), 8128) << "the first grid has ended";
  return input[300];
}

TEST(EmulationTest, FindsWhatIsReadOrWrittenBeforeAKernelWaits) {
  constexpr float kSum = 16384.0F * 16383 / 2;
  for (uint64_t seed = 0; seed < 5; ++seed) {
    EXPECT_EQ(sum_of_sums(Fault::kNone, seed), kSum) << seed;
    EXPECT_NE(sum_of_sums(Fault::kEarlyRead, seed), kSum) << seed;
    EXPECT_NE(sum_of_sums(Fault::kEarlyWrite, seed), kSum) << seed;
  }
}

TEST(EmulationTest, AGridThatNoneFollowsIsReadAtOnce) {
  EXPECT_EQ(sums_with(Fault::kEarlyRead, 1), kSums);
}

TEST(EmulationDeathTest, EndsAtWhatAGpuDoesNotDefine) {
  EXPECT_DEATH(sums_with(Fault::kDivergentShuffle, 1), "waits at __shfl_xor_sync, but thread");
  EXPECT_DEATH(sums_with(Fault::kDifferentShuffles, 1), "__ballot_sync");
  EXPECT_DEATH(sums_with(Fault::kDivergentBarrier, 1),
               "waits at __syncthreads, but thread 5 has ended");
  EXPECT_DEATH(sums_with(Fault::kPartialMask, 1), "mask does not name all lanes");
  EXPECT_DEATH(sums_with(Fault::kUnawaited, 1), "ends without a call of await_earlier_kernels");
  if (emulation::is_sanitized()) {
    EXPECT_DEATH(sums_with(Fault::kSharedMemoryOverrun, 1), "heap-buffer-overflow");
  }
}

TEST(EmulationDeathTest, RefusesALaunchThatAGpuRefuses) {
  const auto launch_with = [](unsigned threads, unsigned shared_bytes) {
    LaunchShape shape;
    shape.threads = threads;
    shape.shared_bytes = shared_bytes;
    emulation::run_grid(shape, [] {});
  };
  EXPECT_DEATH(launch_with(2048, 0), "2048 threads");
  EXPECT_DEATH(launch_with(32, 300'000), "300000 bytes of shared memory");
  launch_with(1024, 200'000);
}

}  // namespace
}  // namespace specdec::cuda
