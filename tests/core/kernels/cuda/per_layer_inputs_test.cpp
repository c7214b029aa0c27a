// Gemma 3n's sparse gate and the layers' own inputs.
#include "core/kernels/per_layer_inputs.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "core/kernels/cuda/emulation/emulation.h"
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/cuda/launch_shape.h"
#include "core/kernels/sparse_gate.h"

namespace specdec {
namespace {

void cuda_cut_gate(const Tensor& gate_up, double deviations) {
  const cuda::CutGateTask task = {
      gate_up.mutable_data_ptr<float>(), static_cast<int32_t>(gate_up.size(0)),
      static_cast<int32_t>(gate_up.size(1) / 2), static_cast<float>(deviations)};
  ASSERT_EQ(specdec_cuda_cut_gate(&task, nullptr), 0);
}

TEST(CudaSparseGateTest, CutsAsTheOpDoes) {
  at::manual_seed(31);
  for (const int64_t size : {1, 48, 256, 700}) {
    for (const int64_t rows : {0, 1, 5}) {
      for (const double deviations : {0.0, 1.6448536, -0.5}) {
        cuda::emulation::set_seed(static_cast<uint64_t>(size + rows));
        const Tensor gate_up = at::randn({rows, 2 * size}) + 3;
        Tensor expected = gate_up.clone();
        cut_gate(expected, deviations);
        const Tensor alone = gate_up.narrow(0, rows / 2, rows > 0 ? 1 : 0).clone();
        cuda_cut_gate(gate_up, deviations);
        EXPECT_TRUE(at::allclose(gate_up, expected, 1e-6, 1e-6)) << rows << " " << size;
        cuda_cut_gate(alone, deviations);
        EXPECT_TRUE(at::equal(alone, gate_up.narrow(0, rows / 2, alone.size(0))));
      }
    }
  }
}

TEST(CudaPerLayerInputsTest, EqualTheOps) {
  at::manual_seed(32);
  for (const int64_t size : {2, 64, 256, 300}) {
    for (const int64_t layers : {1, 5}) {
      for (const int64_t rows : {0, 1, 3}) {
        cuda::emulation::set_seed(static_cast<uint64_t>(size + rows));
        const Tensor context = at::randn({rows, layers * size}) * 9;
        const Tensor token = at::randn({rows, layers * size});
        const PerLayerOptions options = {at::randn({size}), 1e-6, 0.125};
        Tensor expected = at::empty({layers, rows, size});
        per_layer_inputs(context, token, options, expected);
        const Tensor out = at::full_like(expected, std::numeric_limits<float>::quiet_NaN());
        const cuda::PerLayerInputsTask task = {context.const_data_ptr<float>(),
                                               token.const_data_ptr<float>(),
                                               options.norm.const_data_ptr<float>(),
                                               out.mutable_data_ptr<float>(),
                                               static_cast<int32_t>(rows),
                                               static_cast<int32_t>(layers),
                                               static_cast<int32_t>(size),
                                               1e-6F,
                                               0.125F};
        ASSERT_EQ(specdec_cuda_per_layer_inputs(&task, nullptr), 0);
        EXPECT_TRUE(at::allclose(out, expected, 2e-6, 1e-6)) << rows << " " << size;
      }
    }
  }
}

TEST(CudaPerLayerInputsTest, RefusesEmptyRows) {
  cuda::CutGateTask gate{};
  gate.rows = 1;
  EXPECT_EQ(specdec_cuda_cut_gate(&gate, nullptr), cuda::kInvalidValue);
  cuda::PerLayerInputsTask task{};
  task.rows = 1;
  task.layers = 1;
  EXPECT_EQ(specdec_cuda_per_layer_inputs(&task, nullptr), cuda::kInvalidValue);
}

}  // namespace
}  // namespace specdec
