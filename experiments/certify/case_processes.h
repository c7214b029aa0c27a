#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace specdec {

/// What became of a case.
struct CaseOutcome {
  std::string answer = {};  ///< bytes that the case returned
  /// How it ended its process instead, in words; empty: it returned.
  std::string crash = {};
};

struct CaseProcessOptions {
  /// Time that a case may take; one that takes longer is ended. The clock stands while this program
  /// is stopped, as by Ctrl-Z.
  std::chrono::milliseconds limit{120'000};
};

/// Runs cases 0 .. count - 1 one after the other in a child process, forked from this one, so that
/// a segmentation fault, an abort, an exit or an endless loop ends one case alone: a new child goes
/// on with the next. `run` is called in the child, on one thread, and returns what `done` gets
/// here; an exception that leaves it ends the case like a crash. Files that a case leaves in the
/// temporary folder are removed at the end. Throws Interrupted after Ctrl-C, Error where no process
/// can be made.
void run_in_processes(int64_t count, const CaseProcessOptions& options,
                      const std::function<std::string(int64_t index)>& run,
                      const std::function<void(int64_t index, const CaseOutcome& result)>& done);

}  // namespace specdec
