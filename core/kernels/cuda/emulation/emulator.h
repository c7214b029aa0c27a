#pragma once
#include <array>
#include <boost/context/detail/fcontext.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/kernels/cuda/emulation/emulation.h"
#include "core/kernels/cuda/emulation/tile_product.h"

namespace specdec::cuda::emulation {

namespace context = boost::context::detail;

constexpr uint32_t kAllLanes = 0xFFFFFFFFU;
/// A warp runs for about 2^kTurnBits turns before another may. So one comes to its next barrier
/// while others have not moved, which shows a missing one.
constexpr unsigned kTurnBits = 9;

/// A stack and where execution on it goes on. Tells ASan of each switch.
struct Strand {
  context::fcontext_t resume = nullptr;
  const void* stack_bottom = nullptr;
  size_t stack_bytes = 0;
  void* fake_stack = nullptr;
};

struct Fiber {
  Strand strand;
  std::unique_ptr<unsigned char[]> stack;
  unsigned thread = 0;             ///< of the cluster
  const char* waits_at = nullptr;  ///< instruction, nullptr = can run
  bool done = false;
  bool awaited = false;    ///< has called await_earlier_kernels()
  unsigned exchanges = 0;  ///< of the warp so far
};

/// What the lanes of a warp pass to each other.
struct Exchange {
  std::array<Slot, kLanes> slots;
  std::array<TileProducts, kLanes> products;  ///< which the last lane makes
};

struct Warp {
  /// A lane can be one exchange ahead of others that have not yet read: so two of them.
  std::array<Exchange, 2> exchanges;
  unsigned arrived = 0;
  const char* instruction = nullptr;  ///< that lanes have arrived at
  uint32_t ready = 0;                 ///< a bit for each lane that can run
};

/// Ends the process, naming the running block.
[[noreturn]] void end_process(const std::string& message);

/// Order of fibers and blocks. One multiplication a number: it is drawn at each switch of fibers.
class Order {
 public:
  void seed(uint64_t seed) { engine_.seed(seed); }
  /// Below `count`; sets `rarely` once in 2^kTurnBits calls.
  size_t pick(size_t count, bool* rarely = nullptr) {
    const uint64_t bits = engine_();  // the high ones are the random ones
    if (rarely != nullptr) {
      *rarely = (bits >> (32U - kTurnBits) & ((1U << kTurnBits) - 1U)) == 0;
    }
    return static_cast<size_t>((bits >> 32U) * count >> 32U);
  }

 private:
  std::linear_congruential_engine<uint64_t, 6364136223846793005U, 1442695040888963407U, 0> engine_;
};

/// A block of threads, whose threads and warps lie among those of its cluster.
struct Block {
  std::unique_ptr<unsigned char[]> shared;
  unsigned running = 0;  ///< threads that have not ended
  unsigned at_barrier = 0;
  bool vote = false, last_vote = false;  ///< of the barrier that threads come to; of the last one
};

/// Runs a grid, one cluster of blocks after another, on the calling thread. One whose threads run
/// has the thread's indices.
class Emulator {
 public:
  explicit Emulator(Order& order) : order_(order) {}
  /// Takes a grid; `thread` is kept.
  void take(const LaunchShape& shape, std::function<void()> thread);
  /// Runs one warp of one block as far as it comes before earlier kernels have ended.
  void begin();
  /// Runs the rest of the grid, once they have.
  void finish();

  unsigned char* shared() { return own_block().shared.get(); }
  unsigned cluster_blocks() const { return shape_.cluster; }
  const unsigned char* shared_of(const unsigned char* own, unsigned block);
  bool has_awaited() const { return current_->awaited; }
  void await_earlier_kernels();
  void sync_block();
  void sync_cluster();
  bool sync_block_or(bool predicate);
  /// Calls finish(exchange) in the last lane that arrives, before any other goes on.
  template <class Finish>
  const Exchange& exchange(const char* name, const Slot& slot, const Finish& finish);

 private:
  static void enter(context::transfer_t before);
  void place(uint64_t cluster);
  void make_cluster();
  void run_cluster();
  void resume_cluster();
  void begin(Fiber& fiber, unsigned thread);
  void start(Fiber& fiber);
  void switch_strands(Strand* from, const Strand& to);
  void wait(const char* name);
  const Strand& next();
  Fiber* pick_ready();
  [[noreturn]] void report_missing() const;
  Warp& warp_of(const Fiber& fiber) { return warps_[fiber.thread / kLanes]; }
  unsigned threads() const { return shape_.cluster * shape_.threads; }  ///< of a cluster
  unsigned block_of(const Fiber& fiber) const { return fiber.thread / shape_.threads; }
  Block& own_block() { return cluster_[block_of(*current_)]; }
  bool is_ready(const Fiber& fiber) const;
  std::string state_of(const Fiber& fiber) const;

  Order& order_;
  LaunchShape shape_;
  std::function<void()> thread_;
  std::vector<uint64_t> clusters_;  ///< in the order in which they run
  bool early_ = false;              ///< earlier kernels have not ended
  bool has_begun_ = false;          ///< the first cluster has
  Index first_block_;               ///< of the cluster that runs
  std::vector<Block> cluster_;      ///< its blocks
  std::vector<Fiber> fibers_;       ///< kept between launches; a cluster uses the first threads()
  std::vector<Warp> warps_;         ///< likewise
  size_t favourite_ = 0;            ///< warp that runs ahead of the others
  unsigned running_ = 0;            ///< threads of the cluster that have not ended
  unsigned at_cluster_barrier_ = 0;
  Strand caller_;               ///< of begin() or finish()
  Strand ended_;                ///< of a fiber that has ended
  Strand* previous_ = nullptr;  ///< which ran before the one that runs now
  Fiber* current_ = nullptr;
};

template <class Finish>
const Exchange& Emulator::exchange(const char* name, const Slot& slot, const Finish& finish) {
  Fiber& fiber = *current_;
  Warp& warp = warp_of(fiber);
  Exchange& exchange = warp.exchanges[fiber.exchanges++ % 2];
  exchange.slots[fiber.thread % kLanes] = slot;
  if (warp.arrived == 0) {
    warp.instruction = name;
  } else if (warp.instruction != name && std::strcmp(warp.instruction, name) != 0) {
    end_process("thread " + std::to_string(fiber.thread) + " is at " + name +
                ", but another of its warp waits at " + warp.instruction);
  }
  if (++warp.arrived < kLanes) {
    wait(name);
    return exchange;
  }
  warp.arrived = 0;
  warp.ready = kAllLanes & ~(1U << fiber.thread % kLanes);
  finish(exchange);
  return exchange;
}

}  // namespace specdec::cuda::emulation
