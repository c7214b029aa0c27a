#pragma once
#include <chrono>
#include <cstdint>

namespace specdec {

/// How many threads a team works with while other processes want the processor too. A thread that
/// is taken off its core in the middle of a tile keeps all others waiting, for as long as the
/// scheduler likes: milliseconds, where the tile takes microseconds. After such a job the team
/// works without as many threads as were late, for a pause of four times the time lost, which
/// doubles while it keeps happening: a single hiccup costs little, a busy neighbour little too.
class BackOff {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kShortest{8};
  static constexpr std::chrono::milliseconds kLongest{256};

  /// Number of threads, of `wanted` ones, to work with now.
  int64_t allowed(int64_t wanted, Clock::time_point now);
  /// Notes a job on `used` threads in which `late` of them kept the others waiting for the time
  /// `lost`.
  void note_late(int64_t used, int64_t late, Clock::duration lost, Clock::time_point now);
  bool active() const { return limit_ > 0; }

 private:
  int64_t limit_ = 0;  ///< 0 = none
  Clock::duration pause_{0};
  Clock::time_point until_;  ///< end of the newest pause
};

}  // namespace specdec
