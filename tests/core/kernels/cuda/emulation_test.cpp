#include "core/kernels/cuda/emulation/emulation.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "core/kernels/cuda/emulation/paired_numbers.h"
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

/// Of 8 blocks, in clusters.
std::vector<float> cluster_sums_with(ClusterFault fault, uint64_t seed, unsigned cluster = 4) {
  std::vector<float> out(8, -1.0F);
  emulation::set_seed(seed);
  EXPECT_EQ(planted_cluster_sum(fault, out.data(), 8, cluster), 0);
  return out;
}

TEST(EmulationTest, BlocksOfAClusterReadEachOthersSharedMemory) {
  const std::vector<float> sums = {600, 604, 608, 612, 600, 604, 608, 612};
  int wrong = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    EXPECT_EQ(cluster_sums_with(ClusterFault::kNone, seed), sums) << seed;
    EXPECT_EQ(cluster_sums_with(ClusterFault::kNone, seed, 1), std::vector<float>(8, 0.0F));
    wrong += cluster_sums_with(ClusterFault::kNoBarrier, seed) == sums ? 0 : 1;
  }
  EXPECT_GT(wrong, 10);
}

TEST(EmulationDeathTest, EndsWhereABlockReadsWhatItsClusterHasNot) {
  EXPECT_DEATH(
      for (uint64_t seed = 0; seed < 20;
           ++seed) { (void)cluster_sums_with(ClusterFault::kEarlyEnd, seed); },
      "of the cluster is read, whose threads have ended");
  EXPECT_DEATH(cluster_sums_with(ClusterFault::kMissingThread, 1),
               "waits at sync_cluster, but thread 5 of block 1 of the cluster has ended");
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

TEST(EmulationDeathTest, EndsAtALoadThatIsNotAligned) {
  alignas(16) const std::array<uint32_t, 8> memory = {0, 1, 2, 3, 4, 5, 6, 7};
  uint32_t words[4] = {};
  load_once(&memory[4], words);
  EXPECT_EQ(words[3], 7U);
  EXPECT_DEATH(load_once(&memory[1], words), "16 bytes that are not aligned");
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
  for (const auto& [blocks, cluster] : {std::pair(16U, 16U), {12U, 8U}, {8U, 0U}}) {
    LaunchShape shape;
    shape.grid_x = blocks;
    shape.threads = 32;
    shape.cluster = cluster;
    EXPECT_DEATH(emulation::run_grid(shape, [] {}), "in clusters of");
  }
}

}  // namespace
}  // namespace specdec::cuda
