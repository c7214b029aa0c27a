#pragma once

namespace specdec {

/// Thrown where work stops because the user pressed Ctrl-C. No std::exception, so that nothing
/// takes it for an error.
struct Interrupted {};

/// While it lives, the first Ctrl-C (SIGINT, SIGTERM) only raises a flag; a second one kills as
/// usual. There is one at a time.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  static bool is_raised();
  /// Throws Interrupted when the flag is up.
  static void check();
};

}  // namespace specdec
