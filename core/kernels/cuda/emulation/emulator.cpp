#include "core/kernels/cuda/emulation/emulator.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <utility>

#if SPECDEC_FIBERS_ARE_SANITIZED
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace specdec::cuda::emulation {

constinit thread_local Index threadIdx, blockIdx, gridDim;

namespace {

constexpr size_t kStackBytes = size_t{128} << 10U;
/// Bytes of a stack, below its staggered end, that hold the frames that a fiber does not return
/// from.
constexpr size_t kFirstFrames = size_t{16} << 10U;
constexpr size_t kStagger = 192;
constexpr unsigned kMaxThreads = 1024;
constexpr unsigned kMaxSharedBytes = 227U << 10U;  // of an sm_90 block
constexpr int kPoison = 0xFF;                      // a float32 and a float64 of such bytes is NaN
constexpr const char* kBarrier = "__syncthreads";
constexpr const char* kClusterBarrier = "sync_cluster";
constexpr const char* kEarlierKernels = "await_earlier_kernels";

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

}  // namespace

void end_process(const std::string& message) {
  std::fprintf(stderr, "CUDA emulation: block (%u, %u, %u): %s\n", blockIdx.x, blockIdx.y,
               blockIdx.z, message.c_str());
  std::abort();
}

void Emulator::take(const LaunchShape& shape, std::function<void()> thread) {
  const uint64_t count = uint64_t{shape.grid_x} * shape.grid_y * shape.grid_z;
  if (count == 0 || shape.threads == 0 || shape.threads > kMaxThreads ||
      shape.threads % kLanes != 0 || shape.shared_bytes > kMaxSharedBytes || shape.grid_y > 65535 ||
      shape.grid_z > 65535 || shape.cluster == 0 || shape.cluster > kMaxCluster ||
      shape.grid_x % shape.cluster != 0) {
    end_process("a launch of " + std::to_string(count) + " blocks of " +
                std::to_string(shape.threads) + " threads with " +
                std::to_string(shape.shared_bytes) + " bytes of shared memory, in clusters of " +
                std::to_string(shape.cluster));
  }
  shape_ = shape;
  thread_ = std::move(thread);
  clusters_.resize(count / shape.cluster);
  std::iota(clusters_.begin(), clusters_.end(), 0);
  for (size_t left = clusters_.size(); left > 1; --left) {
    std::swap(clusters_[order_.pick(left)], clusters_[left - 1]);
  }
}

void Emulator::begin() {
  has_begun_ = true;
  early_ = true;
  place(clusters_.front());
  make_cluster();
  for (Warp& warp : warps_) {
    warp.ready = &warp == &warps_[favourite_] ? kAllLanes : 0;
  }
  switch_strands(&caller_, next());
}

void Emulator::finish() {
  early_ = false;
  const bool resumes = std::exchange(has_begun_, false);
  for (const uint64_t cluster : clusters_) {
    place(cluster);
    if (resumes && cluster == clusters_.front()) {
      resume_cluster();
    } else {
      run_cluster();
    }
  }
}

void Emulator::place(uint64_t cluster) {
  gridDim = {shape_.grid_x, shape_.grid_y, shape_.grid_z};
  const uint64_t block = cluster * shape_.cluster;
  first_block_ = {static_cast<unsigned>(block % shape_.grid_x),
                  static_cast<unsigned>(block / shape_.grid_x % shape_.grid_y),
                  static_cast<unsigned>(block / shape_.grid_x / shape_.grid_y)};
}

void Emulator::make_cluster() {
  cluster_.resize(shape_.cluster);
  for (Block& block : cluster_) {
    block.shared = std::make_unique_for_overwrite<unsigned char[]>(shape_.shared_bytes);
    std::memset(block.shared.get(), kPoison, shape_.shared_bytes);
    block.running = shape_.threads;
    block.at_barrier = 0;
    block.vote = false;
  }
  warps_.resize(threads() / kLanes);
  for (Warp& warp : warps_) {
    warp.arrived = 0;
    warp.ready = kAllLanes;
  }
  at_cluster_barrier_ = 0;
  if (fibers_.size() < threads()) {
    fibers_.resize(threads());
  }
  for (unsigned t = 0; t < threads(); ++t) {
    begin(fibers_[t], t);
  }
  favourite_ = order_.pick(warps_.size());
  running_ = threads();
}

void Emulator::run_cluster() {
  make_cluster();
  switch_strands(&caller_, next());
}

/// Lets threads run that have not begun, or wait for earlier kernels.
void Emulator::resume_cluster() {
  for (unsigned t = 0; t < threads(); ++t) {
    const Fiber& fiber = fibers_[t];
    if (!fiber.done && (fiber.waits_at == nullptr || fiber.waits_at == kEarlierKernels)) {
      warp_of(fiber).ready |= 1U << t % kLanes;
    }
  }
  if (running_ > 0) {
    switch_strands(&caller_, next());
  }
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

/// Makes a fiber that can run the current one, and returns its strand; that of the caller where
/// none can before earlier kernels have ended.
const Strand& Emulator::next() {
  Fiber* fiber = pick_ready();
  if (fiber != nullptr) {
    start(*fiber);
    return fiber->strand;
  }
  if (!early_) {
    report_missing();
  }
  return caller_;
}

/// Of no thread: nullptr.
Fiber* Emulator::pick_ready() {
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
      return &fiber;
    }
    favourite_ = favourite_ + 1 == warps_.size() ? 0 : favourite_ + 1;
  }
  return nullptr;
}

