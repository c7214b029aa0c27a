#include "core/kernels/norm.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "core/kernels/cuda/cuda_ops.h"
#include "core/kernels/cuda/emulation/emulation.h"
#include "core/kernels/cuda/kernels.h"
#include "tests/support/max_difference.h"

namespace specdec {
namespace {

constexpr double kCudaNormEps = 1e-6;

void cuda_norm(const Tensor& input, const Tensor& scale, bool add, const Tensor& out) {
  const cuda::RmsNormTask task = {input.const_data_ptr<float>(),
                                  scale.const_data_ptr<float>(),
                                  out.mutable_data_ptr<float>(),
                                  static_cast<int32_t>(input.size(0)),
                                  static_cast<int32_t>(input.size(1)),
                                  static_cast<float>(kCudaNormEps),
                                  add};
  ASSERT_EQ(specdec_cuda_rms_norm(&task, nullptr), 0);
}

TEST(CudaNormTest, EqualsTheOp) {
  at::manual_seed(1);
  for (const int64_t size : {1, 31, 32, 256, 257, 640, 2560}) {
    for (const int64_t rows : {0, 1, 3}) {
      cuda::emulation::set_seed(static_cast<uint64_t>(size + rows));
      const Tensor input = at::randn({rows, size}) * 3;
      const Tensor scale = at::randn({size}) + 1;
      Tensor expected = at::empty_like(input);
      const Tensor out = at::full_like(input, std::numeric_limits<float>::quiet_NaN());
      rms_norm(input, scale, kCudaNormEps, expected);
      cuda_norm(input, scale, false, out);
      EXPECT_TRUE(at::allclose(out, expected, 2e-6, 1e-6)) << rows << " " << size;

      expected = at::randn_like(input);
      out.copy_(expected);
      add_rms_norm(expected, input, scale, kCudaNormEps);
      cuda_norm(input, scale, true, out);
      EXPECT_TRUE(at::allclose(out, expected, 2e-6, 2e-6)) << rows << " " << size;
    }
  }
}

// In one launch: with a scale and without one, which is an addition.
TEST(CudaNormTest, ASumAndItsNormHaveTheBitsOfTwoOps) {
  at::manual_seed(3);
  const auto ops = cuda_ops(at::kCPU);
  for (const int64_t size : {1, 257, 640}) {
    for (const Tensor& scale : {Tensor(), at::randn({size}) + 1}) {
      const Tensor input = at::randn({3, size});
      const Tensor next = at::randn({size});
      Tensor residual = at::randn({3, size});
      Tensor wanted = residual.clone();
      Tensor normed = at::empty({3, size});
      Tensor wanted_normed = at::empty({3, size});
      ops->Ops::add_and_norm(wanted, input, scale, next, kCudaNormEps, wanted_normed);
      ops->add_and_norm(residual, input, scale, next, kCudaNormEps, normed);
      EXPECT_TRUE(at::equal(residual, wanted)) << size;
      EXPECT_TRUE(at::equal(normed, wanted_normed)) << size;
    }
  }
}

TEST(CudaNormTest, ARowAmongOthersHasItsOwnBits) {
  at::manual_seed(2);
  const Tensor input = at::randn({9, 640});
  input[3].fill_(std::numeric_limits<float>::quiet_NaN());
  input[4].fill_(std::numeric_limits<float>::infinity());
  const Tensor scale = at::randn({640});
  const Tensor all = at::empty_like(input);
  cuda_norm(input, scale, false, all);
  for (const int64_t row : {0, 5, 8}) {
    const Tensor alone = input.narrow(0, row, 1).clone();
    cuda::emulation::set_seed(static_cast<uint64_t>(row));
    cuda_norm(alone, scale, false, alone);
    EXPECT_TRUE(at::equal(alone[0], all[row]));
  }
}

}  // namespace
}  // namespace specdec
