#include "experiments/components/thread_choice.h"

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "core/transformer/transformer_model.h"
#include "kv/paged_kv.h"
#include "tests/support/tiny_gemma.h"

namespace specdec {
namespace {

using testing::HasSubstr;

/// Seconds of a step with one thread and with several; every third one takes ten times as long.
std::function<double(int64_t)> steps(double one, double several, int64_t& calls) {
  return [=, &calls](int64_t threads) {
    return (threads == 1 ? one : several) * (++calls % 3 == 0 ? 10.0 : 1.0);
  };
}

TEST(ThreadChoiceTest, TakesWhatIsFasterDespiteOutliers) {
  int64_t calls = 0;
  EXPECT_EQ(choose_threads(4, steps(2e-3, 1e-3, calls)).threads, 4);
  EXPECT_EQ(choose_threads(4, steps(1e-3, 5e-3, calls)).threads, 1);
  EXPECT_EQ(choose_threads(4, steps(1e-3, 0.97e-3, calls)).threads, 1);  // not worth it
  EXPECT_THAT(choose_threads(4, steps(1e-3, 5e-3, calls)).reason,
              HasSubstr("1 ms a step with 1 thread, 5 ms with 4"));
}

TEST(ThreadChoiceTest, IsCheap) {
  int64_t calls = 0;
  choose_threads(2, steps(1e-5, 1e-5, calls));
  EXPECT_LE(calls, 32);  // a small model: few steps
  calls = 0;
  choose_threads(2, steps(1.0, 1.0, calls));
  EXPECT_EQ(calls, 8);  // a large one: as few as a median needs
}

TEST(ThreadChoiceTest, LeavesTheModelAsItWasAndSetsTheThreads) {
  const int threads = at::get_num_threads();
  TransformerModel model(tiny_gemma(11), paged_kv());
  at::set_num_threads(2);
  const ThreadChoice choice = measure_threads(model);
  EXPECT_EQ(at::get_num_threads(), choice.threads);
  EXPECT_EQ(model.length(), 0);
  EXPECT_EQ(model.pending(), 0);
  if (std::getenv("OMP_NUM_THREADS") == nullptr) {
    EXPECT_THAT(choice.reason, HasSubstr("ms with 2"));
  }
  at::set_num_threads(1);
  EXPECT_EQ(measure_threads(model).threads, 1);
  at::set_num_threads(threads);
}

}  // namespace
}  // namespace specdec