/// Makes a fiber the one that runs next.
void Emulator::start(Fiber& fiber) {
  current_ = &fiber;
  threadIdx = {fiber.thread % shape_.threads, 0, 0};
  blockIdx = {first_block_.x + block_of(fiber), first_block_.y, first_block_.z};
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
  self.thread_();
  self.current_->done = true;
  --self.own_block().running;
  if (--self.running_ == 0) {
    self.switch_strands(nullptr, self.caller_);
  }
  self.switch_strands(nullptr, self.next());
}

/// Lets others run, until this fiber is ready again.
void Emulator::wait(const char* name) {
  Fiber& fiber = *current_;
  fiber.waits_at = name;
  const Strand& after = next();
  if (&after != &fiber.strand) {
    switch_strands(&fiber.strand, after);
  }
  fiber.waits_at = nullptr;
}

void Emulator::await_earlier_kernels() {
  current_->awaited = true;
  if (early_) {
    wait(kEarlierKernels);
  }
}

void Emulator::sync_block() {
  Block& block = own_block();
  if (++block.at_barrier == shape_.threads) {
    block.at_barrier = 0;
    block.last_vote = block.vote;
    block.vote = false;
    const unsigned warps = shape_.threads / kLanes;
    const auto first = warps_.begin() + static_cast<std::ptrdiff_t>(block_of(*current_) * warps);
    std::for_each_n(first, warps, [](Warp& warp) {  // this thread's is no nearer to running on
      warp.ready = kAllLanes;
    });
  }
  wait(kBarrier);
}

bool Emulator::sync_block_or(bool predicate) {
  Block& block = own_block();
  block.vote = block.vote || predicate;
  sync_block();
  return block.last_vote;
}

void Emulator::sync_cluster() {
  if (++at_cluster_barrier_ == threads()) {
    at_cluster_barrier_ = 0;
    for (Warp& warp : warps_) {
      warp.ready = kAllLanes;
    }
  }
  wait(kClusterBarrier);
}

const unsigned char* Emulator::shared_of(const unsigned char* own, unsigned block) {
  const std::ptrdiff_t place = own - shared();
  if (block >= shape_.cluster || place < 0 || place >= shape_.shared_bytes) {
    end_process("byte " + std::to_string(place) + " of block " + std::to_string(block) +
                " of a cluster of " + std::to_string(shape_.cluster) + " is read");
  }
  if (cluster_[block].running == 0) {
    end_process("the shared memory of block " + std::to_string(block) +
                " of the cluster is read, whose threads have ended");
  }
  return cluster_[block].shared.get() + place;
}

bool Emulator::is_ready(const Fiber& fiber) const {
  return (warps_[fiber.thread / kLanes].ready >> fiber.thread % kLanes & 1U) != 0;
}

std::string Emulator::state_of(const Fiber& fiber) const {
  std::string name = "thread " + std::to_string(fiber.thread % shape_.threads);
  if (shape_.cluster > 1) {
    name += " of block " + std::to_string(block_of(fiber)) + " of the cluster";
  }
  if (fiber.done) {
    return name + " has ended";
  }
  return fiber.waits_at == nullptr || is_ready(fiber) ? name + " can run"
                                                      : name + " waits at " + fiber.waits_at;
}

/// All threads wait or have ended: some never come to where others wait.
void Emulator::report_missing() const {
  // How many threads a thread waits for: those of its cluster, block or warp; 0 = none.
  const auto awaited = [&](const Fiber& fiber) -> size_t {
    if (fiber.done || fiber.waits_at == nullptr) {
      return 0;
    }
    return fiber.waits_at == kClusterBarrier ? threads()
           : fiber.waits_at == kBarrier      ? shape_.threads
                                             : kLanes;
  };
  // The missing thread is among the fewest that any waits for.
  const auto end = fibers_.begin() + threads();
  const auto waiting = std::min_element(fibers_.begin(), end, [&](const Fiber& a, const Fiber& b) {
    return awaited(a) - 1 < awaited(b) - 1;  // none is more than any
  });
  const size_t count = awaited(*waiting);
  const auto first = fibers_.begin() + static_cast<std::ptrdiff_t>(waiting->thread / count * count);
  const auto last = first + static_cast<std::ptrdiff_t>(count);
  const auto missing = std::find_if(first, last, [&](const Fiber& fiber) {
    return fiber.done || fiber.waits_at != waiting->waits_at;
  });
  end_process(state_of(*waiting) + ", but " +
              (missing == last ? "others do not come" : state_of(*missing)));
}

}  // namespace specdec::cuda::emulation
