#include "core/kernels/team.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace specdec {
namespace {

using Clock = BackOff::Clock;

/// Work that is worth a second thread, and the least that is worth a claim.
constexpr double kSharedNanoseconds = 6000.0;
constexpr double kClaimNanoseconds = 4000.0;

/// Pauses of the processor before a waiting thread sleeps: some 50 us.
constexpr int kSpins = 1500;

/// A job waited too long for a thread: longer than this, and than some claims take.
constexpr std::chrono::microseconds kLate{300};
constexpr int64_t kLateClaims = 4;

void pause_processor() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

/// Spins while `value` is `old`; whether it still is.
bool spin_while(const std::atomic<int>& value, int old) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (value != old) {
      return false;
    }
    pause_processor();
  }
  return true;
}

}  // namespace

/// The tiles of one call, and how many have been claimed.
struct Team::Job {
  int64_t tiles;
  int64_t grain;
  TileBody body;
  int64_t threads = 1;  ///< that work on them
  std::atomic<int64_t> next = 0;
  std::atomic<bool> failed = false;
  std::exception_ptr error{};  ///< set by the thread that set `failed`

  struct Claim {
    int64_t begin, end;
  };

  /// Guided self-scheduling (Polychronopoulos and Kuck, 1987): half of a thread's share of what is
  /// left, but at least a grain; empty when nothing is left. Large chunks keep reads of memory
  /// sequential, small ones at the end let the threads end together.
  Claim claim() {
    int64_t begin = next;
    int64_t end = 0;
    do {
      if (begin >= tiles) {
        return {tiles, tiles};
      }
      end = std::min(tiles, begin + std::max(grain, (tiles - begin) / (2 * threads)));
    } while (!next.compare_exchange_weak(begin, end));
    return {begin, end};
  }

  /// Runs tiles until all are claimed; returns how many claims that were.
  int64_t work() {
    int64_t claims = 0;
    try {
      for (Claim mine = claim(); mine.begin < mine.end; mine = claim(), ++claims) {
        body(mine.begin, mine.end);
      }
    } catch (...) {
      next = tiles;
      if (!failed.exchange(true)) {
        error = std::current_exception();
      }
    }
    return claims;
  }
};

/// A thread beside the callers'. Its state says whose move it is: the caller turns kIdle into
/// kInvited; then either the thread turns that into kWorking and at last into kIdle, or the caller
/// takes its invitation back. So no job waits for a thread that has not begun.
class Team::Worker {
 public:
  Worker() : thread_([this] { live(); }) {}
  ~Worker() {
    state_ = kEnding;
    wake();
    thread_.join();
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void invite(Job& job) {
    job_ = &job;
    state_ = kInvited;
    wake();
  }

  /// Ends the worker's part in the job. Returns whether the caller slept until then.
  bool finish() {
    int expected = kInvited;
    if (state_.compare_exchange_strong(expected, kIdle) || !spin_while(state_, kWorking)) {
      return false;
    }
    state_.wait(kWorking);
    return true;
  }

 private:
  enum State : int { kIdle, kInvited, kWorking, kEnding };

  /// Once for each time it fell asleep, however often it is invited until it comes: on a busy
  /// machine each call would cost more than a small job.
  void wake() {
    if (asleep_.exchange(false)) {
      ++wakes_;
      wakes_.notify_one();
    }
  }

  void wait_for_change() {
    while (spin_while(state_, kIdle)) {
      const int wakes = wakes_;
      asleep_ = true;
      if (state_ == kIdle) {  // who changes it from now on sees that it has to wake this thread
        wakes_.wait(wakes);
      }
      asleep_ = false;
    }
  }

  void live() {
    for (;;) {
      wait_for_change();
      int expected = kInvited;
      if (state_.compare_exchange_strong(expected, kWorking)) {
        job_->work();
        state_ = kIdle;
        state_.notify_one();
      } else if (expected == kEnding) {
        return;
      }
    }
  }

  std::atomic<int> state_ = kIdle;
  std::atomic<bool> asleep_ = false;
  std::atomic<int> wakes_ = 0;
  Job* job_ = nullptr;  ///< the caller's while kIdle, the worker's while kWorking
  std::thread thread_;  ///< started last
};

Team::Team() = default;
Team::~Team() = default;

Team& Team::of_process() {
  static Team& team = *new Team;
  return team;
}

void Team::run(int64_t tiles, int64_t grain, int64_t threads, TileBody body) {
  if (tiles <= 0) {
    return;
  }
  const int64_t claims = (tiles + grain - 1) / grain;
  if (threads <= 1 || claims <= 1 || at_work_.exchange(true)) {
    body(0, tiles);
    return;
  }
  Job job{tiles, grain, body};
  run_shared(job, std::min(threads, claims));
  at_work_ = false;
  if (job.error) {
    std::rethrow_exception(job.error);
  }
}

int64_t Team::start_workers(int64_t wanted) {
  try {
    while (std::ssize(workers_) < wanted) {
      workers_.push_back(std::make_unique<Worker>());
    }
  } catch (const std::exception&) {  // the system has no more threads: those there are do it all
  }
  return std::min<int64_t>(wanted, std::ssize(workers_));
}

void Team::run_shared(Job& job, int64_t threads) {
  if (back_off_.active()) {
    threads = back_off_.allowed(threads, Clock::now());
  }
  const std::span helpers(workers_.data(), static_cast<size_t>(start_workers(threads - 1)));
  if (helpers.empty()) {
    job.grain = job.tiles;
    job.work();
    return;
  }
  ++jobs_;
  job.threads = std::ssize(helpers) + 1;
  work_together(job, helpers);
}

void Team::work_together(Job& job, std::span<const std::unique_ptr<Worker>> helpers) {
  for (const auto& worker : helpers) {
    worker->invite(job);
  }
  const Clock::time_point begin = Clock::now();
  const int64_t claims = job.work();
  const Clock::time_point claimed = Clock::now();
  int64_t slow = 0;
  for (const auto& worker : helpers) {
    slow += worker->finish() ? 1 : 0;
  }
  if (slow == 0) {
    return;
  }
  const Clock::time_point end = Clock::now();
  const Clock::duration usual = kLateClaims * (claimed - begin) / std::max<int64_t>(1, claims);
  if (end - claimed > std::max<Clock::duration>(kLate, usual)) {
    ++late_jobs_;
    back_off_.note_late(std::ssize(helpers) + 1, slow, end - claimed, end);
  }
}

void parallel_tiles(int64_t tiles, int64_t grain, TileBody body) {
  Team::of_process().run(tiles, grain, grain < tiles ? at::get_num_threads() : 1, body);
}

int64_t tile_grain(int64_t tiles, double nanoseconds_each) {
  if (static_cast<double>(tiles) * nanoseconds_each < kSharedNanoseconds) {
    return std::max<int64_t>(1, tiles);
  }
  return std::max<int64_t>(1, static_cast<int64_t>(kClaimNanoseconds / nanoseconds_each));
}

}  // namespace specdec
