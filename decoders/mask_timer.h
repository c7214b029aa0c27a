#pragma once
#include <chrono>

namespace specdec {

/// Times the grammar's work on masks, wherever a step does it: while one lives, its thread's time
/// counts, once where several are nested.
class MaskTimer {
 public:
  MaskTimer();
  ~MaskTimer();
  MaskTimer(const MaskTimer&) = delete;
  MaskTimer& operator=(const MaskTimer&) = delete;

  /// Seconds of this thread's timers since the last call.
  static double take();

 private:
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace specdec
