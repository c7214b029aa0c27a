// Attention over means of old keys by the CUDA kernels: against the CPU's, and the bits of nodes.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <vector>

#include "core/kernels/cuda/cuda_cache_tasks.h"
#include "core/kernels/cuda/emulation/emulation.h"
#include "tests/kv/pooled_cache.h"
#include "tests/support/parameter_name.h"

namespace specdec {
namespace {

/// paged_attention by the CUDA kernels.
void cuda_pooled_attention(const Tensor& queries, const KvView& view,
                           const AttentionOptions& options, Tensor& out) {
  if (view.pooled->columns() > 0) {
    const cuda::PoolKeysTask pool = cuda::pool_keys_task(view);
    EXPECT_EQ(cuda::specdec_cuda_pool_keys(&pool, nullptr), 0);
  }
  cuda::PagedAttentionTask task = cuda::attention_task(queries, view, options, out);
  const Tensor workspace = at::full({cuda::specdec_cuda_attention_workspace(&task)},
                                    std::numeric_limits<float>::quiet_NaN());
  task.workspace = workspace.mutable_data_ptr<float>();
  EXPECT_EQ(cuda::specdec_cuda_paged_attention(&task, nullptr), 0);
}

class CudaPooledAttentionTest : public testing::TestWithParam<PoolingCase> {
 protected:
  void SetUp() override {
    at::manual_seed(3);
    cuda::emulation::set_seed(3);
  }

  Tensor random_tokens(int64_t count) const {
    const AttentionCase& shape = GetParam().shape;
    return at::randn({count, (shape.heads + 2 * shape.kv_heads) * shape.head_dim});
  }

  /// What new nodes get in both caches, which is nearly the same.
  Tensor extend(RowId row, const std::vector<int64_t>& parents, const Tensor& tokens) {
    const Tensor out = device_.extend(row, parents, tokens);
    const Tensor expected = host_.extend(row, parents, tokens);
    EXPECT_TRUE(at::allclose(out, expected, 1e-4, 2e-6))
        << (out - expected).abs().max().item<float>();
    return out;
  }
  void commit(RowId row, const std::vector<int64_t>& path) {
    device_.store().commit(row, path);
    host_.store().commit(row, path);
  }
  void expect_the_same_means(int64_t place, RowId row) {
    const int64_t means = GetParam().pooling.means_at(device_.store().length(row) - 1);
    ASSERT_GT(means, 0);
    const auto [keys, values] = device_.means(place, means);
    const auto [host_keys, host_values] = host_.means(place, means);
    EXPECT_TRUE(at::equal(keys, host_keys)) << "row " << row;
    EXPECT_TRUE(at::equal(values, host_values)) << "row " << row;
  }

  PooledCache device_{GetParam(), 5, &cuda_pooled_attention};
  PooledCache host_{GetParam(), 5};
};

TEST_P(CudaPooledAttentionTest, EqualsTheOpWithTheBitsOfAPrompt) {
  const Tensor prompt = random_tokens(330);
  std::vector<int64_t> all(110);
  std::iota(all.begin(), all.end(), 0);
  for (int64_t first = 0; first < 330; first += 110) {
    extend(0, {}, prompt.narrow(0, first, 110));
    commit(0, all);
  }
  expect_the_same_means(0, 0);
  const Tensor tree = random_tokens(8);
  const std::vector<int64_t> parents = {-1, -1, 1, 1, 2, 4, 3, 5};
  const std::vector<int64_t> path = {1, 2, 4, 5, 7};  // deeper than `recent` in some cases
  const Tensor drafted = extend(0, parents, tree);
  const Tensor text = at::cat({prompt, tree.index_select(0, at::tensor(path, at::kLong))});
  PooledCache fresh(GetParam(), 16, &cuda_pooled_attention);
  const Tensor at_once = fresh.extend(0, {}, text);
  for (size_t i = 0; i < path.size(); ++i) {
    EXPECT_TRUE(at::equal(drafted[path[i]], at_once[330 + static_cast<int64_t>(i)])) << i;
  }
  commit(0, path);
  const RowId branch = device_.store().fork(0, 333);
  ASSERT_EQ(host_.store().fork(0, 333), branch);
  for (const RowId row : {RowId{0}, branch}) {
    extend(row, {}, random_tokens(9));
    commit(row, {0, 1, 2});
  }
  device_.store().truncate(0, 100);
  host_.store().truncate(0, 100);
  extend(0, {}, random_tokens(40));
  expect_the_same_means(1, branch);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, CudaPooledAttentionTest,
    testing::Values(
        PoolingCase{{at::kFloat, 4, 2, 8, 0, 0, false}, {.chunk = 2, .recent = 3, .sink = 1}},
        PoolingCase{{at::kFloat, 3, 1, 20, 0, 2, false}, {.chunk = 7, .recent = 30, .sink = 0}},
        PoolingCase{{at::kFloat, 4, 1, 40, 0, 0, false, 4, KvFormat::kQ8},
                    {.chunk = 16, .recent = 5, .sink = 140}},
        PoolingCase{{at::kFloat, 2, 2, 6, 0, 0, false, 4, KvFormat::kBFloat16},
                    {.chunk = 3, .recent = 1, .sink = 4}},
        PoolingCase{{at::kFloat, 2, 1, 32, 0, 0, false, 4, KvFormat::kQ4, 0, KvRotation::kHadamard},
                    {.chunk = 5, .recent = 9, .sink = 1}},
        PoolingCase{{at::kFloat, 1, 1, 8, 0, 0, false, 4, KvFormat::kFloat16},
                    {.chunk = 9, .recent = 2, .sink = 2}},
        PoolingCase{{at::kFloat, 1, 1, 8, 0, 0, false, 4, KvFormat::kFp8E4m3},
                    {.chunk = 64, .recent = 64, .sink = 4}},
        PoolingCase{{at::kFloat, 1, 1, 8, 0, 0, false, 4, KvFormat::kQ3},
                    {.chunk = 4, .recent = 4, .sink = 0}},
        PoolingCase{
            {at::kFloat, 2, 2, 8, 0, 0, false, 4, KvFormat::kQ3, 0, KvRotation::kNone, 0, true},
            {.chunk = 6, .recent = 4, .sink = 2}},
        PoolingCase{
            {at::kFloat, 2, 1, 32, 0, 0, false, 4, KvFormat::kQ4, 0, KvRotation::kHadamard, 7},
            {.chunk = 5, .recent = 9, .sink = 3}},
        PoolingCase{
            {at::kFloat, 2, 2, 6, 0, 0, false, 4, KvFormat::kFloat16, 0, KvRotation::kNone, 40},
            {.chunk = 2, .recent = 3, .sink = 1}},
        PoolingCase{{at::kFloat, 1, 1, 8, 0, 0, false, 4, KvFormat::kHierarchical},
                    {.chunk = 3, .recent = 6, .sink = 3}}),
    ParameterName());

TEST(CudaPooledAttentionChecksTest, RefusesSizesThatItCannotTake) {
  cuda::PoolKeysTask task{};
  task.nodes = 1;
  EXPECT_EQ(cuda::specdec_cuda_pool_keys(&task, nullptr), cuda::kInvalidValue);
}

}  // namespace
}  // namespace specdec
