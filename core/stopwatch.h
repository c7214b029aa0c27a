#pragma once
#include <chrono>
#include <utility>

namespace specdec {

/// Measures seconds by a clock that never goes back.
class Stopwatch {
 public:
  /// Since it was made, or since the last lap.
  double seconds() const { return between(begin_, Clock::now()); }
  /// The same, and begins anew.
  double lap() {
    const Clock::time_point now = Clock::now();
    return between(std::exchange(begin_, now), now);
  }

 private:
  using Clock = std::chrono::steady_clock;
  static double between(Clock::time_point begin, Clock::time_point end) {
    return std::chrono::duration<double>(end - begin).count();
  }

  Clock::time_point begin_ = Clock::now();
};

/// Adds the seconds of its life to a sum.
class ScopedSeconds {
 public:
  /// nullptr = nobody asks.
  explicit ScopedSeconds(double* sum) : sum_(sum) {}
  ~ScopedSeconds() {
    if (sum_ != nullptr) {
      *sum_ += stopwatch_.seconds();
    }
  }
  ScopedSeconds(const ScopedSeconds&) = delete;
  ScopedSeconds& operator=(const ScopedSeconds&) = delete;

 private:
  double* sum_;
  Stopwatch stopwatch_;
};

}  // namespace specdec
