#pragma once
#include <atomic>
#include <concepts>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "core/kernels/back_off.h"

namespace specdec {

/// What a team runs: body(begin, end) does the tiles begin to end - 1. Refers to a callable, which
/// has to outlive it; nothing is allocated.
class TileBody {
 public:
  template <class Body>
  requires(!std::same_as<std::remove_cvref_t<Body>, TileBody>)
      TileBody(const Body& body)  // NOLINT(google-explicit-constructor)
      : body_(&body), call_([](const void* erased, int64_t begin, int64_t end) {
          (*static_cast<const Body*>(erased))(begin, end);
        }) {}
  void operator()(int64_t begin, int64_t end) const { call_(body_, begin, end); }

 private:
  const void* body_;
  void (*call_)(const void*, int64_t, int64_t);
};

/// Runs all tiles 0 .. tiles - 1, each once, on as many threads as at::get_num_threads() says, and
/// returns when they are done. Tiles are not assigned but claimed, many at a time at first, then
/// fewer, at last `grain`, so a thread that comes late or works slowly does less; results must not
/// depend on who does what. Where there is one grain, one thread, or the team is at work already
/// (for another caller, or for the caller's own caller), the caller does all of them. An exception
/// of the body is rethrown after the others are through with their tiles; those not yet claimed are
/// dropped.
void parallel_tiles(int64_t tiles, int64_t grain, TileBody body);

/// The grain for tiles of some estimated work each: all of them where they are not worth a second
/// thread, else so many that claiming them costs little and that memory is read sequentially.
int64_t tile_grain(int64_t tiles, double nanoseconds_each);

/// The persistent threads behind parallel_tiles, one team a process. They are started when a job
/// first wants them, and wait for the next one by spinning for some 50 us, then asleep.
class Team {
 public:
  Team();
  /// Ends the threads; no job may be running.
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  /// The one that all kernels share. Never destroyed: at exit its threads sleep.
  static Team& of_process();

  /// See parallel_tiles; on at most `threads` threads, the caller included.
  void run(int64_t tiles, int64_t grain, int64_t threads, TileBody body);

  /// Jobs so far that were offered to more threads than the caller's.
  int64_t jobs() const { return jobs_; }
  /// Jobs among jobs() that waited for a thread much longer than tiles take.
  int64_t late_jobs() const { return late_jobs_; }

 private:
  struct Job;
  class Worker;

  void run_shared(Job& job, int64_t threads);
  /// How many of the wanted workers there are.
  int64_t start_workers(int64_t wanted);
  /// Asks the workers for help with a job, and does it.
  void work_together(Job& job, std::span<const std::unique_ptr<Worker>> helpers);

  std::atomic<bool> at_work_ = false;  ///< guards all that follows
  std::vector<std::unique_ptr<Worker>> workers_;
  BackOff back_off_;
  std::atomic<int64_t> jobs_ = 0;
  std::atomic<int64_t> late_jobs_ = 0;
};

}  // namespace specdec
