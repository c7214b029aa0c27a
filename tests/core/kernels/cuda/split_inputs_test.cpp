// What kernels write, split for the product that comes next: the same bits as a split of its own.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "core/kernels/cuda/cuda_ops.h"
#include "core/kernels/cuda/cuda_tasks.h"
#include "core/kernels/cuda/emulation/emulation.h"
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/linear.h"
#include "tests/core/kernels/cuda/cuda_attend.h"
#include "tests/core/kernels/cuda/machine.h"
#include "tests/support/stored_blocks.h"

namespace specdec {
namespace {

constexpr int64_t kOutputs = 24;

/// A matrix that has minima, which sums of inputs are multiplied by, where the width allows it.
Linear product_of(int64_t in) {
  Linear weight = in % 32 == 0
                      ? random_stored_rows(WeightFormat::kQ41, kOutputs, in, 5)
                            .packed({at::kCPU, WeightLayout::kRows})
                      : Linear(at::randn({kOutputs, in}).to(at::kBFloat16), WeightFormat::kBFloat16,
                               Tensor(), Placement{at::kCPU, WeightLayout::kRows});
  weight.arrange();
  return weight;
}

/// Memory for [rows, in] inputs, full of NaN.
Tensor split_space(int64_t rows, int64_t in) {
  return at::full(
      {cuda::specdec_cuda_split_bytes(static_cast<int32_t>(rows), static_cast<int32_t>(in))}, 255,
      at::kByte);
}

/// The product of rows, which `space` holds already, or which it splits itself.
Tensor multiply(const Linear& weight, const Tensor& rows, const Tensor& space, bool is_split) {
  Tensor out = at::full({rows.size(0), kOutputs}, std::numeric_limits<float>::quiet_NaN());
  cuda::TensorLinearTask task = cuda::tensor_linear_task(weight, weight.parts().front(), rows, out);
  task.workspace = space.mutable_data_ptr();
  task.is_split = is_split;
  EXPECT_EQ(specdec_cuda_tensor_linear(&task, nullptr), 0);
  return out;
}

/// `space`: what a kernel has split beside writing `rows`.
void expect_the_product_of(const Tensor& rows, const Tensor& space) {
  const Linear weight = product_of(rows.size(1));
  const Tensor wanted = multiply(weight, rows, split_space(rows.size(0), rows.size(1)), false);
  EXPECT_TRUE(at::equal(multiply(weight, rows, space, true), wanted))
      << rows.size(0) << " rows of " << rows.size(1);
}

TEST(CudaSplitInputsTest, NormsSplitWhatTheyWrite) {
  at::manual_seed(2);
  for (const int64_t size : {1, 31, 64, 96, 257, 1152}) {
    for (const int64_t rows : {1, 7, 9}) {
      for (const bool is_next : {false, true}) {
        const Tensor input = at::randn({rows, size});
        const Tensor scale = at::randn({size});
        const Tensor out = at::randn({rows, size});
        const Tensor normed = at::empty({rows, size});
        const Tensor space = split_space(rows, size);
        cuda::RmsNormTask task = {input.const_data_ptr<float>(),
                                  scale.const_data_ptr<float>(),
                                  out.mutable_data_ptr<float>(),
                                  static_cast<int32_t>(rows),
                                  static_cast<int32_t>(size),
                                  1e-6F,
                                  is_next};
        task.next = is_next ? scale.const_data_ptr<float>() : nullptr;
        task.normed = is_next ? normed.mutable_data_ptr<float>() : nullptr;
        task.split = space.mutable_data_ptr();
        ASSERT_EQ(specdec_cuda_rms_norm(&task, nullptr), 0);
        expect_the_product_of(is_next ? normed : out, space);
      }
    }
  }
}

TEST(CudaSplitInputsTest, GatedActivationsSplitWhatTheyWrite) {
  at::manual_seed(3);
  for (const int64_t size : {1, 31, 64, 96, 256, 257, 800}) {
    for (const int64_t rows : {1, 9}) {
      const Tensor gate_up = at::randn({rows, 2 * size});
      const Tensor out = at::empty({rows, size});
      const Tensor space = split_space(rows, size);
      const cuda::GatedActivationTask task = {
          gate_up.const_data_ptr<float>(), out.mutable_data_ptr<float>(), rows, size, false,
          space.mutable_data_ptr()};
      ASSERT_EQ(specdec_cuda_gated_activation(&task, nullptr), 0);
      expect_the_product_of(out, space);
    }
  }
}

// Three heads of 32 are no whole chunk of 64 inputs; rotated values are another way through it.
TEST(CudaSplitInputsTest, AttentionSplitsWhatItWrites) {
  at::manual_seed(4);
  for (const KvRotation rotation : {KvRotation::kNone, KvRotation::kHadamard}) {
    for (const int64_t head_dim : {32, 64, 96}) {
      AttentionCase one = {at::kFloat, 3, 1, head_dim, 0, 0.0, false};
      one.rotation = rotation;
      one.format = rotation == KvRotation::kNone ? KvFormat::kNative : KvFormat::kQ4;
      AttentionCache cache(one);
      const Tensor queries = cache.extend({0, 0, 0, 1, 1, 1, 1, 1, 1},
                                          {-1, 0, 1, -1, 0, 1, 2, 3, 4}, cache.random_qkv(9));
      const Tensor space = split_space(9, 3 * head_dim);
      const Tensor out = cuda_attend(cache.kv().view(0), 0.0, queries, {}, space);
      EXPECT_TRUE(at::equal(out, cuda_attend(cache.kv().view(0), 0.0, queries)));
      expect_the_product_of(out.view({9, 3 * head_dim}), space);
    }
  }
}

TEST(CudaSplitInputsTest, AttentionRefusesToSplitHeadsOfAnotherSize) {
  AttentionCache cache({at::kFloat, 2, 1, 48, 0, 0.0, false});
  const Tensor queries = cache.extend({0}, {-1}, cache.random_qkv(1));
  Tensor out = at::empty_like(queries);
  cuda::PagedAttentionTask task =
      cuda::attention_task(queries, cache.kv().view(0), {0.3, 0.0, {}}, out);
  const Tensor workspace = at::empty({specdec_cuda_attention_workspace(&task)});
  task.workspace = workspace.mutable_data_ptr<float>();
  EXPECT_EQ(specdec_cuda_paged_attention(&task, nullptr), 0);
  const Tensor space = split_space(1, 96);
  task.split = space.mutable_data_ptr();
  EXPECT_EQ(specdec_cuda_paged_attention(&task, nullptr), cuda::kInvalidValue);
}

/// A norm and a product by the ops of a device.
class CudaSplitOpsTest : public testing::Test {
 protected:
  void SetUp() override { at::manual_seed(6); }

