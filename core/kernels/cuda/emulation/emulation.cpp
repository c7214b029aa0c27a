#include "core/kernels/cuda/emulation/emulation.h"

#include <array>
#include <string>
#include <utility>

#include "core/kernels/cuda/emulation/emulator.h"

namespace specdec::cuda::emulation {
namespace {

/// Of a thread: two grids at most are under way.
struct Machine {
  Order order;
  std::array<Emulator, 2> emulators = {Emulator(order), Emulator(order)};
  size_t newest = 0;      ///< of them: that of the newest grid
  bool begun = false;     ///< the newest grid waits for its end
  bool clusters = true;   ///< may be launched
  bool overlaps = false;  ///< a grid ends when the next one has begun
  uint64_t grids = 0;     ///< so far
};

Machine& machine() {
  thread_local Machine one;
  return one;
}

/// Whose thread runs; nullptr: none does.
constinit thread_local Emulator* running = nullptr;

void begin_grid(Emulator& next) {
  running = &next;
  next.begin();
  running = nullptr;
}

void finish_grid(Emulator& begun) {
  running = &begun;
  begun.finish();
  running = nullptr;
}

}  // namespace

void set_seed(uint64_t seed) { machine().order.seed(seed); }
uint64_t grid_count() { return machine().grids; }

void run_grid(const LaunchShape& shape, std::function<void()> thread) {
  if (running != nullptr) {
    end_process("a kernel launches a kernel");
  }
  Machine& all = machine();
  Emulator& before = all.emulators[all.newest];
  all.newest = all.begun ? 1 - all.newest : all.newest;
  Emulator& next = all.emulators[all.newest];
  next.take(shape, std::move(thread));
  ++all.grids;
  if (!all.overlaps) {
    finish_grid(next);
    return;
  }
  begin_grid(next);
  if (std::exchange(all.begun, true)) {
    finish_grid(before);
  }
}

Overlap::Overlap() { machine().overlaps = true; }

Overlap::~Overlap() {
  Machine& all = machine();
  all.overlaps = false;
  if (std::exchange(all.begun, false)) {
    finish_grid(all.emulators[all.newest]);
  }
}

unsigned char* shared_memory() { return running->shared(); }
bool has_clusters() { return machine().clusters; }
void set_clusters(bool has) { machine().clusters = has; }
unsigned cluster_blocks() { return running->cluster_blocks(); }
const unsigned char* shared_of(const unsigned char* own, unsigned block) {
  return running->shared_of(own, block);
}
void sync_cluster() { running->sync_cluster(); }
void sync_block() { running->sync_block(); }
bool sync_block_or(bool predicate) { return running->sync_block_or(predicate); }

uint64_t exchange(const char* name, uint64_t bits, int source) {
  const Slot own = {static_cast<uint32_t>(bits), static_cast<uint32_t>(bits >> 32U)};
  const Slot& other =
      running->exchange(name, own, [](Exchange&) {}).slots[static_cast<size_t>(source)];
  return static_cast<uint64_t>(other[1]) << 32U | other[0];
}

unsigned ballot(bool predicate) {
  const Exchange& votes =
      running->exchange("__ballot_sync", {predicate ? 1U : 0U}, [](Exchange&) {});
  unsigned bits = 0;
  for (size_t lane = 0; lane < kLanes; ++lane) {
    bits |= votes.slots[lane][0] << lane;
  }
  return bits;
}

void multiply_tiles(float* c, const uint32_t* a, const uint32_t* b) {
  const Exchange& exchange =
      running->exchange("mma", {a[0], a[1], a[2], a[3], b[0], b[1]},
                        [](Exchange& all) { multiply_slots(all.slots, all.products); });
  const TileProducts& products = exchange.products[threadIdx.x % kLanes];
  for (size_t i = 0; i < 4; ++i) {
    c[i] = static_cast<float>(c[i] + products[i]);
  }
}

void await_earlier_kernels() { running->await_earlier_kernels(); }

void check_awaited() {
  if (!running->has_awaited()) {
    end_process("thread " + std::to_string(threadIdx.x) +
                " ends without a call of await_earlier_kernels");
  }
}

void check_aligned(const void* address, uintptr_t bytes) {
  if (reinterpret_cast<uintptr_t>(address) % bytes != 0) {
    end_process("a load of " + std::to_string(bytes) + " bytes that are not aligned");
  }
}

void refuse_mask() { end_process("a warp instruction whose mask does not name all lanes"); }

bool is_sanitized() { return SPECDEC_FIBERS_ARE_SANITIZED != 0; }

}  // namespace specdec::cuda::emulation
