#include "experiments/components/machine_measurement.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/kernels/threads_during.h"
#include "core/prefill_size.h"
#include "core/stopwatch.h"
#include "experiments/components/thread_choice.h"
#include "kv/paged_kv.h"

namespace specdec {
namespace {

constexpr int64_t kLeastRounds = 3;
constexpr int64_t kPromptTokens = 256;
constexpr int64_t kContext = 512;   ///< of steps whose pages are read
constexpr int64_t kStepTokens = 5;  ///< of a speculative step: a token and a short draft
constexpr double kWorthThreads = 0.9;
constexpr double kWorthPages = 0.97;
constexpr int64_t kPageSizes[] = {kDefaultPageSize, 32, 64, 128};

double seconds_of_call(const std::function<void()>& call) {
  const Stopwatch stopwatch;
  call();
  return stopwatch.seconds();
}

/// Feeds tokens to row 0.
void feed(LanguageModel& model, int64_t count) {
  model.forward({.tokens = token_tensor(std::vector<Token>(static_cast<size_t>(count), 0))});
}

/// 1, 2, 4, ... and `most`.
std::vector<int64_t> thread_counts(int64_t most) {
  std::vector<int64_t> counts;
  for (int64_t threads = 1; threads < most; threads *= 2) {
    counts.push_back(threads);
  }
  counts.push_back(most);
  return counts;
}

/// The best number of threads for forwards of `tokens` tokens on an empty row.
TimedChoice time_threads(LanguageModel& model, int64_t tokens, const MachineOptions& options) {
  return choose_in_turns(thread_counts(options.most_threads),
                         [&](int64_t threads) {
                           const ThreadsDuring during(threads);
                           const double seconds = seconds_of_call([&] { feed(model, tokens); });
                           model.truncate(0);
                           return seconds;
                         },
                         {.worthwhile = kWorthThreads, .between = options.between});
}

}  // namespace

std::string TimedChoice::text() const {
  std::vector<std::string> times;
  for (const Candidate& candidate : candidates) {
    times.push_back(fmt::format("{}: {:.3g} ms", candidate.value, 1e3 * candidate.seconds));
  }
  return fmt::format("{} ({})", chosen, fmt::join(times, ", "));
}

TimedChoice choose_in_turns(const std::vector<int64_t>& candidates,
                            const std::function<double(int64_t)>& seconds_of,
                            const TurnOptions& options) {
  SPECDEC_CHECK(!candidates.empty(), "choose_in_turns: no candidates");
  std::vector<std::vector<double>> times(candidates.size());
  double spent = 0.0;
  for (int64_t round = -1; round < options.rounds; ++round) {
    if (round >= kLeastRounds && spent >= options.seconds) {
      break;
    }
    for (size_t i = 0; i < candidates.size(); ++i) {
      options.between();
      const double seconds = seconds_of(candidates[i]);
      spent += seconds;
      if (round >= 0) {
        times[i].push_back(seconds);
      }
    }
  }
  TimedChoice choice;
  double best = 0.0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    choice.candidates.push_back({candidates[i], lower_median(times[i])});
    if (i == 0 || choice.candidates[i].seconds < options.worthwhile * best) {
      choice.chosen = candidates[i];
      best = choice.candidates[i].seconds;
    }
  }
  return choice;
}

MachineMeasurement measure_machine(const std::shared_ptr<const TransformerWeights>& weights,
                                   const MachineOptions& options) {
  const int64_t longest = options.max_length;
  if (longest <= kStepTokens) {
    throw Error(fmt::format("a model of {} tokens is too short to be measured", longest));
  }
  const auto make = [&](int64_t page_size) {
    return std::make_unique<TransformerModel>(weights, paged_kv(page_size, options.format),
                                              TransformerOptions{.max_length = longest});
  };
  // Formats that round keys of several tokens together have pages of whole groups.
  const int64_t group = kv_key_group(options.format);
  const auto model = make(std::max(kDefaultPageSize, group));
  MachineMeasurement found;
  found.prefill_threads = time_threads(*model, std::min(kPromptTokens, longest), options);
  found.decode_threads = time_threads(*model, kStepTokens, options);

  const ThreadsDuring during(found.decode_threads.chosen);
  const int64_t context = std::min(kContext, longest - kStepTokens);
  std::map<int64_t, std::unique_ptr<TransformerModel>> paged;
  std::vector<int64_t> sizes;
  std::copy_if(std::begin(kPageSizes), std::end(kPageSizes), std::back_inserter(sizes),
               [group](int64_t size) { return size % group == 0; });
  for (const int64_t size : sizes) {
    paged[size] = make(size);
    paged[size]->prefill_get_last_logits(std::vector<Token>(static_cast<size_t>(context), 0));
  }
  found.page_size = choose_in_turns(
      sizes,
      [&](int64_t size) {
        const double seconds = seconds_of_call([&] { feed(*paged.at(size), kStepTokens); });
        paged.at(size)->truncate(context);
        return seconds;
      },
      {.rounds = 21, .worthwhile = kWorthPages, .between = options.between});
  return found;
}

}  // namespace specdec
