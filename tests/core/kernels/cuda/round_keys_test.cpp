// Groups of keys rounded by channel on the device (core/kernels/key_groups.h).
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <numeric>
#include <ostream>
#include <utility>
#include <vector>

#include "core/kernels/cuda/cuda_cache_tasks.h"
#include "core/kernels/cuda/cuda_ops.h"
#include "core/kernels/cuda/emulation/emulation.h"
#include "core/kernels/cuda/launch_shape.h"
#include "kv/page_memory.h"
#include "tests/core/kernels/cuda/cuda_attend.h"
#include "tests/core/kernels/cuda/machine.h"
#include "tests/core/transformer/cuda/counting_allocator.h"
#include "tests/kv/grouped_cache.h"
#include "tests/support/parameter_name.h"
#include "tests/support/ranged_reference.h"

namespace specdec {
namespace {

struct RoundedCase {
  KvFormat format;
  int64_t head_dim;
  int64_t page_size;
};

void PrintTo(const RoundedCase& one, std::ostream* out) {
  *out << kv_format_name(one.format) << " dim " << one.head_dim << " page " << one.page_size;
}

constexpr int64_t kRoundedHeads = 2;

/// A cache of one layer, whose keys and values are written as they are given.
class RoundedPages {
 public:
  RoundedPages(const RoundedCase& c, std::shared_ptr<Ops> ops)
      : dim_(c.head_dim),
        cache_({{.kv_heads = kRoundedHeads, .head_dim = c.head_dim}}, options_of(c)),
        ops_(cache_.observed(std::move(ops))) {
    cache_.touch(kLength);
    for (const Tensor& pages : pages_of()) {
      pages.view(at::kByte).fill_(0x5A);
    }
    cache_.open();
  }

  /// qkv: [nodes, 3 * kRoundedHeads * head_dim].
  void extend(const Tensor& qkv, const std::vector<int64_t>& rows,
              const std::vector<int64_t>& parents = {}) {
    const int64_t nodes = qkv.size(0);
    cache_.extend({.count = nodes, .rows = rows, .parents = parents});
    const QkvOptions options{.heads = kRoundedHeads,
                             .eps = 0,
                             .q_scale = {},
                             .k_scale = {},
                             .cos = at::ones({kLength, dim_ / 2}),
                             .sin = at::zeros({kLength, dim_ / 2})};
    Tensor queries = at::empty({nodes, kRoundedHeads, dim_});
    ops_->qkv_to_cache(qkv, options, cache_.view(0), queries);
  }
  void keep(int64_t row, int64_t tokens) {
    std::vector<int64_t> path(static_cast<size_t>(tokens));
    std::iota(path.begin(), path.end(), 0);
    cache_.commit(row, path);
  }

  /// Keys, values and both in exact pages.
  std::vector<Tensor> pages_of() const {
    const KvView view = cache_.describe(0);
    std::vector<Tensor> all;
    for (const Tensor& pages : {view.keys, view.values, view.exact.keys, view.exact.values}) {
      if (pages.defined()) {
        all.push_back(pages.narrow(0, 0, kLength / view.page_size()));
      }
    }
    return all;
  }
  KvCache& cache() { return cache_; }

 private:
  static constexpr int64_t kLength = 320;

  static KvCacheOptions options_of(const RoundedCase& c) {
    return {.dtype = at::kFloat,
            .format = c.format,
            .page_size = c.page_size,
            .max_length = kLength,
            .exact_recent = 40};
  }

