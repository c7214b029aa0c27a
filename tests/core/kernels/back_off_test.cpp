#include "core/kernels/back_off.h"

#include <gtest/gtest.h>

namespace specdec {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class BackOffTest : public testing::Test {
 protected:
  void note(int64_t used, int64_t late, BackOff::Clock::time_point now,
            BackOff::Clock::duration lost = std::chrono::microseconds(100)) {
    back_off_.note_late(used, late, lost, now);
  }
  BackOff::Clock::time_point start_{seconds(100)};
  BackOff back_off_;
};

TEST_F(BackOffTest, AllowsAllUntilAThreadIsLate) {
  EXPECT_FALSE(back_off_.active());
  EXPECT_EQ(back_off_.allowed(16, start_), 16);
}

TEST_F(BackOffTest, WorksWithoutTheLateThreadsForAPause) {
  note(16, 2, start_);
  EXPECT_TRUE(back_off_.active());
  EXPECT_EQ(back_off_.allowed(16, start_ + milliseconds(7)), 14);
  EXPECT_EQ(back_off_.allowed(4, start_ + milliseconds(7)), 4);
  EXPECT_EQ(back_off_.allowed(16, start_ + milliseconds(8)), 16);
  EXPECT_FALSE(back_off_.active());
}

TEST_F(BackOffTest, OneThreadIsAlwaysLeft) {
  note(2, 2, start_);
  EXPECT_EQ(back_off_.allowed(2, start_), 1);
}

TEST_F(BackOffTest, PausesDoubleUpToALimitWhileThreadsStayLate) {
  auto now = start_;
  milliseconds pause = BackOff::kShortest;
  for (int i = 0; i < 12; ++i) {
    note(2, 1, now);
    EXPECT_EQ(back_off_.allowed(2, now + pause - milliseconds(1)), 1) << i;
    now += pause;
    EXPECT_EQ(back_off_.allowed(2, now), 2) << i;
    now += milliseconds(3);
    pause = std::min(2 * pause, BackOff::kLongest);
  }
}

TEST_F(BackOffTest, PausesAreFourTimesTheTimeLost) {
  note(2, 1, start_, milliseconds(5));
  EXPECT_EQ(back_off_.allowed(2, start_ + milliseconds(19)), 1);
  EXPECT_EQ(back_off_.allowed(2, start_ + milliseconds(20)), 2);
  note(2, 1, start_ + milliseconds(900), seconds(5));
  EXPECT_EQ(back_off_.allowed(2, start_ + milliseconds(900) + BackOff::kLongest), 2);
}

TEST_F(BackOffTest, PausesAreShortAgainAfterAQuietTime) {
  note(2, 1, start_);
  auto now = start_ + milliseconds(8);
  EXPECT_EQ(back_off_.allowed(2, now), 2);
  note(2, 1, now);  // 16 ms
  now += milliseconds(16);
  EXPECT_EQ(back_off_.allowed(2, now), 2);
  now += milliseconds(65);  // longer than four pauses
  note(2, 1, now);
  EXPECT_EQ(back_off_.allowed(2, now + milliseconds(7)), 1);
  EXPECT_EQ(back_off_.allowed(2, now + milliseconds(8)), 2);
}

}  // namespace
}  // namespace specdec
