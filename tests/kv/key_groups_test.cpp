// Caches in a format that rounds keys in groups of tokens (kv_key_group), beside the formula.
#include <ATen/Parallel.h>
#include <c10/core/CPUAllocator.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <memory>
#include <new>
#include <numeric>
#include <string>

#include "core/error.h"
#include "tests/core/transformer/cuda/counting_allocator.h"
#include "tests/kv/grouped_cache.h"
#include "tests/support/error_message.h"
#include "tests/support/recording_ops.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Tests on one thread: threads that wait cost more than they do here.
class KeyGroupsCacheTest : public testing::Test {
 protected:
  KeyGroupsCacheTest() { at::set_num_threads(1); }
  ~KeyGroupsCacheTest() override { at::set_num_threads(threads_); }

 private:
  int threads_ = at::get_num_threads();
};

TEST_F(KeyGroupsCacheTest, RandomHistoriesHoldTheNumbersOfTheFormula) {
  for (uint32_t seed = 0; seed < 6; ++seed) {
    expect_numbers_of_the_formula(seed, cpu_ops(), 150);
  }
}

TEST_F(KeyGroupsCacheTest, ARowCanBeCutByTheSlack) {
  GroupedCache model(grouped_options(KvFormat::kKivi2, 32, 5));
  model.extend_chain(0, 200);
  model.commit(0, 199);
  EXPECT_EQ(model.cache().rewindable_to(0, 195), 195);
  EXPECT_THAT(error_message<Error>([&] { model.cache().truncate(0, 150); }),
              AllOf(HasSubstr("exact_recent left behind"), HasSubstr("raise window_slack")));
  model.truncate(0, 195);
  model.check();
  model.extend_chain(0, 40);
  model.commit(0, 39);
  model.check();
}

TEST_F(KeyGroupsCacheTest, ABranchThatIsTooDeepChangesNothing) {
  GroupedCache model(grouped_options(KvFormat::kKivi2, 32));
  model.extend_chain(0, 70);
  model.commit(0, 69);
  const auto branches = [](int64_t depth) {  // two, of which the second is so deep
    std::vector<int64_t> parents(static_cast<size_t>(depth + 1));
    std::iota(parents.begin(), parents.end(), int64_t{-1});
    parents[1] = -1;
    return parents;
  };
  EXPECT_NO_THROW(model.extend(0, branches(32)));
  model.truncate(0, 70);
  EXPECT_THAT(error_message<Error>([&] { model.extend(0, branches(70)); }),
              AllOf(HasSubstr("58 tokens deep"), HasSubstr("tree of at most 31 levels"),
                    HasSubstr("raise exact_recent")));
  EXPECT_EQ(model.cache().pending(0), 0);
  model.extend_chain(0, 71);
  model.commit(0, 70);
  model.check();
}

/// Tokens that are pending before a tree branches, as those that a drawn tree is fed, count as kept
/// ones do: groups that end among them are the same in all branches.
TEST_F(KeyGroupsCacheTest, ABranchIsCountedFromTheTokensThatAllShare) {
  for (const int64_t fed : {2, 27, 31}) {
    SCOPED_TRACE(fed);
    const int64_t kept = 121 - fed;
    const auto branches = [](int64_t pending, int64_t depth) {
      std::vector<int64_t> parents(static_cast<size_t>(depth + 1));
      std::iota(parents.begin(), parents.end(), pending - 1);
      parents[1] = pending - 1;
      return parents;
    };
    std::array<std::unique_ptr<GroupedCache>, 2> models;  // the tokens are pending, or kept
    for (size_t i = 0; i < models.size(); ++i) {
      at::manual_seed(3);
      models[i] = std::make_unique<GroupedCache>(grouped_options(KvFormat::kKivi4, 32));
      GroupedCache& model = *models[i];
      model.attend();
      model.extend_chain(0, kept);
      model.commit(0, kept - 1);
      model.extend_chain(0, fed);
      if (i == 1) {
        model.commit(0, fed - 1);
      }
      const int64_t pending = model.cache().pending(0);
      EXPECT_THAT(error_message<Error>([&] { model.extend(0, branches(pending, 39)); }),
                  HasSubstr("39 tokens deep"));
      model.extend(0, branches(pending, 38));
    }
    for (size_t layer = 0; layer < 2; ++layer) {
      EXPECT_TRUE(at::equal(models[0]->read(layer), models[1]->read(layer))) << layer;
    }
    for (const auto& model : models) {
      model->commit(0, model->cache().pending(0) - 1);
      model->check();
    }
  }
}

/// A cache that follows one with window_slack gets such groups: tokens that were given back are
/// NaN.
TEST_F(KeyGroupsCacheTest, MissingTokensOfAGroupSpoilNoneOfTheOthers) {
  const int64_t missing = 16;
  KvCache cache({{2, 40, 0, -1}}, grouped_options(KvFormat::kKivi4, 32));
  Tensor keys = at::randn({2, 100, 40});
  const Tensor values = at::randn({2, 100, 40});
  keys.narrow(1, 0, missing).fill_(std::numeric_limits<float>::quiet_NaN());
  cache.append(0, 100, [&](int64_t) { return std::pair(keys, values); });
  const Tensor read = cache.key_values(0, 0, {missing, 100}).first;
  const Tensor given = keys.narrow(1, missing, 100 - missing);
  EXPECT_LT((read - given).abs().max().item<double>(), 0.5);  // NaN is not less
  EXPECT_TRUE(
      at::equal(read.narrow(1, 100 - missing - 32, 32), given.narrow(1, 100 - missing - 32, 32)));
  // A number that is none is still seen.
  keys[0][99][3] = std::numeric_limits<float>::quiet_NaN();
  cache.truncate(0, 0);
  cache.append(0, 100, [&](int64_t) { return std::pair(keys, values); });
  EXPECT_TRUE(cache.key_values(0, 0, {99, 100}).first.isnan().any().item<bool>());
}

