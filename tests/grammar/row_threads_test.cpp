#include "grammar/row_threads.h"

#include <gmock/gmock.h>

#include <atomic>
#include <set>
#include <stdexcept>

#include "tests/support/error_message.h"

namespace specdec {
namespace {

TEST(RowThreadsTest, EachRowIsDoneOnce) {
  for (const int threads : {1, 2, 5}) {
    RowThreads rows(threads);
    for (int64_t count = 0; count < 200; count += 13) {
      std::vector<std::atomic<int>> times(static_cast<size_t>(count));
      rows.run(count, [&](int64_t row) { ++times[static_cast<size_t>(row)]; });
      for (const std::atomic<int>& done : times) {
        EXPECT_EQ(done, 1);
      }
    }
  }
}

TEST(RowThreadsTest, OtherThreadsHelp) {
  RowThreads rows(2);
  std::atomic<int> waiting = 0;
  rows.run(2, [&](int64_t /*row*/) {  // neither row ends before both have begun
    ++waiting;
    while (waiting < 2) {
      std::this_thread::yield();
    }
  });
  EXPECT_EQ(waiting, 2);
}

TEST(RowThreadsTest, ThrowsWhatARowThrewOnceAllAreDone) {
  RowThreads rows(3);
  std::atomic<int> done = 0;
  const auto work = [&](int64_t row) {
    ++done;
    if (row == 5) {
      throw std::runtime_error("row 5");
    }
  };
  EXPECT_EQ(error_message<std::runtime_error>([&] { rows.run(40, work); }), "row 5");
  EXPECT_EQ(done, 40);
  rows.run(3, [&](int64_t /*row*/) { ++done; });
  EXPECT_EQ(done, 43) << "the next batch is as if nothing had happened";
}

TEST(RowThreadsTest, SeveralCallersAtOnce) {
  RowThreads rows(2);
  std::atomic<int64_t> sum = 0;
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int batch = 0; batch < 50; ++batch) {
        rows.run(20, [&](int64_t row) { sum += row; });
      }
    });
  }
  for (std::thread& caller : callers) {
    caller.join();
  }
  EXPECT_EQ(sum, 4 * 50 * 190);
}

}  // namespace
}  // namespace specdec
