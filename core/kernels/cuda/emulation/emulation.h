#pragma once
#include <cstdint>
#include <functional>

#include "core/kernels/cuda/launch_shape.h"

/// Runs CUDA kernels on the CPU, so that their own code is tested where there is no GPU.
///
/// The threads of a block are fibers; one runs until it waits for others, and which comes next is
/// chosen by a seeded generator, as is the order of blocks: now and then another warp runs ahead of
/// the others, so a missing barrier shows in the result.
/// Shared memory is a new heap block for each block of threads, filled with NaN. A barrier waits
/// for all threads of the block or of its cluster, a shuffle or vote for all 32 lanes of the warp;
/// the shared memory of a block goes when its threads have ended, also for its cluster. A kernel
/// that breaks these rules ends the process with a message on stderr.
///
/// Not seen here: races between blocks, between lanes that both run in any order with the same
/// result, and the speed of anything. All runs on the calling thread, a grid to its end before the
/// next one, except in an Overlap.
namespace specdec::cuda::emulation {

struct Index {
  unsigned x = 0, y = 0, z = 0;
};

/// Indices of the running thread, as CUDA names them. They change whenever another fiber runs.
// NOLINTNEXTLINE(readability-identifier-naming)
extern constinit thread_local Index threadIdx, blockIdx, gridDim;

/// The order of fibers and blocks of the following launches of this thread.
void set_seed(uint64_t seed);

/// Grids that this thread has run so far.
uint64_t grid_count();

/// Calls `thread` once for each thread of each block. What it refers to has to live until the grid
/// has ended.
void run_grid(const LaunchShape& shape, std::function<void()> thread);

/// While one lives, this thread's grids run as programmatic dependent launches may: when the
/// threads of a warp of a grid wait for earlier kernels, the grid before runs, and then the rest of
/// it. So what that warp reads before it waits is what memory held before, and what it writes then
/// is overwritten or damages the grid before. The last grid ends with the Overlap. Which warp of
/// which block begins early is drawn from the seed.
class Overlap {
 public:
  Overlap();
  ~Overlap();
  Overlap(const Overlap&) = delete;
  Overlap& operator=(const Overlap&) = delete;
};

unsigned char* shared_memory();
/// Whether this thread's launches may have clusters: they may, unless they are switched off, as on
/// a device that has none.
bool has_clusters();
void set_clusters(bool has);
/// Blocks of the running thread's cluster.
unsigned cluster_blocks();
/// Where block `block` of the cluster has what lies at `own` in the running block's shared memory.
const unsigned char* shared_of(const unsigned char* own, unsigned block);
/// Waits for all threads of the cluster.
void sync_cluster();
void sync_block();
/// Whether any thread of the block passes true, once all have called this.
bool sync_block_or(bool predicate);
/// What lane `source` of the warp passes for `bits`, once all lanes have called this. `name`: of
/// the caller's instruction; all lanes must be at the same one.
uint64_t exchange(const char* name, uint64_t bits, int source);
/// A bit for each lane, once all lanes have called this.
unsigned ballot(bool predicate);
/// c += a * b, of lanes that hold them as mma.m16n8k16 says: a [16, 16] and b [16, 8] bfloat16, c
/// [16, 8] float32. Sums are rounded otherwise than a GPU's.
void multiply_tiles(float* c, const uint32_t* a, const uint32_t* b);
/// Waits for the grid before. check_awaited() ends the process where a thread has not called it.
void await_earlier_kernels();
void check_awaited();
/// Ends the process where an address is not a multiple of `bytes`, as a load of so many needs.
void check_aligned(const void* address, uintptr_t bytes);
/// Ends the process, as a mask that does not name all lanes has to.
[[noreturn]] void refuse_mask();
inline void check_mask(unsigned mask) {
  if (mask != 0xFFFFFFFFU) {
    refuse_mask();
  }
}
/// Whether the emulation is compiled with ASan, which finds accesses outside shared memory.
bool is_sanitized();

}  // namespace specdec::cuda::emulation
