#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/kernels/kv_view.h"
#include "core/transformer/transformer_model.h"

namespace specdec {

/// Which of some numbers was the fastest, and what each took.
struct TimedChoice {
  struct Candidate {
    int64_t value = 0;
    double seconds = 0.0;  ///< median
  };
  std::vector<Candidate> candidates;  ///< in the order of preference
  int64_t chosen = 0;

  /// "2 (1: 8.1 ms, 2: 4.6 ms)".
  std::string text() const;
};

struct TurnOptions {
  int64_t rounds = 7;
  double seconds = 2.0;     ///< begins no further round after so long, but takes three
  double worthwhile = 1.0;  ///< of a preferred candidate's time that another one must stay below
  std::function<void()> between = [] {};  ///< called before each measurement; may throw
};

/// Times the candidates in turns, each once to warm up, so that what else the machine does hits all
/// of them, and compares their medians; a later one is chosen where it is worthwhile.
/// `seconds_of(value)` measures one.
TimedChoice choose_in_turns(const std::vector<int64_t>& candidates,
                            const std::function<double(int64_t)>& seconds_of,
                            const TurnOptions& options);

/// What is fast for a model on this machine's CPU.
struct MachineMeasurement {
  TimedChoice prefill_threads, decode_threads;
  TimedChoice page_size;
};

struct MachineOptions {
  KvFormat format = KvFormat::kNative;  ///< of keys and values
  int64_t max_length = 0;
  int64_t most_threads = 1;
  std::function<void()> between = [] {};  ///< called before each measurement; may throw
};

/// Times prefills and steps with 1, 2, 4, ... threads up to the most, then steps with caches of
/// several page sizes. Leaves the number of threads as it was. Throws Error for a model that is too
/// short.
MachineMeasurement measure_machine(const std::shared_ptr<const TransformerWeights>& weights,
                                   const MachineOptions& options);

}  // namespace specdec