  int64_t dim_;
  KvCache cache_;
  std::shared_ptr<Ops> ops_;
};

void expect_same_bytes(const RoundedPages& device, const RoundedPages& host) {
  const std::vector<Tensor> found = device.pages_of();
  const std::vector<Tensor> wanted = host.pages_of();
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(at::allclose(found[i], wanted[i], 0, 0, /*equal_nan=*/true)) << "pages " << i;
  }
}

/// Numbers of every size, equal ones, zeros of both signs, infinities and NaN.
Tensor numbers_of_every_kind(int64_t tokens, int64_t head_dim) {
  const int64_t width = 3 * kRoundedHeads * head_dim;
  Tensor qkv = at::randn({tokens, width});
  qkv.mul_(at::pow(10.0, at::arange(width) % 23 - 11).to(at::kFloat).unsqueeze(0));
  const int64_t key = kRoundedHeads * head_dim;
  qkv.select(1, key).fill_(0.3F);
  qkv.select(1, key + 1).zero_();
  qkv.select(1, key + 2).copy_(at::where(at::arange(tokens) % 3 == 0, -0.0F, 0.0F));
  qkv.select(1, key + 3).copy_(at::where(at::arange(tokens) % 3 == 0, 0.0F, -0.0F));
  qkv.select(1, key + 4).copy_(at::randn({tokens}) * 1e38F);  // whose range is infinite
  qkv[5][key + 5] = std::numeric_limits<float>::infinity();
  qkv[40][key + 6] = -std::numeric_limits<float>::infinity();
  qkv[41][key + 7] = std::numeric_limits<float>::quiet_NaN();
  qkv[7].narrow(0, 2 * key, key).zero_();
  qkv[8].narrow(0, 2 * key, key).copy_(at::where(at::arange(key) % 2 == 0, -0.0F, 0.0F));
  qkv[9][2 * key + 3] = std::numeric_limits<float>::infinity();
  return qkv;
}

class CudaRoundKeysTest : public testing::TestWithParam<RoundedCase> {};

TEST_P(CudaRoundKeysTest, WritesTheBytesOfTheHost) {
  at::manual_seed(31);
  RoundedPages device(GetParam(), cuda_ops(at::kCPU));
  RoundedPages host(GetParam(), cpu_ops());
  const RowId other = 1;
  const Tensor qkv = numbers_of_every_kind(150, GetParam().head_dim);
  int64_t first = 0;
  for (const auto& [tokens, others] :
       std::vector<std::pair<int64_t, int64_t>>{{20, 31}, {11, 1}, {1, 0}, {64, 3}, {0, 19}}) {
    std::vector<int64_t> rows(static_cast<size_t>(tokens), 0);
    rows.insert(rows.end(), static_cast<size_t>(others), other);
    for (RoundedPages* pages : {&device, &host}) {
      cuda::emulation::set_seed(static_cast<uint64_t>(first));
      pages->extend(qkv.narrow(0, first, tokens + others), rows);
      pages->keep(0, tokens);
      pages->keep(other, others);
    }
    expect_same_bytes(device, host);
    first += tokens + others;
  }
  EXPECT_EQ(device.cache().length(0), 96);
}

/// Siblings lie where a path's tokens will; a commit moves these, and rounds the groups that they
/// complete: as much as the host does, and what the tokens alone come to.
TEST_P(CudaRoundKeysTest, AMovedPathHasTheBytesOfAChain) {
  at::manual_seed(32);
  const int64_t width = 3 * kRoundedHeads * GetParam().head_dim;
  const Tensor prompt = at::randn({59, width});
  const Tensor tree = at::randn({10, width});  // 0 1, then two nodes a level
  const std::vector<int64_t> parents = {-1, -1, 1, 1, 3, 3, 5, 5, 7, 7};
  const std::vector<int64_t> path = {1, 3, 5, 7, 9};
  RoundedPages device(GetParam(), cuda_ops(at::kCPU));
  RoundedPages host(GetParam(), cpu_ops());
  RoundedPages chain(GetParam(), cuda_ops(at::kCPU));
  for (RoundedPages* pages : {&device, &host}) {
    pages->extend(prompt, std::vector<int64_t>(59, 0));
    pages->keep(0, 59);
    pages->extend(tree, std::vector<int64_t>(10, 0), parents);
    pages->cache().commit(0, path);
  }
  expect_same_bytes(device, host);
  chain.extend(at::cat({prompt, tree.index_select(0, at::tensor(path, at::kLong))}),
               std::vector<int64_t>(64, 0));
  const int64_t page = 32 / GetParam().page_size;  // of the second group
  const int64_t in_page = 32 % GetParam().page_size;
  const auto group = [&](const RoundedPages& pages) {
    return pages.pages_of()[0][page].narrow(2, in_page, kKeyGroup);
  };
  EXPECT_TRUE(at::equal(group(device), group(chain)));
  EXPECT_FALSE((group(device) == 0x5A).all().item<bool>());
}

/// What completes a group beside others that hold anything, and in a forward of more nodes than a
/// graph has.
TEST_P(CudaRoundKeysTest, AGroupsBytesDependOnItsKeysAlone) {
  at::manual_seed(33);
  const Tensor tokens = at::randn({kKeyGroup, 3 * kRoundedHeads * GetParam().head_dim});
  const auto rounded = [&](int64_t others, float beside) {
    RoundedPages pages(GetParam(), cuda_ops(at::kCPU));
    std::vector<int64_t> rows(static_cast<size_t>(kKeyGroup), 0);
    rows.insert(rows.end(), static_cast<size_t>(others), 1);
    const Tensor all = at::cat({tokens, at::full({others, tokens.size(1)}, beside)});
    pages.extend(all, rows);
    pages.keep(0, kKeyGroup);
    return pages.pages_of()[0][0].narrow(2, 0, kKeyGroup).clone();
  };
  const Tensor alone = rounded(0, 0);
  EXPECT_TRUE(at::equal(rounded(70, std::numeric_limits<float>::quiet_NaN()), alone));
  EXPECT_TRUE(at::equal(rounded(1, std::numeric_limits<float>::infinity()), alone));
}

TEST_P(CudaRoundKeysTest, PaddingAndNodesOfTreesRoundNothing) {
  RoundedPages pages(GetParam(), cuda_ops(at::kCPU));
  const Tensor tokens = at::randn({kKeyGroup, 3 * kRoundedHeads * GetParam().head_dim});
  std::vector<int64_t> parents(static_cast<size_t>(kKeyGroup));
  std::iota(parents.begin(), parents.end(), -1);
  parents.back() = 3;  // at the last slot of the group, but not its position
  pages.extend(tokens, std::vector<int64_t>(static_cast<size_t>(kKeyGroup), 0), parents);
  EXPECT_TRUE((pages.pages_of()[0] == 0x5A).all().item<bool>());
  pages.cache().truncate(0, 0);
  pages.extend(tokens, std::vector<int64_t>(static_cast<size_t>(kKeyGroup), 0));
  EXPECT_FALSE((pages.pages_of()[0] == 0x5A).all().item<bool>());
  pages.pages_of()[0].fill_(0x5A);
  const KvView view = pages.cache().describe(0);
  view.tables->positions[kKeyGroup - 1] = -1;
  const cuda::RoundKeysTask task = cuda::round_keys_task(view);
  EXPECT_EQ(specdec_cuda_round_keys(&task, nullptr), 0);
  EXPECT_TRUE((pages.pages_of()[0] == 0x5A).all().item<bool>());
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, CudaRoundKeysTest,
    testing::Values(RoundedCase{KvFormat::kKivi2, 8, 32}, RoundedCase{KvFormat::kKivi2, 40, 96},
                    RoundedCase{KvFormat::kKivi2, 256, 32}, RoundedCase{KvFormat::kKivi4, 24, 64},
                    RoundedCase{KvFormat::kKivi4, 64, 32}, RoundedCase{KvFormat::kKivi4, 512, 32}),
    ParameterName());

class CudaAttentionGroupsTest : public testing::TestWithParam<KvFormat> {};

/// Numbers are widened exactly: the bits of a float32 cache that holds the rounded ones. The form
/// in which a node reads a key depends on their positions alone, in prefills whose groups end in
/// the same forward too. What the formula has no number for is NaN in the float32 cache.
TEST_P(CudaAttentionGroupsTest, ReadTheNumbersOfTheFormula) {
  at::manual_seed(8);
  for (const auto& [head_dim, page_size] :
       std::vector<std::pair<int64_t, int64_t>>{{8, 32}, {40, 96}, {256, 64}}) {
    const AttentionCase c{at::kFloat, 4,          2, head_dim,          0, 0, false,
                          page_size,  GetParam(), 0, KvRotation::kNone, 40};
    const AttentionCase plain{at::kFloat, 4, 2, head_dim, 0, 0, false, page_size};
    AttentionCache stored(c);
    AttentionCache exact(plain);
    AttentionCache rounded(plain);
    constexpr int64_t kNodes = cuda::kCudaAttentionChunk + 50;
    const Tensor qkv = stored.random_qkv(kNodes) * 3;
    Tensor same = qkv.view({kNodes, 8, head_dim}).clone();
    Tensor keys = same.narrow(1, 4, 2);
    keys.copy_(rounded_keys(GetParam(), keys));
    Tensor values = same.narrow(1, 6, 2);
    values.copy_(rounded_values(GetParam(), values));
    const Tensor queries = stored.extend({}, {}, qkv);
    exact.extend({}, {}, qkv);
    rounded.extend({}, {}, same.view_as(qkv));
    KvView view = rounded.kv().view(0);
    const KvView recent = exact.kv().view(0);
    view.exact = {recent.keys, recent.values, 0, c.exact_recent, kKeyGroup};
    const Tensor out = cuda_attend(stored, queries);
    EXPECT_FALSE(out.isnan().any().item<bool>());
    EXPECT_TRUE(at::equal(out, cuda_attend(view, 0, queries))) << head_dim;
    EXPECT_FALSE(at::equal(out, cuda_attend(exact, queries))) << "a format that rounds nothing";
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaAttentionGroupsTest,
                         testing::Values(KvFormat::kKivi2, KvFormat::kKivi4),
                         [](const auto& info) { return kv_format_name(info.param); });

/// The histories of caches that the CPU's tests have, on the device's ops, with pages that are
/// allocated at once, as on a GPU.
TEST(CudaKeyGroupsCacheTest, RandomHistoriesHoldTheNumbersOfTheFormula) {
  const CountingAllocator allocator;
  ASSERT_TRUE(allocates_at_once(at::kCPU));
  const uint32_t seeds = cuda::runs_on_a_gpu() ? 6 : 4;
  for (uint32_t seed = 0; seed < seeds; ++seed) {
    expect_numbers_of_the_formula(seed, cuda_ops(at::kCPU), cuda::runs_on_a_gpu() ? 150 : 60);
  }
}

/// Calls check(what, change) for each fault of a cache that keeps groups of keys.
template <class Check>
void for_each_fault_of_groups(const Check& check) {
  check("pages of one and a half groups", [](cuda::PagedCache& cache) { cache.page_size = 48; });
  check("heads of 12 dimensions", [](cuda::PagedCache& cache) { cache.head_dim = 12; });
  check("no exact tokens", [](cuda::PagedCache& cache) { cache.exact.recent = 0; });
  check("exact tokens from anywhere on", [](cuda::PagedCache& cache) { cache.exact.multiple = 1; });
}

class CudaRoundKeysChecksTest : public testing::Test {
 protected:
  CudaRoundKeysChecksTest() : pages_({KvFormat::kKivi2, 8, 32}, cuda_ops(at::kCPU)) {
    pages_.extend(at::randn({kKeyGroup, 3 * kRoundedHeads * 8}),
                  std::vector<int64_t>(static_cast<size_t>(kKeyGroup), 0));
  }

  KvView view() { return pages_.cache().describe(0); }

  /// A task is taken, and refused with each fault of its cache alone.
  template <class Task>
  static void expect_refusals(const Task& task, int (*run)(const Task*, void*)) {
    EXPECT_EQ(run(&task, nullptr), 0);
    for_each_fault_of_groups([&](const char* what, const auto& change) {
      Task wrong = task;
      change(wrong.cache);
      EXPECT_EQ(run(&wrong, nullptr), cuda::kInvalidValue) << what;
    });
  }

  RoundedPages pages_;
};

TEST_F(CudaRoundKeysChecksTest, RoundingRefusesWhatItCannotTake) {
  const cuda::RoundKeysTask task = cuda::round_keys_task(view());
  expect_refusals(task, cuda::specdec_cuda_round_keys);
  const auto is_refused = [&](const auto& change) {
    cuda::RoundKeysTask wrong = task;
    change(wrong);
    return specdec_cuda_round_keys(&wrong, nullptr) == cuda::kInvalidValue;
  };
  EXPECT_TRUE(is_refused([](auto& wrong) { wrong.cache.exact.keys = nullptr; }));
  EXPECT_TRUE(is_refused([](auto& wrong) { wrong.cache.format = KvFormat::kQ4; }));
  EXPECT_TRUE(is_refused([](auto& wrong) { wrong.nodes = cuda::kMaxGridY + 1; }));
}

TEST_F(CudaRoundKeysChecksTest, AttentionRefusesWhatItCannotTake) {
  const Tensor queries = at::randn({kKeyGroup, kRoundedHeads, 8});
  Tensor out = at::empty_like(queries);
  cuda::PagedAttentionTask task = cuda::attention_task(queries, view(), {1, 0, Tensor()}, out);
  const Tensor workspace = at::empty({cuda::specdec_cuda_attention_workspace(&task)});
  task.workspace = workspace.mutable_data_ptr<float>();
  expect_refusals(task, cuda::specdec_cuda_paged_attention);
}

TEST_F(CudaRoundKeysChecksTest, WritingRefusesWhatItCannotTake) {
  const Tensor qkv = at::randn({kKeyGroup, 2 * kRoundedHeads * 8});
  const Tensor angles = at::ones({kKeyGroup, 4});
  cuda::QkvToCacheTask task{};
  task.qkv = qkv.const_data_ptr<float>();
  task.cosines = angles.const_data_ptr<float>();
  task.sines = angles.const_data_ptr<float>();
  task.cache = cuda::paged_cache(view());
  task.nodes = static_cast<int32_t>(kKeyGroup);
  task.kv_projections = 2;
  expect_refusals(task, cuda::specdec_cuda_qkv_to_cache);
}

}  // namespace
}  // namespace specdec
