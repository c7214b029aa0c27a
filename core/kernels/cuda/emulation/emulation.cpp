#include "core/kernels/cuda/emulation/emulation.h"

#include <algorithm>
#include <array>
#include <bit>
#include <boost/context/detail/fcontext.hpp>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "core/kernels/cuda/emulation/tile_product.h"

#if SPECDEC_FIBERS_ARE_SANITIZED
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace specdec::cuda::emulation {

constinit thread_local Index threadIdx, blockIdx, gridDim;

namespace {

namespace context = boost::context::detail;

constexpr uint32_t kAllLanes = 0xFFFFFFFFU;
constexpr size_t kStackBytes = size_t{128} << 10U;
/// Bytes of a stack, below its staggered end, that hold the frames that a fiber does not return
/// from.
constexpr size_t kFirstFrames = size_t{16} << 10U;
constexpr size_t kStagger = 192;
constexpr unsigned kMaxThreads = 1024;
constexpr unsigned kMaxSharedBytes = 227U << 10U;  // of an sm_90 block
constexpr int kPoison = 0xFF;                      // a float32 and a float64 of such bytes is NaN
/// A warp runs for about 2^kTurnBits turns before another may. So one comes to its next barrier
/// while others have not moved, which shows a missing one.
constexpr unsigned kTurnBits = 9;
constexpr const char* kBarrier = "__syncthreads";

/// A stack and where execution on it goes on. Tells ASan of each switch.
struct Strand {
  context::fcontext_t resume = nullptr;
  const void* stack_bottom = nullptr;
  size_t stack_bytes = 0;
  void* fake_stack = nullptr;
};

void before_switch(Strand* from, const Strand& to) {
#if SPECDEC_FIBERS_ARE_SANITIZED
  // Without `from` the running strand ends, and its fake stack goes.
  __sanitizer_start_switch_fiber(from == nullptr ? nullptr : &from->fake_stack, to.stack_bottom,
                                 to.stack_bytes);
#else
  (void)from;
  (void)to;
#endif
}

/// Called on the strand that runs now; writes where the one before has its stack.
void after_switch(const Strand& now, Strand& before) {
#if SPECDEC_FIBERS_ARE_SANITIZED
  __sanitizer_finish_switch_fiber(now.fake_stack, &before.stack_bottom, &before.stack_bytes);
#else
  (void)now;
  (void)before;
#endif
}

struct Fiber {
  Strand strand;
  std::unique_ptr<unsigned char[]> stack;
  unsigned thread = 0;
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

[[noreturn]] void end_process(const std::string& message) {
  std::fprintf(stderr, "CUDA emulation: block (%u, %u, %u): %s\n", blockIdx.x, blockIdx.y,
               blockIdx.z, message.c_str());
  std::abort();
}

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

/// One block of threads after another, on the calling thread.
class Emulator {
 public:
  void seed(uint64_t seed) { order_.seed(seed); }
  void run(const LaunchShape& shape, const std::function<void()>& thread);
  bool running() const { return current_ != nullptr; }
  uint64_t grids() const { return grids_; }

  unsigned char* shared() { return shared_.get(); }
  bool& awaited() { return current_->awaited; }
  void sync_block();
  bool sync_block_or(bool predicate);
  /// Calls finish(exchange) in the last lane that arrives, before any other goes on.
  template <class Finish>
  const Exchange& exchange(const char* name, const Slot& slot, const Finish& finish);

 private:
  static void enter(context::transfer_t before);
  void run_block(const LaunchShape& shape);
  void begin(Fiber& fiber, unsigned thread);
  void start(Fiber& fiber);
  void switch_strands(Strand* from, const Strand& to);
  void wait(const char* name);
  Fiber& pick_ready();
  [[noreturn]] void report_missing() const;
  Warp& warp_of(const Fiber& fiber) { return warps_[fiber.thread / kLanes]; }
  bool is_ready(const Fiber& fiber) const;
  std::string state_of(const Fiber& fiber) const;

  Order order_;
  const std::function<void()>* thread_ = nullptr;
  std::vector<Fiber> fibers_;  ///< kept between launches; a block uses the first threads_
  unsigned threads_ = 0;
  uint64_t grids_ = 0;       ///< so far
  std::vector<Warp> warps_;  ///< likewise
  size_t favourite_ = 0;     ///< warp that runs ahead of the others
  unsigned running_ = 0;     ///< threads that have not ended
  unsigned at_barrier_ = 0;
  bool vote_ = false, last_vote_ = false;  ///< of the barrier that threads come to; of the last one
  std::unique_ptr<unsigned char[]> shared_;
  Strand caller_;               ///< of run()
  Strand ended_;                ///< of a fiber that has ended
  Strand* previous_ = nullptr;  ///< which ran before the one that runs now
  Fiber* current_ = nullptr;
};

Emulator& emulator() {
  thread_local Emulator one;
  return one;
}

void Emulator::run(const LaunchShape& shape, const std::function<void()>& thread) {
  const uint64_t blocks = uint64_t{shape.grid_x} * shape.grid_y * shape.grid_z;
  if (blocks == 0 || shape.threads == 0 || shape.threads > kMaxThreads ||
      shape.threads % kLanes != 0 || shape.shared_bytes > kMaxSharedBytes || shape.grid_y > 65535 ||
      shape.grid_z > 65535) {
    end_process("a launch of " + std::to_string(blocks) + " blocks of " +
                std::to_string(shape.threads) + " threads with " +
                std::to_string(shape.shared_bytes) + " bytes of shared memory");
  }
  thread_ = &thread;
  ++grids_;
  gridDim = {shape.grid_x, shape.grid_y, shape.grid_z};
  std::vector<uint64_t> order(blocks);
  std::iota(order.begin(), order.end(), 0);
  for (size_t left = order.size(); left > 1; --left) {
    std::swap(order[order_.pick(left)], order[left - 1]);
  }
  for (const uint64_t block : order) {
    blockIdx = {static_cast<unsigned>(block % shape.grid_x),
                static_cast<unsigned>(block / shape.grid_x % shape.grid_y),
                static_cast<unsigned>(block / shape.grid_x / shape.grid_y)};
    run_block(shape);
  }
  current_ = nullptr;
}

void Emulator::run_block(const LaunchShape& shape) {
  threads_ = shape.threads;
  shared_ = std::make_unique_for_overwrite<unsigned char[]>(shape.shared_bytes);
  std::memset(shared_.get(), kPoison, shape.shared_bytes);
  warps_.resize(threads_ / kLanes);
  for (Warp& warp : warps_) {
    warp.arrived = 0;
    warp.ready = kAllLanes;
  }
  at_barrier_ = 0;
  vote_ = false;
  if (fibers_.size() < threads_) {
    fibers_.resize(threads_);
  }
  for (unsigned t = 0; t < threads_; ++t) {
    begin(fibers_[t], t);
  }
  favourite_ = order_.pick(warps_.size());
  running_ = threads_;
  start(pick_ready());
  switch_strands(&caller_, current_->strand);
}

void Emulator::begin(Fiber& fiber, unsigned thread) {
  if (fiber.stack == nullptr) {
    fiber.stack = std::unique_ptr<unsigned char[]>(new unsigned char[kStackBytes]);
  }
  fiber.strand = {};
  fiber.strand.stack_bottom = fiber.stack.get();
  fiber.strand.stack_bytes = kStackBytes;
  // Stacks begin at the same place of a memory page: without a stagger the lanes' newest frames
  // would share a few lines of the processor's cache.
  const size_t stack_bytes = kStackBytes - thread % kLanes * kStagger;
  fiber.strand.resume =
      context::make_fcontext(fiber.stack.get() + stack_bytes, stack_bytes, Emulator::enter);
#if SPECDEC_FIBERS_ARE_SANITIZED
  // The function of the fiber before ended inside of its first frames; all others it has left.
  ASAN_UNPOISON_MEMORY_REGION(fiber.stack.get() + kStackBytes - kFirstFrames, kFirstFrames);
#endif
  fiber.thread = thread;
  fiber.waits_at = nullptr;
  fiber.done = false;
  fiber.awaited = false;
  fiber.exchanges = 0;
}

Fiber& Emulator::pick_ready() {
  if (warps_[favourite_].ready == 0) {
    favourite_ = order_.pick(warps_.size());
  }
  for (size_t i = 0; i < warps_.size(); ++i) {
    uint32_t& ready = warps_[favourite_].ready;
    if (ready != 0) {
      bool changes = false;
      const auto first = static_cast<int>(order_.pick(kLanes, &changes));
      const auto after = static_cast<size_t>(std::countr_zero(std::rotr(ready, first)));
      const size_t lane = (static_cast<size_t>(first) + after) % kLanes;
      ready &= ~(1U << lane);
      Fiber& fiber = fibers_[favourite_ * kLanes + lane];
      if (changes) {
        favourite_ = order_.pick(warps_.size());
      }
      return fiber;
    }
    favourite_ = favourite_ + 1 == warps_.size() ? 0 : favourite_ + 1;
  }
  report_missing();
}

/// Makes a fiber the one that runs next.
void Emulator::start(Fiber& fiber) {
  current_ = &fiber;
  threadIdx = {fiber.thread, 0, 0};
}

/// Leaves the strand `from`, until another one switches back; for good where it is nullptr.
void Emulator::switch_strands(Strand* from, const Strand& to) {
  previous_ = from == nullptr ? &ended_ : from;
  before_switch(from, to);
  const context::transfer_t before = context::jump_fcontext(to.resume, this);
  after_switch(*from, *previous_);
  previous_->resume = before.fctx;
}

/// First on a new stack.
void Emulator::enter(context::transfer_t before) {
  auto& self = *static_cast<Emulator*>(before.data);
  after_switch(self.current_->strand, *self.previous_);
  self.previous_->resume = before.fctx;
  (*self.thread_)();
  self.current_->done = true;
  if (--self.running_ == 0) {
    self.switch_strands(nullptr, self.caller_);
  }
  self.start(self.pick_ready());
  self.switch_strands(nullptr, self.current_->strand);
}

/// Lets others run, until this fiber is ready again.
void Emulator::wait(const char* name) {
  Fiber& fiber = *current_;
  fiber.waits_at = name;
  start(pick_ready());
  if (current_ != &fiber) {
    switch_strands(&fiber.strand, current_->strand);
  }
  fiber.waits_at = nullptr;
}

void Emulator::sync_block() {
  if (++at_barrier_ == threads_) {
    at_barrier_ = 0;
    last_vote_ = vote_;
    vote_ = false;
    for (Warp& warp : warps_) {  // this thread is no nearer to running on than the others
      warp.ready = kAllLanes;
    }
  }
  wait(kBarrier);
}

bool Emulator::sync_block_or(bool predicate) {
  vote_ = vote_ || predicate;
  sync_block();
  return last_vote_;
}

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

bool Emulator::is_ready(const Fiber& fiber) const {
  return (warps_[fiber.thread / kLanes].ready >> fiber.thread % kLanes & 1U) != 0;
}

std::string Emulator::state_of(const Fiber& fiber) const {
  const std::string name = "thread " + std::to_string(fiber.thread);
  if (fiber.done) {
    return name + " has ended";
  }
  return fiber.waits_at == nullptr || is_ready(fiber) ? name + " can run"
                                                      : name + " waits at " + fiber.waits_at;
}

/// All threads wait or have ended: some never come to where others wait.
void Emulator::report_missing() const {
  const auto waits = [&](const Fiber& fiber) {
    return !fiber.done && fiber.waits_at != nullptr && fiber.waits_at != kBarrier;
  };
  const auto end = fibers_.begin() + threads_;
  auto waiting = std::find_if(fibers_.begin(), end, waits);
  auto first = fibers_.begin();
  auto last = end;
  if (waiting != end) {  // a warp instruction: the missing lane is in the warp
    first += static_cast<std::ptrdiff_t>(waiting->thread / kLanes * kLanes);
    last = first + static_cast<std::ptrdiff_t>(kLanes);
  } else {
    waiting = std::find_if(first, end, [](const Fiber& fiber) { return !fiber.done; });
  }
  const auto missing = std::find_if(first, last, [&](const Fiber& fiber) {
    return fiber.done || fiber.waits_at != waiting->waits_at;
  });
  end_process(state_of(*waiting) + ", but " +
              (missing == last ? "others do not come" : state_of(*missing)));
}

}  // namespace

void set_seed(uint64_t seed) { emulator().seed(seed); }
uint64_t grid_count() { return emulator().grids(); }

void run_grid(const LaunchShape& shape, const std::function<void()>& thread) {
  if (emulator().running()) {
    end_process("a kernel launches a kernel");
  }
  emulator().run(shape, thread);
}

unsigned char* shared_memory() { return emulator().shared(); }
void sync_block() { emulator().sync_block(); }
bool sync_block_or(bool predicate) { return emulator().sync_block_or(predicate); }

uint64_t exchange(const char* name, uint64_t bits, int source) {
  const Slot own = {static_cast<uint32_t>(bits), static_cast<uint32_t>(bits >> 32U)};
  const Slot& other =
      emulator().exchange(name, own, [](Exchange&) {}).slots[static_cast<size_t>(source)];
  return static_cast<uint64_t>(other[1]) << 32U | other[0];
}

unsigned ballot(bool predicate) {
  const Exchange& votes =
      emulator().exchange("__ballot_sync", {predicate ? 1U : 0U}, [](Exchange&) {});
  unsigned bits = 0;
  for (size_t lane = 0; lane < kLanes; ++lane) {
    bits |= votes.slots[lane][0] << lane;
  }
  return bits;
}

void multiply_tiles(float* c, const uint32_t* a, const uint32_t* b) {
  const Exchange& exchange =
      emulator().exchange("mma", {a[0], a[1], a[2], a[3], b[0], b[1]},
                          [](Exchange& all) { multiply_slots(all.slots, all.products); });
  const TileProducts& products = exchange.products[threadIdx.x % kLanes];
  for (size_t i = 0; i < 4; ++i) {
    c[i] = static_cast<float>(c[i] + products[i]);
  }
}

void await_earlier_kernels() { emulator().awaited() = true; }

void check_awaited() {
  if (!emulator().awaited()) {
    end_process("thread " + std::to_string(threadIdx.x) +
                " ends without a call of await_earlier_kernels");
  }
}

void refuse_mask() { end_process("a warp instruction whose mask does not name all lanes"); }

bool is_sanitized() { return SPECDEC_FIBERS_ARE_SANITIZED != 0; }

}  // namespace specdec::cuda::emulation
