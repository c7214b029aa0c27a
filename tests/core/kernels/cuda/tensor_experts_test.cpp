#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "core/kernels/cuda/cuda_tasks.h"
#include "core/kernels/cuda/emulation/emulation.h"
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/cuda/launch_shape.h"
#include "core/kernels/linear_product.h"
#include "tests/core/kernels/cuda/machine.h"
#include "tests/core/kernels/cuda/rounding_errors.h"
#include "tests/support/stored_blocks.h"

namespace specdec {
namespace {

constexpr float kNoProduct = std::numeric_limits<float>::quiet_NaN();

Tensor workspace_for(const cuda::ExpertLinearTask& task) {
  return at::full({cuda::specdec_cuda_split_bytes(task.pairs / task.rows_share, task.in)}, 255,
                  at::kByte);
}

/// Experts in fragments and on the host, and what they mean.
struct ExpertStack {
  std::vector<Linear> device, host;
  std::vector<Tensor> weight;     ///< of each [out, in] float64
  std::vector<Tensor> magnitude;  ///< of a weight; with minima, of both parts of the difference

  /// chosen [rows, any] -> [pairs, out]
  Tensor apply(const Tensor& input, const Tensor& chosen) const {
    Tensor out = at::full({chosen.numel(), host[0].out()}, kNoProduct);
    cuda::ExpertLinearTask task = cuda::expert_linear_task(device, input, chosen, out);
    const Tensor workspace = workspace_for(task);
    task.workspace = workspace.mutable_data_ptr();
    EXPECT_EQ(specdec_cuda_tensor_experts(&task, nullptr), 0);
    return out;
  }

