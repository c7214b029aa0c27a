#include "core/stopwatch.h"

#include <gtest/gtest.h>

#include <thread>

namespace specdec {
namespace {

void wait_a_little() { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }

TEST(StopwatchTest, CountsFromTheLastLap) {
  const Stopwatch whole;
  Stopwatch stopwatch;
  wait_a_little();
  const double before = stopwatch.seconds();
  EXPECT_GE(before, 0.002);
  const double lap = stopwatch.lap();
  EXPECT_GE(lap, before);
  const double after = stopwatch.seconds();
  EXPECT_LE(lap + after, whole.seconds()) << "a lap begins anew";
}

TEST(ScopedSecondsTest, AddsItsLifeToASum) {
  double seconds = 1.0;
  {
    const ScopedSeconds timer(&seconds);
    wait_a_little();
    EXPECT_EQ(seconds, 1.0) << "it is not over";
  }
  EXPECT_GE(seconds, 1.002);
  const ScopedSeconds nobody_asks(nullptr);
}

}  // namespace
}  // namespace specdec
