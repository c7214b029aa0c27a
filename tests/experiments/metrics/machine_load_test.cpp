#include "experiments/metrics/machine_load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "core/kernels/team.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using testing::Contains;
using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Optional;

/// A /proc whose counters a test sets.
class FakeProc {
 public:
  FakeProc() { std::filesystem::create_directories(folder_.path() / "self/task/1"); }
  const std::filesystem::path& path() const { return folder_.path(); }
  /// Seconds of all CPUs, in ticks; user holds the guests' time too.
  void set_stat(int64_t user, int64_t idle, int64_t steal) {
    const int64_t ticks = ::sysconf(_SC_CLK_TCK);
    folder_.write("stat", "cpu  " + std::to_string(user * ticks) + " 0 0 " +
                              std::to_string(idle * ticks) + " 0 0 0 " +
                              std::to_string(steal * ticks) + " 0 0\ncpu0 1 2 3\n");
  }
  void set_waited(int64_t seconds) {
    folder_.write("self/task/1/schedstat", "5 " + std::to_string(seconds) + "000000000 7\n");
  }
  void set_average(const char* text) { folder_.write("loadavg", text); }

 private:
  TemporaryFolder folder_;
};

TEST(MachineLoadTest, IsTheGrowthOfTheCounters) {
  FakeProc proc;
  proc.set_stat(100, 500, 3);
  proc.set_waited(2);
  proc.set_average("0.10 0.2 0.3 1/94 7\n");
  const LoadMeter meter(proc.path());
  proc.set_stat(107, 900, 5);
  proc.set_waited(6);
  proc.set_average("1.25 0.2 0.3 1/94 7\n");
  const MachineLoad load = meter.read();
  EXPECT_THAT(load.stolen_seconds, Optional(DoubleNear(2.0, 1e-9)));
  EXPECT_THAT(load.waited_seconds, Optional(DoubleNear(4.0, 1e-9)));
  EXPECT_THAT(load.others_seconds, Optional(DoubleNear(7.0, 0.5)));  // less this process' own
  EXPECT_THAT(load.average, Optional(1.25));
  EXPECT_TRUE(load.preemptions.has_value());
  EXPECT_GE(load.seconds, 0.0);
}

/// A job whose second thread, if it comes, keeps the caller waiting for far longer than tiles take.
void keep_waiting() {
  const auto caller = std::this_thread::get_id();
  std::atomic<bool> helped = false;
  Team::of_process().run(2, 1, 2, [&](int64_t, int64_t) {
    const auto patience = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
    if (std::this_thread::get_id() != caller) {
      helped = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(400));
    }
    while (!helped && std::chrono::steady_clock::now() < patience) {
      std::this_thread::yield();
    }
  });
}

TEST(MachineLoadTest, CountsBackOffsOfTheTeam) {
  const LoadMeter quiet;
  EXPECT_THAT(quiet.read().back_offs, Optional(0));
  for (int attempt = 0; attempt < 20; ++attempt) {
    const LoadMeter meter;
    keep_waiting();
    const auto found = meter.read().back_offs;
    ASSERT_TRUE(found.has_value());
    if (*found > 0) {
      EXPECT_EQ(*found, 1);
      EXPECT_THAT(LoadMeter().read().back_offs, Optional(0)) << "only those since it began";
      return;
    }
  }
  GTEST_SKIP() << "the machine is too busy to see it";
}

TEST(MachineLoadTest, WhatTheSystemDoesNotTellIsNone) {
  FakeProc proc;
  const MachineLoad empty = LoadMeter(proc.path()).read();
  EXPECT_EQ(empty.average, std::nullopt);
  EXPECT_EQ(empty.stolen_seconds, std::nullopt);
  EXPECT_EQ(empty.others_seconds, std::nullopt);
  EXPECT_EQ(empty.waited_seconds, std::nullopt);
  proc.set_stat(0, 0, 0);  // a sandbox that counts nothing
  EXPECT_EQ(LoadMeter(proc.path()).read().stolen_seconds, std::nullopt);
}

TEST(MachineLoadTest, OwnWorkIsNotThatOfOthers) {
  const LoadMeter meter;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
  volatile double sum = 0.0;
  while (std::chrono::steady_clock::now() < end) {
    sum = sum + 1.0;
  }
  const MachineLoad load = meter.read();
  EXPECT_GE(load.seconds, 0.3);
  if (load.others_seconds) {  // other processes may run beside the test, on every CPU
    EXPECT_GT(*load.others_seconds, -0.1);
    EXPECT_LT(*load.others_seconds,
              load.seconds * static_cast<double>(::sysconf(_SC_NPROCESSORS_ONLN)) + 0.1);
  }
}

TEST(MachineLoadTest, TotalsAreMeansOverTime) {
  LoadTotals totals;
  EXPECT_EQ(totals.average(), std::nullopt);
  totals.add({.seconds = 1.0, .average = 4.0, .stolen_seconds = 0.5, .preemptions = 6});
  totals.add({.seconds = 3.0, .average = 2.0, .stolen_seconds = 0.5, .back_offs = 6});
  EXPECT_EQ(totals.generations(), 2);
  EXPECT_THAT(totals.average(), Optional(2.5));
  EXPECT_THAT(totals.stolen(), Optional(0.25));
  EXPECT_THAT(totals.preemptions_per_second(), Optional(6.0)) << "of the time that counted them";
  EXPECT_EQ(totals.waited(), std::nullopt);
  EXPECT_THAT(totals.back_offs(), Optional(6));
  EXPECT_EQ(totals.backed_off(), 1);
}

std::vector<std::string> signs(const MachineLoad& load) {
  LoadTotals totals;
  totals.add(load);
  return signs_of_load(totals, 2, 1);
}

TEST(MachineLoadTest, AQuietMachineHasNoSigns) {
  EXPECT_THAT(signs_of_load({}, 2, 1), IsEmpty());
  EXPECT_THAT(signs({.seconds = 10.0,
                     .average = 1.4,
                     .stolen_seconds = 0.05,
                     .others_seconds = 0.5,
                     .waited_seconds = 0.1,
                     .back_offs = 0}),
              IsEmpty());
}

TEST(MachineLoadTest, EachSignIsSaid) {
  EXPECT_THAT(signs({.seconds = 10.0, .stolen_seconds = 1.0}),
              ElementsAre("the hypervisor took 10.0 % of a CPU away"));
  EXPECT_THAT(signs({.seconds = 10.0, .waited_seconds = 0.5}),
              ElementsAre("this program's threads waited 5.0 % of the time for a CPU"));
  EXPECT_THAT(signs({.seconds = 10.0, .others_seconds = 8.0}),
              ElementsAre("other processes used 0.80 of 2 CPUs"));
  EXPECT_THAT(signs({.seconds = 10.0, .average = 3.0}),
              ElementsAre("the load average was 3.0 on 2 CPUs"));
  EXPECT_THAT(signs({.seconds = 10.0, .back_offs = 5}),
              ElementsAre("threads that lost their CPU kept the others waiting 5 times, in 1 of 1 "
                          "generations, and kernels then ran with fewer threads for a while"));
}

}  // namespace
}  // namespace specdec
