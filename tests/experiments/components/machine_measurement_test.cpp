#include "experiments/components/machine_measurement.h"

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <stdexcept>

#include "core/error.h"
#include "kv/paged_kv.h"
#include "tests/support/tiny_gemma.h"

namespace specdec {
namespace {

TEST(MachineMeasurementTest, AMedianWinsThatIsWorthwhile) {
  std::map<int64_t, double> seconds = {{1, 1.0}, {2, 0.95}, {4, 0.5}};
  std::vector<int64_t> calls;
  const auto time = [&](int64_t value) {
    calls.push_back(value);
    return seconds.at(value) * (calls.size() % 5 == 0 ? 10.0 : 1.0);  // an outlier now and then
  };
  const TurnOptions options{.rounds = 9, .seconds = 1e6, .worthwhile = 0.9};
  const TimedChoice choice = choose_in_turns({1, 2, 4}, time, options);
  EXPECT_EQ(choice.chosen, 4);
  EXPECT_EQ(choice.text(), "4 (1: 1e+03 ms, 2: 950 ms, 4: 500 ms)");
  EXPECT_EQ(calls.size(), 30U);  // one round to warm up
  EXPECT_EQ(std::vector<int64_t>(calls.begin(), calls.begin() + 4),
            (std::vector<int64_t>{1, 2, 4, 1}));
  EXPECT_EQ(choose_in_turns({1, 2}, time, options).chosen, 1);  // 5 % are not worth it
  seconds[2] = 0.8;
  EXPECT_EQ(choose_in_turns({1, 2}, time, options).chosen, 2);
}

TEST(MachineMeasurementTest, LongMeasurementsAreFew) {
  int64_t calls = 0;
  choose_in_turns({1, 2}, [&calls](int64_t) { return ++calls, 100.0; }, {.seconds = 1.0});
  EXPECT_EQ(calls, 8);  // three rounds and one to warm up
}

TEST(MachineMeasurementTest, MayBeInterrupted) {
  const TurnOptions options{.between = [] { throw std::runtime_error("stop"); }};
  EXPECT_THROW(choose_in_turns(
                   {1}, [](int64_t) { return 1.0; }, options),
               std::runtime_error);
}

TEST(MachineMeasurementTest, MeasuresAModelAndLeavesTheThreads) {
  const int threads = at::get_num_threads();
  at::set_num_threads(2);
  const auto weights = tiny_gemma(11);
  const auto found = measure_machine(weights, {.max_length = 64, .most_threads = 3});
  EXPECT_EQ(at::get_num_threads(), 2);
  at::set_num_threads(threads);
  for (const TimedChoice* choice : {&found.prefill_threads, &found.decode_threads}) {
    ASSERT_EQ(choice->candidates.size(), 3U);
    EXPECT_THAT(choice->chosen, testing::AnyOf(1, 2, 3));
    EXPECT_GT(choice->candidates[0].seconds, 0.0);
  }
  EXPECT_EQ(found.page_size.candidates.front().value, kDefaultPageSize);
  EXPECT_EQ(found.page_size.candidates.size(), 4U);
  EXPECT_THROW(measure_machine(weights, {.max_length = 4}), Error);
}

}  // namespace
}  // namespace specdec