  /// Product with an expert's matrix as with one that is no expert's: [rows, out].
  Tensor dense(size_t expert, const Tensor& input) const {
    const Linear& matrix = device[expert];
    Tensor out = at::empty({input.size(0), matrix.out()});
    cuda::TensorLinearTask task =
        cuda::tensor_linear_task(matrix, matrix.parts().front(), input, out);
    const Tensor workspace = at::empty(
        {cuda::specdec_cuda_split_bytes(static_cast<int32_t>(input.size(0)), task.in)}, at::kByte);
    task.workspace = workspace.mutable_data_ptr();
    EXPECT_EQ(specdec_cuda_tensor_linear(&task, nullptr), 0);
    return out;
  }
};

void add_expert(WeightFormat format, int64_t out, int64_t in, ExpertStack& stack) {
  const Placement rows{at::kCPU, WeightLayout::kRows};
  if (!is_in_blocks(format)) {
    const Tensor weight = at::randn({out, in}).to(scalar_type(format));
    stack.device.emplace_back(weight, format, Tensor(), rows);
    stack.host.emplace_back(weight, format);
    stack.weight.push_back(weight.to(at::kDouble));
    stack.magnitude.push_back(stack.weight.back().abs());
  } else {
    const StoredRows stored = random_stored_rows(format, out, in, stack.device.size());
    Linear matrix(out, in, format, rows);
    for (int64_t row = 0; row < out; ++row) {
      matrix.set_stored_row(row, stored.bytes[static_cast<size_t>(row)].data());
    }
    stack.device.push_back(matrix);
    stack.host.push_back(stored.packed());
    stack.weight.push_back(stored.values().to(at::kDouble));
    stack.magnitude.push_back(stored.magnitudes().to(at::kDouble));
  }
  stack.device.back().arrange();
}

ExpertStack random_stack(WeightFormat format, int64_t count, int64_t out, int64_t in) {
  ExpertStack stack;
  for (int64_t e = 0; e < count; ++e) {
    add_expert(format, out, in, stack);
  }
  join_rows(stack.device);
  return stack;
}

class CudaTensorExpertsTest : public testing::TestWithParam<WeightFormat> {
 protected:
  void SetUp() override { at::manual_seed(31); }
};

/// Fewer pairs than experts, as many, and more of one expert than a tile holds.
TEST_P(CudaTensorExpertsTest, EqualsTheProductInFloat64) {
  const int64_t in = is_in_blocks(GetParam()) ? 1280 : 1100;
  const ExpertStack stack = random_stack(GetParam(), 6, 35, in);
  cuda::RoundingErrors errors;
  for (const int64_t rows : {1, 3, 11}) {
    cuda::emulation::set_seed(static_cast<uint64_t>(rows));
    const Tensor input = at::randn({rows, in}) * at::randn({rows, 1}).exp();
    const Tensor chosen = at::randint(2, 6, {rows, 2}, at::kInt);
    chosen.select(1, 1).fill_(1);
    const Tensor result = stack.apply(input, chosen);
    for (int64_t pair = 0; pair < chosen.numel(); ++pair) {
      const auto expert = static_cast<size_t>(chosen.flatten()[pair].item<int32_t>());
      const Tensor row = input.narrow(0, pair / 2, 1);
      const Tensor exact = at::matmul(row.to(at::kDouble), stack.weight[expert].t())[0];
      const Tensor bound = at::matmul(row.abs().to(at::kDouble), stack.magnitude[expert].t())[0];
      EXPECT_TRUE(errors.are_small(result[pair], exact, bound)) << pair << " of " << rows;
      const Tensor host = linear_product(stack.host[expert], row)[0];
      const Tensor difference = (result[pair] - host).abs();
      EXPECT_TRUE((difference <= bound * 2 * cuda::tensor_tolerance()).all().item<bool>()) << pair;
      EXPECT_TRUE(at::equal(result[pair], stack.dense(expert, row)[0])) << pair;
    }
  }
}

TEST_P(CudaTensorExpertsTest, ATokenAmongOthersHasItsBitsAlone) {
  const std::vector<int64_t> widths = cuda::runs_on_a_gpu()
                                          ? std::vector<int64_t>{2, 3, 4, 7, 8, 9, 16, 17, 33, 40}
                                          : std::vector<int64_t>{2, 9, 40};
  const ExpertStack stack = random_stack(GetParam(), 4, 18, 768);
  const Tensor token = at::randn({1, 768});
  const Tensor alone = stack.apply(token, at::full({1, 1}, 2, at::kInt));
  EXPECT_TRUE(alone.isfinite().all().item<bool>());
  for (const int64_t width : widths) {
    for (const int64_t place : {int64_t{0}, width / 2, width - 1}) {
      const Tensor input = at::randn({width, 768});
      for (int64_t other = 0; other < width; other += 3) {
        input[other].fill_(other % 2 == 0 ? std::numeric_limits<float>::infinity() : kNoProduct);
      }
      const Tensor chosen = at::randint(1, 3, {width, 1}, at::kInt);
      input[place].copy_(token[0]);
      chosen[place].fill_(2);
      cuda::emulation::set_seed(static_cast<uint64_t>(width + place));
      EXPECT_TRUE(at::equal(stack.apply(input, chosen)[place], alone[0]))
          << place << " of " << width;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, CudaTensorExpertsTest,
                         testing::Values(WeightFormat::kBFloat16, WeightFormat::kFloat16,
                                         WeightFormat::kInt8, WeightFormat::kQ40,
                                         WeightFormat::kQ2K, WeightFormat::kQ3K, WeightFormat::kQ4K,
                                         WeightFormat::kQ5K, WeightFormat::kQ6K,
                                         WeightFormat::kFp8x128, WeightFormat::kInt4x128,
                                         WeightFormat::kAffine8x64, WeightFormat::kFp4x16),
                         [](const auto& info) { return std::string(format_name(info.param)); });

/// Two experts that nobody chose lie outside of all memory, and one is NaN.
TEST(CudaTensorExpertsReadTest, ReadsChosenExpertsAlone) {
  at::manual_seed(32);
  ExpertStack stack = random_stack(WeightFormat::kBFloat16, 3, 18, 70);
  std::memset(const_cast<void*>(stack.device[1].parts().front().packed.const_data_ptr()), 0xFF,
              static_cast<size_t>(stack.device[1].bytes()));
  for (const auto& numbers : {std::vector<int32_t>{3, -1, 5, 1},
                              std::vector<int32_t>{1, 3, 1, 0x7FFFFFFF, -7, 1, 3, 5}}) {
    const Tensor chosen = at::tensor(numbers, at::kInt).view({-1, 1});
    const Tensor input = at::randn({chosen.size(0), 70});
    Tensor out = at::full({chosen.numel(), 18}, kNoProduct);
    cuda::ExpertLinearTask task = cuda::expert_linear_task(stack.device, input, chosen, out);
    task.weight = static_cast<const std::byte*>(task.weight) - task.expert_bytes;
    task.count = 5;
    const Tensor workspace = workspace_for(task);
    task.workspace = workspace.mutable_data_ptr();
    EXPECT_EQ(specdec_cuda_tensor_experts(&task, nullptr), 0);
    for (size_t pair = 0; pair < numbers.size(); ++pair) {
      const Tensor found = out[static_cast<int64_t>(pair)];
      if (numbers[pair] != 1 && numbers[pair] != 3) {
        EXPECT_TRUE(found.isnan().all().item<bool>()) << "no expert, left as it was";
        continue;
      }
      const auto expert = static_cast<size_t>(numbers[pair] - 1);
      const Tensor row = input.narrow(0, static_cast<int64_t>(pair), 1);
      EXPECT_TRUE(at::equal(found, stack.dense(expert, row)[0])) << pair;
    }
  }
}

TEST(CudaTensorExpertsReadTest, RefusesWhatItCannotTake) {
  const ExpertStack stack = random_stack(WeightFormat::kInt8, 2, 16, 32);
  Tensor out = at::empty({1, 16});
  const Tensor chosen = at::zeros({1, 1}, at::kInt);
  cuda::ExpertLinearTask good =
      cuda::expert_linear_task(stack.device, at::ones({1, 32}), chosen, out);
  const Tensor workspace = workspace_for(good);
  good.workspace = workspace.mutable_data_ptr();
  const auto refused = [&good](auto change) {
    cuda::ExpertLinearTask task = good;
    change(task);
    return specdec_cuda_tensor_experts(&task, nullptr) == cuda::kInvalidValue;
  };
  EXPECT_TRUE(refused([](auto& task) { task.format = WeightFormat::kFloat32; }));
  EXPECT_TRUE(refused([](auto& task) { task.expert_bytes += 8; }));
  EXPECT_TRUE(refused([](auto& task) { task.weight = static_cast<const char*>(task.weight) + 4; }));
  EXPECT_TRUE(refused([](auto& task) { task.workspace = static_cast<char*>(task.workspace) + 8; }));
  EXPECT_TRUE(refused([](auto& task) { task.count = cuda::kMaxGridY + 1; }));
  EXPECT_TRUE(refused([](auto& task) { task.rows_share = 0; }));
}

}  // namespace
}  // namespace specdec
