#include "experiments/components/thread_choice.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "core/stopwatch.h"

namespace specdec {
namespace {

constexpr size_t kMinRounds = 3;
constexpr size_t kMaxRounds = 15;
constexpr double kWorthwhile = 0.9;  // of one thread's time
constexpr int64_t kDraftNodes = 4;

/// What a speculative step costs the target: a token and a short draft.
void run_step(LanguageModel& model) {
  const std::vector<Token> tokens(static_cast<size_t>(1 + kDraftNodes), 0);
  const TokenSpan all = tokens;
  model.forward({.tokens = token_tensor(all.first(1))});
  model.forward({.tokens = token_tensor(all.subspan(1))});
  model.truncate(0);
}

}  // namespace

double lower_median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

ThreadChoice choose_threads(int64_t most, const std::function<double(int64_t)>& time_step,
                            double seconds) {
  std::vector<double> one;
  std::vector<double> all;
  double spent = time_step(most) + time_step(1);  // threads are started, memory is reserved
  while (one.size() < kMinRounds || (one.size() < kMaxRounds && spent < seconds)) {
    all.push_back(time_step(most));
    one.push_back(time_step(1));
    spent += all.back() + one.back();
  }
  const double one_time = lower_median(one);
  const double all_time = lower_median(all);
  return {all_time < kWorthwhile * one_time ? most : 1,
          fmt::format("measured: {:.3g} ms a step with 1 thread, {:.3g} ms with {}", 1e3 * one_time,
                      1e3 * all_time, most)};
}

ThreadChoice measure_threads(LanguageModel& model) {
  const int64_t most = at::get_num_threads();
  if (most == 1) {
    return {1, "the machine has one"};
  }
  if (std::getenv("OMP_NUM_THREADS") != nullptr) {
    return {most, "OMP_NUM_THREADS"};
  }
  if (model.max_length() < 1 + kDraftNodes) {
    return {most, "LibTorch's; the model is too short to be measured"};
  }
  // No inference mode: what the model reserves here is used outside of it too.
  const ThreadChoice choice = choose_threads(most, [&model](int64_t threads) {
    at::set_num_threads(static_cast<int>(threads));
    const Stopwatch stopwatch;
    run_step(model);
    return stopwatch.seconds();
  });
  at::set_num_threads(static_cast<int>(choice.threads));
  return choice;
}

}  // namespace specdec
