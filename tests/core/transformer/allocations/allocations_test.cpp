// A forward takes no memory once there was one of its width: no operator new, no tensor, no fresh
// page, and nothing is copied or read back.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "core/transformer/transformer_model.h"
#include "kv/paged_kv.h"
#include "tests/core/transformer/allocations/allocation_counts.h"
#include "tests/support/tiny_gemma.h"
#include "tests/support/tiny_gemma4.h"

namespace specdec {
namespace {

constexpr int64_t kVocab = 40;
constexpr int64_t kRoom = 200;  ///< tokens whose pages are there before anything is counted
constexpr int kWarmUps = 3;     ///< results alternate between two buffers
constexpr int kRepeats = 5;

TokenBatch batch_of(int64_t nodes) { return {.tokens = (at::arange(nodes) % kVocab).to(at::kInt)}; }

/// What a call of `work` takes after the first ones: of several calls, the most news, tensors and
/// copies, and the fewest page faults, as the system may take pages away and give them back.
template <class Work>
AllocationCounts steady(const Work& work) {
  for (int i = 0; i < kWarmUps; ++i) {
    work();
  }
  AllocationCounts all{.page_faults = std::numeric_limits<int64_t>::max()};
  for (int i = 0; i < kRepeats; ++i) {
    const AllocationCounter counter;
    work();
    const AllocationCounts one = counter.counts();
    all = {.news = std::max(all.news, one.news),
           .tensors = std::max(all.tensors, one.tensors),
           .page_faults = std::min(all.page_faults, one.page_faults),
           .copies = std::max(all.copies, one.copies)};
  }
  return all;
}

void expect_none(const AllocationCounts& counts, const std::string& what) {
  EXPECT_EQ(counts.news, 0) << what;
  EXPECT_EQ(counts.tensors, 0) << what;
  EXPECT_EQ(counts.page_faults, 0) << what;
  EXPECT_EQ(counts.copies, 0) << what;
}

class OneThread : public testing::Test {
 protected:
  void SetUp() override {
    if (!AllocationCounter::counts_news()) {
      GTEST_SKIP() << "AddressSanitizer has an operator new of its own";
    }
    at::set_num_threads(1);
  }
  void TearDown() override { at::set_num_threads(threads_); }

 private:
  int threads_ = at::get_num_threads();
};

using CountersTest = OneThread;

TEST_F(CountersTest, SeeWhatIsTaken) {
  const Tensor number = at::ones({1});
  const AllocationCounter counter;
  const auto owned = std::make_unique<int>(1);
  const Tensor tensor = at::empty({4});
  EXPECT_EQ(number.item<float>(), 1.0F);
  constexpr size_t kBytes = 1 << 16;
  void* pages = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  *static_cast<volatile char*>(pages) = 1;
  const AllocationCounts counts = counter.counts();
  munmap(pages, kBytes);
  EXPECT_GE(counts.news, 2);  // the tensor's descriptions too
  EXPECT_EQ(counts.tensors, 1);
  EXPECT_GE(counts.page_faults, 1);
  EXPECT_EQ(counts.copies, 1);
}

struct ModelCase {
  std::string name;
  std::shared_ptr<TransformerWeights> (*weights)();
  TransformerOptions options = {};
};

void PrintTo(const ModelCase& model, std::ostream* out) { *out << model.name; }

class AllocationsTest : public testing::TestWithParam<ModelCase> {
 protected:
  void SetUp() override {
    if (!AllocationCounter::counts_news()) {
      GTEST_SKIP() << "AddressSanitizer has an operator new of its own";
    }
    at::set_num_threads(1);
    model_.touch_cache(kRoom);
    model_.forward(batch_of(kRoom), {.logits = Logits::kNone});
    model_.truncate(0);  // the row keeps its pages
  }
  void TearDown() override { at::set_num_threads(threads_); }

  int threads_ = at::get_num_threads();
  TransformerModel model_{GetParam().weights(), paged_kv(), GetParam().options};
  ForwardResult result_;  ///< of the newest forward, as a strategy keeps it
};

TEST_P(AllocationsTest, AForwardTakesNone) {
  const std::vector<ForwardOptions> read = {{},
                                            {.logits = Logits::kLast},
                                            {.logits = Logits::kNone},
                                            {.hidden = Hidden::kAll},
                                            {.logits = Logits::kLast, .hidden = Hidden::kAll},
                                            {.logits = Logits::kLast, .hidden = Hidden::kScored},
                                            {.logits_use = LogitsUse::kBest}};
  for (const int64_t nodes : {1, 2, 5, 16, 64}) {
    const TokenBatch batch = batch_of(nodes);
    for (size_t i = 0; i < read.size(); ++i) {
      const auto forward = [&] {
        result_ = model_.forward(batch, read[i]);
        model_.truncate(0);
      };
      expect_none(steady(forward), fmt::format("{} tokens, options {}", nodes, i));
    }
  }
}

TEST_P(AllocationsTest, ADecodingStepTakesNone) {
  model_.prefill_get_last_logits(std::vector<Token>(20, 3));
  const TokenBatch batch = batch_of(1);
  const std::vector<int64_t> path = {0};
  const auto steps = [&] {
    for (int i = 0; i < 20; ++i) {  // over the ends of pages
      result_ = model_.forward(batch);
      model_.commit(path);
    }
  };
  expect_none(steady(steps), "20 steps");
}

TEST_P(AllocationsTest, VerifyingATreeTakesNone) {
  model_.prefill_get_last_logits(std::vector<Token>(20, 3));
  TokenBatch batch = batch_of(5);
  batch.parents = {-1, 0, 0, 2, 2};
  const std::vector<int64_t> path = {0, 2, 4};  // what it keeps is moved
  const auto step = [&] {
    result_ = model_.forward(batch);
    model_.commit(path);
  };
  expect_none(steady(step), "a tree");
}

TEST_P(AllocationsTest, ABatchOfRowsTakesNone) {
  std::vector<RowId> rows = {0};
  model_.prefill_get_last_logits(std::vector<Token>(20, 3));
  for (int i = 0; i < 3; ++i) {
    rows.push_back(model_.fork(0, 16));
  }
  TokenBatch batch = batch_of(4);
  batch.rows = rows;
  const std::vector<int64_t> path = {0};
  const auto step = [&] {
    result_ = model_.forward(batch, {.logits = Logits::kLast});
    for (const RowId row : rows) {
      model_.commit(path, row);
    }
  };
  expect_none(steady(step), "four rows");
}

std::vector<ModelCase> models() {
  const auto gemma3 = [] { return tiny_gemma(kVocab, at::kFloat); };
  return {{"gemma3", gemma3},
          {"gemma3_float64", [] { return tiny_gemma(kVocab); }},
          {"gemma3_forbidden_tokens", gemma3, {.usable_tokens = kVocab - 3, .suppressed = {1, 4}}},
          {"gemma4_dense", [] { return tiny_gemma4("dense", kVocab, at::kFloat); }},
          {"gemma4_moe", [] { return tiny_gemma4("moe", kVocab, at::kFloat); }}};
}

INSTANTIATE_TEST_SUITE_P(All, AllocationsTest, testing::ValuesIn(models()),
                         [](const auto& model) { return model.param.name; });

}  // namespace
}  // namespace specdec
