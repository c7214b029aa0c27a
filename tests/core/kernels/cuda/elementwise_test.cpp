// Gated activation, addition, soft cap, copies and gathers of rows, and argmax.
#include "core/kernels/elementwise.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "core/error.h"
#include "core/kernels/cuda/cuda_arguments.h"
#include "core/kernels/cuda/cuda_ops.h"
#include "core/kernels/cuda/emulation/emulation.h"
#include "core/kernels/cuda/gather_kernels.h"
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/cuda/launch_shape.h"
#include "core/kernels/forbidden_tokens.h"
#include "core/kernels/gated_activation.h"
#include "core/kernels/soft_cap.h"
#include "core/sampling.h"
#include "tests/support/max_difference.h"

namespace specdec {
namespace {

using Kind = cuda::ElementwiseTask::Kind;

constexpr float kNoNumber = std::numeric_limits<float>::quiet_NaN();

// The GPU's tests have their operands in pinned memory of the host: only this one sees a device.
TEST(CudaElementwiseTest, OperandsNeedNotLieInTheHostsMemory) {
  std::vector<double> memory(6);
  const auto on_device = [&memory](at::ScalarType dtype, at::IntArrayRef strides) {
    const at::Device device(at::kCUDA, 0);
    return at::for_blob(memory.data(), {2, 3})
        .strides(strides)
        .options(at::TensorOptions(dtype).device(device))
        .target_device(device)
        .make_tensor();
  };
  EXPECT_EQ(cuda::floats(on_device(at::kFloat, {3, 1})), static_cast<const void*>(memory.data()));
  EXPECT_THROW((void)cuda::floats(on_device(at::kFloat, {1, 2})), InternalError);
  EXPECT_THROW((void)cuda::floats(on_device(at::kDouble, {3, 1})), InternalError);
}

TEST(CudaElementwiseTest, ForbidsAsTheOpDoes) {
  at::manual_seed(4);
  const auto ops = cuda_ops(at::kCPU);
  for (const auto& tokens : {ForbiddenTokens(300, 0, {}), ForbiddenTokens(300, 0, {0, 299, 7}),
                             ForbiddenTokens(300, 290, {}), ForbiddenTokens(300, 40, {3, 39})}) {
    for (const int64_t columns : {300, 320}) {
      for (const int64_t rows : {0, 1, 5}) {
        Tensor logits = at::randn({rows, columns});
        Tensor expected = logits.clone();
        tokens.apply(expected);
        ops->forbid(tokens, logits);
        EXPECT_TRUE(at::equal(logits, expected)) << columns;
      }
    }
  }
  const cuda::ForbidTask task{nullptr, nullptr, 1, 4, 5, 0};
  EXPECT_EQ(specdec_cuda_forbid(&task, nullptr), cuda::kInvalidValue);
}

TEST(CudaElementwiseTest, GatesAsTheOpDoes) {
  at::manual_seed(1);
  for (const int64_t size : {1, 48, 256, 700}) {
    for (const int64_t rows : {0, 1, 5}) {
      for (const bool silu : {false, true}) {
        const Tensor gate_up = at::randn({rows, 2 * size}) * 4;
        Tensor expected = at::empty({rows, size});
        const Tensor out = at::full({rows, size}, kNoNumber);
        gated_activation(gate_up, silu ? Activation::kSilu : Activation::kGeluTanh, expected);
        const cuda::GatedActivationTask task = {gate_up.const_data_ptr<float>(),
                                                out.mutable_data_ptr<float>(), rows, size, silu};
        ASSERT_EQ(specdec_cuda_gated_activation(&task, nullptr), 0);
        EXPECT_TRUE(at::allclose(out, expected, 2e-6, 1e-6)) << rows << " " << size;
      }
    }
  }
}

void cuda_elementwise(Kind kind, const Tensor& input, double number, const Tensor& out) {
  const cuda::ElementwiseTask task = {kind, input.const_data_ptr<float>(),
                                      out.mutable_data_ptr<float>(), out.numel(),
                                      static_cast<float>(number)};
  ASSERT_EQ(specdec_cuda_elementwise(&task, nullptr), 0);
}

TEST(CudaElementwiseTest, AddsAndCapsAsTheOpsDo) {
  at::manual_seed(2);
  for (const int64_t size : {0, 1, 255, 256, 1000}) {
    const Tensor input = at::randn({size}) * 50;
    Tensor expected = at::randn({size});
    Tensor out = expected.clone();
    add_to(expected, input);
    cuda_elementwise(Kind::kAdd, input, 0, out);
    EXPECT_TRUE(at::equal(out, expected));

    expected = input.clone().view({1, size});
    out = input.clone();
    soft_cap(expected, 30);
    cuda_elementwise(Kind::kSoftCap, out, 30, out);
    EXPECT_TRUE(at::allclose(out, expected[0], 2e-6, 1e-6));
  }
}

cuda::CopyRowsTask copy_of(const Tensor& input, float factor, const Tensor& out) {
  return {input.const_data_ptr<float>(),
          nullptr,
          out.mutable_data_ptr<float>(),
          out.size(1),
          input.size(0),
          static_cast<int32_t>(input.size(1)),
          factor};
}

TEST(CudaCopyRowsTest, CopiesAndScalesAsTheOpsDo) {
  at::manual_seed(4);
  for (const int64_t rows : {0, 1, 5}) {
    for (const int64_t columns : {1, 31, 700}) {
      const Tensor input = at::randn({rows, columns});
      const Tensor scale = at::randn({columns});
      Tensor expected = at::empty_like(input);
      const Tensor out = at::full_like(input, kNoNumber);
      cuda::CopyRowsTask task = copy_of(input, 1.7F, out);
      scaled_copy(input, 1.7, expected);
      ASSERT_EQ(specdec_cuda_copy_rows(&task, nullptr), 0);
      EXPECT_TRUE(at::equal(out, expected));

      task.factor = 1.0F;
      task.scale = scale.const_data_ptr<float>();
      multiply_rows(input, scale, expected);
      ASSERT_EQ(specdec_cuda_copy_rows(&task, nullptr), 0);
      EXPECT_TRUE(at::equal(out, expected));

      task.input = task.out;  // in place
      ASSERT_EQ(specdec_cuda_copy_rows(&task, nullptr), 0);
      EXPECT_TRUE(at::equal(out, expected * scale));
    }
  }
}

TEST(CudaCopyRowsTest, WritesColumnsOfAWiderArray) {
  at::manual_seed(5);
  const Tensor left = at::randn({3, 40});
  const Tensor right = at::randn({3, 300});
  const Tensor out = at::full({3, 341}, 7.0F);
  cuda::CopyRowsTask task = copy_of(left, 1.0F, out);
  ASSERT_EQ(specdec_cuda_copy_rows(&task, nullptr), 0);
  task = copy_of(right, 1.0F, out);
  task.out += 40;
  ASSERT_EQ(specdec_cuda_copy_rows(&task, nullptr), 0);
  EXPECT_TRUE(at::equal(out, at::cat({left, right, at::full({3, 1}, 7.0F)}, 1)));
  task.out_stride = 299;
  EXPECT_EQ(specdec_cuda_copy_rows(&task, nullptr), cuda::kInvalidValue);
}

TEST(CudaGatherRowsTest, GathersAsTheOpDoes) {
  at::manual_seed(6);
  for (const int64_t columns : {1, 31, 700}) {
    const Tensor input = at::randn({4, columns});
    for (const std::vector<int32_t>& rows : std::vector<std::vector<int32_t>>{
             {}, {2}, {0, 0, 0}, {3, 1, 2, 0}, {1, 1, 3, 3, 0, 2, 2}}) {
      const Tensor sources = at::tensor(rows, at::kInt);
      const Tensor out = at::full({std::ssize(rows), columns}, kNoNumber);
      Tensor wanted = at::empty_like(out);
      gather_rows(input, sources, wanted);
      const cuda::GatherRowsTask task{.input = input.const_data_ptr<float>(),
                                      .sources = sources.const_data_ptr<int32_t>(),
                                      .out = out.mutable_data_ptr<float>(),
                                      .rows = static_cast<int32_t>(rows.size()),
                                      .columns = static_cast<int32_t>(columns)};
      ASSERT_EQ(specdec_cuda_gather_rows(&task, nullptr), 0);
      EXPECT_TRUE(at::equal(out, wanted));
    }
  }
  cuda::GatherRowsTask negative{};
  negative.rows = -1;
  EXPECT_EQ(specdec_cuda_gather_rows(&negative, nullptr), cuda::kInvalidValue);
  Tensor out = at::zeros({2, 3});
  const auto ops = cuda_ops(at::kCPU);
  EXPECT_THROW(ops->gather_rows(at::zeros({2, 4}), at::zeros({2}, at::kInt), out), InternalError);
  EXPECT_THROW(ops->gather_rows(at::zeros({2, 3}), at::zeros({3}, at::kInt), out), InternalError);
}

struct FoundBest {
  std::vector<int32_t> ids;
  std::vector<float> largest;  // [rows, 2]
};

FoundBest cuda_argmax(const Tensor& rows, int64_t size) {
  const auto count = static_cast<size_t>(rows.size(0));
  FoundBest found = {std::vector<int32_t>(count, -9), std::vector<float>(2 * count)};
  cuda::ArgmaxTask task = {rows.const_data_ptr<float>(),
                           found.ids.data(),
                           found.largest.data(),
                           rows.size(1),
                           static_cast<int32_t>(count),
                           static_cast<int32_t>(size),
                           nullptr};
  std::vector<float> workspace(static_cast<size_t>(specdec_cuda_argmax_workspace(&task)));
  task.workspace = workspace.data();
  EXPECT_EQ(specdec_cuda_argmax(&task, nullptr), 0);
  return found;
}

TEST(CudaArgmaxTest, FindsTheLowestOfTheBest) {
  at::manual_seed(3);
  for (const int64_t size : {1, 40, 512, 1025, 8192, 8193, 20000}) {
    for (int seed = 0; seed < 5; ++seed) {
      cuda::emulation::set_seed(static_cast<uint64_t>(seed));
      const Tensor rows = at::randint(-20, seed < 3 ? 3 : 1000, {3, size + 7}, at::kFloat);
      rows.narrow(1, size, 7).fill_(2000);  // padding of the vocabulary
      const FoundBest found = cuda_argmax(rows, size);
      for (int64_t r = 0; r < 3; ++r) {
        const GreedyChoice best = greedy_choice(LogitRow::of(rows[r].narrow(0, 0, size)), {}, {});
        const auto at = static_cast<size_t>(r);
        EXPECT_EQ(found.ids[at], best.token) << size;
        EXPECT_EQ(found.largest[2 * at], rows[r][best.token].item<float>());
        EXPECT_EQ(found.largest[2 * at] - found.largest[2 * at + 1], best.gap);
      }
    }
  }
}

TEST(CudaArgmaxTest, NamesRowsThatHoldNoNumbers) {
  const Tensor rows = at::zeros({3, 1000});
  rows[1][777] = kNoNumber;
  rows[2].fill_(-std::numeric_limits<float>::infinity());
  rows[0][5] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(cuda_argmax(rows, 1000).ids, (std::vector<int32_t>{5, -1, 0}));
}

}  // namespace
}  // namespace specdec