  Tensor linear(const Tensor& rows) const {
    Tensor out = at::full({rows.size(0), kOutputs}, std::numeric_limits<float>::quiet_NaN());
    ops_->linear(weight_, rows, out);
    return out;
  }
  void norm(Tensor& out) const { ops_->rms_norm(at::randn({2, kIn}), at::randn({kIn}), 1e-6, out); }
  /// The product by ops that have split nothing before.
  Tensor wanted(const Tensor& rows) const {
    return multiply(weight_, rows, split_space(rows.size(0), kIn), false);
  }

  static constexpr int64_t kIn = 96;
  std::shared_ptr<Ops> ops_ = cuda_ops(at::kCPU);
  Linear weight_ = product_of(kIn);
  Tensor first_ = linear(at::randn({2, kIn}));  // ops split from the first such product on
};

TEST_F(CudaSplitOpsTest, AProductOfWhatAnOpHasWritten) {
  Tensor rows = at::empty({2, kIn});
  norm(rows);
  EXPECT_TRUE(at::equal(linear(rows), wanted(rows)));
  EXPECT_TRUE(at::equal(linear(rows), wanted(rows))) << "once more";
}

TEST_F(CudaSplitOpsTest, WhatAnotherOpHasChangedIsSplitAnew) {
  Tensor rows = at::empty({2, kIn});
  norm(rows);
  ops_->add(rows, at::randn({2, kIn}));
  EXPECT_TRUE(at::equal(linear(rows), wanted(rows)));
}

TEST_F(CudaSplitOpsTest, OtherSizesAtTheSameAddressAreSplitAnew) {
  Tensor rows = at::empty({9, kIn});  // two tiles, whose sums lie elsewhere than those of one
  ops_->rms_norm(at::randn({9, kIn}), at::randn({kIn}), 1e-6, rows);
  const Tensor first = rows.narrow(0, 0, 1);
  EXPECT_TRUE(at::equal(linear(first), wanted(first)));
}

TEST_F(CudaSplitOpsTest, ATensorThatIsSplitLivesUntilAnotherOpRuns) {
  Tensor rows = at::empty({2, kIn});
  norm(rows);
  EXPECT_EQ(rows.use_count(), 2U) << "else another tensor may be given its memory";
  Tensor others = at::empty({2, kIn});
  ops_->copy(rows, others);
  EXPECT_EQ(rows.use_count(), 1U);
}

TEST_F(CudaSplitOpsTest, AGraphEndsWhatWasSplitBefore) {
  Tensor rows = at::empty({2, kIn});
  Tensor others = at::empty({2, kIn});
  Tensor product = at::empty({2, kOutputs});
  const Tensor input = at::randn({2, kIn});
  const Tensor scale = at::randn({kIn});
  const std::unique_ptr<OpsGraph> graph = ops_->record([&] {
    ops_->rms_norm(input, scale, 1e-6, others);
    ops_->linear(weight_, others, product);
  });
  EXPECT_TRUE(at::equal(linear(others.zero_()), at::zeros({2, kOutputs})))
      << "what was recorded has split nothing";
  norm(rows);
  graph->run();
  EXPECT_TRUE(at::equal(product, wanted(others)));
  EXPECT_TRUE(at::equal(linear(rows), wanted(rows)));
}

// The first run of a key may have been before there was a product on tensor cores.
TEST_F(CudaSplitOpsTest, AGraphSplitsNothingThatItHasNoMemoryFor) {
  Tensor rows = at::empty({20, kIn});  // of which ops that have multiplied two have no memory
  const Tensor input = at::randn({20, kIn});
  const Tensor scale = at::randn({kIn});
  const std::unique_ptr<OpsGraph> graph =
      ops_->record([&] { ops_->rms_norm(input, scale, 1e-6, rows); });
  graph->run();
  EXPECT_TRUE(at::equal(linear(rows), wanted(rows)));
}

TEST(CudaSplitInputsTest, AProductThatFollowsANormIsOneLaunch) {
  if (cuda::runs_on_a_gpu()) {
    GTEST_SKIP() << "the emulation counts launches";
  }
  const auto ops = cuda_ops(at::kCPU);
  const Linear weight = product_of(64);
  Tensor rows = at::empty({2, 64});
  Tensor out = at::empty({2, kOutputs});
  const auto launches = [&] {
    const uint64_t before = cuda::emulation::grid_count();
    ops->rms_norm(at::ones({2, 64}), at::ones({64}), 1e-6, rows);
    ops->linear(weight, rows, out);
    return cuda::emulation::grid_count() - before;
  };
  EXPECT_EQ(launches(), 3U) << "nothing is split before there was a product";
  EXPECT_EQ(launches(), 2U);
}

}  // namespace
}  // namespace specdec
