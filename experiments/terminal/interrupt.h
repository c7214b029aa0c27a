#pragma once

namespace specdec {

/// Thrown where work stops because the user pressed Ctrl-C. No std::exception, so that nothing
/// takes it for an error.
struct Interrupted {};

/// Turns the first Ctrl-C (SIGINT, SIGTERM) into a flag while it lives; a second one kills as
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
