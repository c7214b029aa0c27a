#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>

#include "core/error.h"

namespace specdec {

/// Compiling a grammar was ended from outside: its time was over, or it was cancelled.
class GrammarInterrupted final : public Error {
 public:
  using Error::Error;
};

/// Limit of the work of a thread: while one lives, `check` on its thread throws GrammarInterrupted
/// once its time is over or `cancelled` is true. Long work calls `check` where it may end: where
/// its limits are counted.
class Interruption {
 public:
  /// Begins now. `seconds` may be infinite, `cancelled` nullptr.
  Interruption(double seconds, const std::atomic<bool>* cancelled);
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  static void check();
  void look() const;

 private:
  void count();

  double seconds_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  const std::atomic<bool>* cancelled_;
  Interruption* outer_;
  uint64_t calls_ = 0;
};

}  // namespace specdec
