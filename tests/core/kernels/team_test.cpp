#include "core/kernels/team.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

namespace specdec {
namespace {

using std::chrono::milliseconds;

/// Waits until `count` is reached; false when it is not within some seconds.
bool reaches(const std::atomic<int>& count, int wanted, milliseconds limit = milliseconds(5000)) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (count < wanted) {
    if (std::chrono::steady_clock::now() > end) {
      return false;
    }
    std::this_thread::yield();
  }
  return true;
}

bool arrive(std::atomic<int>& count, int wanted, milliseconds limit = milliseconds(5000)) {
  ++count;
  return reaches(count, wanted, limit);
}

std::vector<int> times_done(Team& team, int64_t tiles, int64_t grain, int64_t threads) {
  std::vector<int> times(static_cast<size_t>(tiles));
  team.run(tiles, grain, threads, [&](int64_t begin, int64_t end) {
    EXPECT_LT(begin, end);
    for (int64_t i = begin; i < end; ++i) {
      ++times.at(static_cast<size_t>(i));  // not atomic: tiles are nobody else's
    }
  });
  return times;
}

TEST(TeamTest, EveryTileIsDoneOnceWhateverSizesAndThreads) {
  Team team;
  for (const int64_t threads : {1, 2, 3, 8}) {
    for (const int64_t tiles : {0, 1, 2, 7, 64, 1000}) {
      for (const int64_t grain : {1, 2, 3, 100, 5000}) {
        EXPECT_EQ(times_done(team, tiles, grain, threads),
                  std::vector<int>(static_cast<size_t>(tiles), 1))
            << tiles << " tiles by " << grain << " on " << threads;
      }
    }
  }
}

TEST(TeamTest, ClaimsShrinkToTheGrain) {
  Team team;
  std::mutex mutex;
  std::map<int64_t, int64_t> claims;  // begin: tiles
  team.run(60, 4, 2, [&](int64_t begin, int64_t end) {
    const std::lock_guard lock(mutex);
    claims.emplace(begin, end - begin);
  });
  // A quarter of what is left: half of each thread's share.
  EXPECT_EQ(claims,
            (std::map<int64_t, int64_t>{
                {0, 15}, {15, 11}, {26, 8}, {34, 6}, {40, 5}, {45, 4}, {49, 4}, {53, 4}, {57, 3}}));
}

TEST(TeamTest, ThreadsWorkAtTheSameTime) {
  Team team;
  std::atomic<int> begun = 0;
  std::atomic<bool> together = true;
  team.run(3, 1, 3, [&](int64_t, int64_t) {
    if (!arrive(begun, 3)) {
      together = false;
    }
  });
  EXPECT_TRUE(together);
}

TEST(TeamTest, StartsNoThreadForOneClaimOrOneThread) {
  Team team;
  const auto caller = std::this_thread::get_id();
  const auto in_caller = [&](int64_t, int64_t) { EXPECT_EQ(std::this_thread::get_id(), caller); };
  team.run(100, 100, 8, in_caller);
  team.run(100, 1, 1, in_caller);
  EXPECT_EQ(team.jobs(), 0);
}

TEST(TeamTest, ExceptionsReachTheCallerAndTheTeamWorksOn) {
  Team team;
  for (int64_t bad = 0; bad < 40; ++bad) {
    const auto body = [&](int64_t begin, int64_t end) {
      if (begin <= bad && bad < end) {  // all at once where the team backs off
        throw std::runtime_error("tile " + std::to_string(bad));
      }
    };
    try {
      team.run(40, 1, 3, body);
      ADD_FAILURE() << "no exception from tile " << bad;
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(error.what(), "tile " + std::to_string(bad));
    }
  }
  EXPECT_EQ(times_done(team, 40, 1, 3), std::vector<int>(40, 1));
}

TEST(TeamTest, OneOfManyExceptionsReachesTheCaller) {
  Team team;
  EXPECT_THROW(team.run(100, 1, 4, [](int64_t, int64_t) { throw std::runtime_error("all"); }),
               std::runtime_error);
}

TEST(TeamTest, NestedCallsRunInTheirCaller) {
  Team team;
  std::atomic<int> inner = 0;
  std::atomic<bool> same_thread = true;
  team.run(8, 1, 3, [&](int64_t, int64_t) {
    const auto outer = std::this_thread::get_id();
    team.run(8, 1, 3, [&](int64_t begin, int64_t end) {
      inner += static_cast<int>(end - begin);
      if (std::this_thread::get_id() != outer) {
        same_thread = false;
      }
    });
  });
  EXPECT_EQ(inner, 64);
  EXPECT_TRUE(same_thread);
}

TEST(TeamTest, TwoCallersGetAllTheirTiles) {
  Team team;
  const auto call = [&] {
    for (int i = 0; i < 2000; ++i) {
      EXPECT_EQ(times_done(team, 7, 2, 2), std::vector<int>(7, 1));
    }
  };
  std::thread other(call);
  call();
  other.join();
}

TEST(TeamTest, ThousandsOfTinyJobsOnMoreThreadsThanCoresEnd) {
  Team team;
  const int64_t threads = 4 * static_cast<int64_t>(std::thread::hardware_concurrency());
  std::atomic<int64_t> done = 0;
  for (int i = 0; i < 5000; ++i) {
    team.run(2 * threads, 1, threads, [&](int64_t begin, int64_t end) { done += end - begin; });
  }
  EXPECT_EQ(done, 5000 * 2 * threads);
}

TEST(TeamTest, AThreadThatIsAsleepIsWoken) {
  Team team;
  for (int i = 0; i < 3 && team.late_jobs() == 0; ++i) {
    std::atomic<int> begun = 0;
    team.run(2, 1, 2, [&](int64_t, int64_t) { EXPECT_TRUE(arrive(begun, 2)); });
    std::this_thread::sleep_for(milliseconds(2));  // longer than threads spin
  }
}

TEST(TeamTest, ASecondCallerIsNotKeptWaiting) {
  Team team;
  std::atomic<int> begun = 0;
  std::atomic<bool> release = false;
  std::thread first([&] {
    team.run(2, 1, 2, [&](int64_t, int64_t) {
      ++begun;
      while (!release) {
        std::this_thread::yield();
      }
    });
  });
  EXPECT_TRUE(reaches(begun, 2));
  EXPECT_EQ(times_done(team, 50, 1, 2), std::vector<int>(50, 1));
  release = true;
  first.join();
}

constexpr milliseconds kLateBy{100};

/// One job that waits long for the thread beside the caller.
void be_late(Team& team) {
  const auto caller = std::this_thread::get_id();
  std::atomic<int> begun = 0;
  team.run(2, 1, 2, [&](int64_t, int64_t) {
    ASSERT_TRUE(arrive(begun, 2));
    if (std::this_thread::get_id() != caller) {
      std::this_thread::sleep_for(kLateBy);
    }
  });
}

bool shares(Team& team, milliseconds limit) {
  std::atomic<int> begun = 0;
  std::atomic<bool> together = true;
  team.run(2, 1, 2, [&](int64_t, int64_t) {
    if (!arrive(begun, 2, limit)) {
      together = false;
    }
  });
  return together;
}

TEST(TeamTest, WorksAloneForAWhileAfterWaitingLongForAThread) {
  for (int attempt = 0; attempt < 20; ++attempt) {
    Team team;
    const auto begin = std::chrono::steady_clock::now();
    be_late(team);
    const bool shared = shares(team, milliseconds(1));
    if (std::chrono::steady_clock::now() - begin > 3 * kLateBy) {
      continue;  // this thread was off its core for long: the pause may be over
    }
    EXPECT_EQ(team.late_jobs(), 1);
    EXPECT_FALSE(shared);
    EXPECT_EQ(team.jobs(), 1);
    std::this_thread::sleep_for(BackOff::kLongest);
    EXPECT_TRUE(shares(team, milliseconds(5000)));
    return;
  }
  GTEST_SKIP() << "the machine is too busy to see it";
}

TEST(ParallelTilesTest, UsesLibTorchsNumberOfThreads) {
  const int threads = at::get_num_threads();
  const auto seen = [] {
    std::set<std::thread::id> ids;
    std::mutex mutex;
    std::atomic<int> begun = 0;
    parallel_tiles(2, 1, [&](int64_t, int64_t) {
      arrive(begun, 2, milliseconds(500));
      const std::lock_guard lock(mutex);
      ids.insert(std::this_thread::get_id());
    });
    return ids.size();
  };
  at::set_num_threads(1);
  EXPECT_EQ(seen(), 1U);
  at::set_num_threads(2);
  size_t most = 0;  // earlier tests may have made the team back off for a while
  for (int i = 0; i < 10 && most < 2; ++i) {
    most = std::max(most, seen());
  }
  EXPECT_EQ(most, 2U);
  at::set_num_threads(threads);
}

TEST(TileGrainTest, SmallWorkIsOneClaimAndLargeWorkIsMany) {
  EXPECT_EQ(tile_grain(100, 10.0), 100);
  EXPECT_EQ(tile_grain(1000, 100.0), 40);
  EXPECT_EQ(tile_grain(2, 1e6), 1);
  EXPECT_EQ(tile_grain(0, 1.0), 1);
}

}  // namespace
}  // namespace specdec
