#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/language_model.h"

namespace specdec {

/// The lower of the values in the middle; there has to be one.
double lower_median(std::vector<double> values);

/// How many threads a model is run with, and why.
struct ThreadChoice {
  int64_t threads = 1;
  std::string reason;  ///< "measured: 0.71 ms a step with 1 thread, 3.10 ms with 2"
};

/// One thread or `most`, whichever takes less time for a step. The two are timed in turns, so that
/// what else the machine does hits both, and compared by their medians; more threads have to be
/// faster by a tenth, because on a machine that becomes busy their steps wait for the slowest.
/// `time_step(threads)` runs one step and returns its seconds; it is called for at most some
/// `seconds`, but three times with each.
ThreadChoice choose_threads(int64_t most, const std::function<double(int64_t)>& time_step,
                            double seconds = 0.1);

/// Measures steps of an empty CPU model with one thread and with LibTorch's number, and sets the
/// better one for the process. Where there is nothing to choose (one thread, or OMP_NUM_THREADS is
/// set) it measures nothing and says so.
ThreadChoice measure_threads(LanguageModel& model);

}  // namespace specdec