/// The second group of a row of 60 tokens ends at slot 63, which node 4 moves to: its path leaves
/// out node 0.
const std::vector<int64_t> kMovingTree = {-1, -1, 1, 2, 3};

void keep_60(GroupedCache& model) {
  model.extend_chain(0, 60);
  model.commit(0, 59);
}

TEST_F(KeyGroupsCacheTest, ACommitRoundsTheGroupsWhoseEndItMovesOnceALayer) {
  const auto ops = std::make_shared<RecordingOps>();
  GroupedCache model(grouped_options(KvFormat::kKivi4, 32), ops);
  const auto commit = [&](int64_t node) {
    (void)ops->take_calls();
    model.commit(0, node);
    return ops->take_calls();
  };
  const auto call = [&](int64_t layer) {
    const KvView view = model.cache().describe(layer);
    return fmt::format("round_keys [{}] -> [{}]", fmt::join(view.exact.keys.sizes(), ", "),
                       fmt::join(view.keys.sizes(), ", "));
  };
  model.extend_chain(0, 60);
  EXPECT_THAT(commit(59), testing::IsEmpty()) << "a forward has rounded the first group";
  model.extend(0, kMovingTree);
  EXPECT_THAT(commit(4), testing::ElementsAre(call(0), call(1)));
  EXPECT_NE(call(0), call(1));
  model.extend(0, kMovingTree);
  EXPECT_THAT(commit(4), testing::IsEmpty()) << "of 64 to 67 none ends a group";
  model.append(0, 27);
  model.extend(0, {-1, 0, -1, 2});
  EXPECT_THAT(commit(1), testing::IsEmpty()) << "95 and 96 stay where they are";
  model.check();
}

/// Memory of the CPU, which has run out while it lives.
class NoMemory final : public c10::Allocator {
 public:
  NoMemory() : own_(c10::GetCPUAllocator()) { c10::SetCPUAllocator(this, kPriority); }
  ~NoMemory() override { c10::SetCPUAllocator(own_, kPriority); }
  NoMemory(const NoMemory&) = delete;
  NoMemory& operator=(const NoMemory&) = delete;

  c10::DataPtr allocate(size_t /*bytes*/) override { throw std::bad_alloc(); }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    own_->copy_data(to, from, bytes);
  }

 private:
  static constexpr uint8_t kPriority = 200;
  c10::Allocator* own_;
};

TEST_F(KeyGroupsCacheTest, ACommitThatFindsNoMemoryForItsTablesChangesNothing) {
  GroupedCache model(grouped_options(KvFormat::kKivi2, 32));
  keep_60(model);
  model.extend(0, kMovingTree);
  const std::vector<int64_t> path = {1, 2, 3, 4};
  {
    const NoMemory full;
    EXPECT_THROW(model.cache().commit(0, path), std::bad_alloc);
  }
  EXPECT_EQ(model.cache().length(0), 60);
  EXPECT_EQ(model.cache().pending(0), 5);
  model.commit(0, 4);
  model.check();
}

/// Allocations tell: as many as those of a cache without groups.
TEST_F(KeyGroupsCacheTest, RecentTokensAreReadWithoutTheGroupThatTheyBelongTo) {
  const auto allocations = [](const KvCacheOptions& options) {
    GroupedCache model(options);
    keep_60(model);
    const CountingAllocator allocator;
    EXPECT_EQ(model.cache().key_values(0, 0, {40, 60}).first.size(1), 20);
    return allocator.count();
  };
  KvCacheOptions plain = grouped_options(KvFormat::kNative, 0);
  EXPECT_EQ(allocations(grouped_options(KvFormat::kKivi4, 32)), allocations(plain));
}

TEST_F(KeyGroupsCacheTest, RefusesWhatItIsNotFor) {
  const auto error = [](const KvCacheOptions& options, std::vector<LayerKv> layers) {
    return error_message<Error>([&] { KvCache cache(layers, options); });
  };
  KvCacheOptions options = grouped_options(KvFormat::kKivi2, 32, 0, 48);
  EXPECT_THAT(error(options, grouped_layers()), AllOf(HasSubstr("multiples of 32 tokens, not 48"),
                                                      HasSubstr("choose such a page_size")));
  options = grouped_options(KvFormat::kKivi4, 31);
  EXPECT_THAT(error(options, grouped_layers()), HasSubstr("give exact_recent 32 or more, not 31"));
  options = grouped_options(KvFormat::kKivi2, 40);
  EXPECT_THAT(error(options, {{1, 36, 0, -1}}), HasSubstr("a multiple of 8 dimensions"));
  EXPECT_THAT(error(options, {{1, 8, 70, -1, 4}}), HasSubstr("more than the 70 of the window"));
  EXPECT_NO_THROW(KvCache({{1, 8, 71, -1, 4}}, options));
  options.device = at::kMPS;
  EXPECT_THAT(error(options, grouped_layers()), HasSubstr("is for the CPU and CUDA"));
  options = grouped_options(KvFormat::kKivi2, 32);
  options.dtype = at::kDouble;
  EXPECT_THAT(error(options, grouped_layers()), HasSubstr("needs float32 activations"));
}

}  // namespace
}  // namespace specdec
