// Bits of a row or node alone, and among 1 to 63 others that hold random numbers, infinities and
// NaN: every product and attention over chains, trees and windows.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "core/kernels/cuda/cuda_arguments.h"
#include "core/kernels/cuda/cuda_cache_tasks.h"
#include "core/kernels/linear.h"
#include "core/kernels/weight_fragments.h"
#include "tests/core/kernels/attention_case.h"
#include "tests/core/kernels/cuda/machine.h"
#include "tests/support/parameter_name.h"
#include "tests/support/stored_blocks.h"

namespace specdec {
namespace {

constexpr float kInfiniteWidth = std::numeric_limits<float>::infinity();
constexpr float kNanWidth = std::numeric_limits<float>::quiet_NaN();

/// Widths to try; few in the emulation.
std::vector<int64_t> widths() {
  if (cuda::runs_on_a_gpu()) {
    return {2, 3, 7, 8, 9, 16, 17, 32, 33, 63, 64};
  }
  return {2, 9};
}

bool same_bits(const Tensor& a, const Tensor& b) {
  const Tensor x = a.contiguous();
  const Tensor y = b.contiguous();
  return x.sizes() == y.sizes() &&
         std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

/// What stands beside the row that is looked at.
void fill_other(const Tensor& row, int64_t index) {
  switch (index % 4) {
    case 0:
      row.fill_(kInfiniteWidth);
      break;
    case 1:
      row.fill_(kNanWidth);
      break;
    case 2:
      row.mul_(1e30);
      break;
    default:
      break;
  }
}

/// out = input * weight^T by a kernel: [rows, in] -> [rows, out].
using Product = std::function<Tensor(const Tensor& input)>;

struct WidthMatrix {
  int64_t out, in;
};

Tensor stored_weight(WeightFormat format, WidthMatrix size) {
  if (!is_in_blocks(format)) {
    return at::randn({size.out, size.in}).to(scalar_type(format));
  }
  const Linear rows =
      random_stored_rows(format, size.out, size.in, 5).packed({at::kCPU, WeightLayout::kRows});
  return rows.parts().front().packed;
}

/// A product by specdec_cuda_linear.
Product plain_product(WidthMatrix size) {
  const Tensor weight = at::randn({size.out, size.in});
  return [=](const Tensor& input) {
    const Tensor out = at::full({input.size(0), size.out}, kNanWidth);
    cuda::LinearTask task{};
    task.weight = weight.const_data_ptr<float>();
    task.input = input.const_data_ptr<float>();
    task.out = out.mutable_data_ptr<float>();
    task.out_stride = size.out;
    task.rows = static_cast<int32_t>(input.size(0));
    task.in = static_cast<int32_t>(size.in);
    task.outputs = static_cast<int32_t>(size.out);
    EXPECT_EQ(specdec_cuda_linear(&task, nullptr), 0);
    return out;
  };
}

/// A product by specdec_cuda_tensor_linear.
Product tensor_product(WeightFormat host, WidthMatrix size) {
  const auto out_count = static_cast<int32_t>(size.out);
  const auto in_count = static_cast<int32_t>(size.in);
  const Tensor fragments = pack_fragments(stored_weight(host, size), host);
  return [=](const Tensor& input) {
    const auto rows = static_cast<int32_t>(input.size(0));
    const Tensor out = at::full({input.size(0), size.out}, kNanWidth);
    const Tensor workspace =
        at::full({cuda::specdec_cuda_split_bytes(rows, in_count)}, 255, at::kByte);
    cuda::TensorLinearTask task{};
    task.fragments = fragments.const_data_ptr();
    task.input = input.const_data_ptr<float>();
    task.workspace = workspace.mutable_data_ptr();
    task.out = out.mutable_data_ptr<float>();
    task.out_stride = size.out;
    task.rows = rows;
    task.in = in_count;
    task.outputs = out_count;
    task.format = cuda::kernel_format(host);
    EXPECT_EQ(specdec_cuda_tensor_linear(&task, nullptr), 0);
    return out;
  };
}

struct WidthFormat {
  std::string name;
  std::function<Product(WidthMatrix)> make;
};

void PrintTo(const WidthFormat& one, std::ostream* out) { *out << one.name; }

WidthFormat tensor(WeightFormat host) {
  return {std::string("tensor_") + format_name(host),
          [=](WidthMatrix size) { return tensor_product(host, size); }};
}

class CudaProductWidthTest : public testing::TestWithParam<WidthFormat> {};

TEST_P(CudaProductWidthTest, ARowHasItsBitsAloneAndAmongOthers) {
  at::manual_seed(21);
  std::vector<WidthMatrix> sizes = {{18, 512}};
  if (cuda::runs_on_a_gpu()) {
    sizes = {{18, 512}, {640, 2560}, {8209, 1280}};
  }
  for (const WidthMatrix size : sizes) {
    const Product product = GetParam().make(size);
    const Tensor row = at::randn({1, size.in});
    const Tensor alone = product(row);
    EXPECT_TRUE(alone.isfinite().all().item<bool>());
    for (const int64_t width : widths()) {
      for (const int64_t at_row : {int64_t{0}, width / 2, width - 1}) {
        const Tensor input = at::randn({width, size.in});
        for (int64_t other = 0; other < width; ++other) {
          fill_other(input[other], other);
        }
        input[at_row].copy_(row[0]);
        EXPECT_TRUE(same_bits(product(input)[at_row], alone[0]))
            << size.out << " x " << size.in << ", row " << at_row << " of " << width;
      }
    }
  }
}

// A line for each product.
INSTANTIATE_TEST_SUITE_P(
    Formats, CudaProductWidthTest,
    testing::Values(WidthFormat{"float32", plain_product}, tensor(WeightFormat::kBFloat16),
                    tensor(WeightFormat::kFloat16), tensor(WeightFormat::kInt8),
                    tensor(WeightFormat::kQ40), tensor(WeightFormat::kQ41),
                    tensor(WeightFormat::kQ50), tensor(WeightFormat::kQ51),
                    tensor(WeightFormat::kQ2K), tensor(WeightFormat::kQ3K),
                    tensor(WeightFormat::kQ4K), tensor(WeightFormat::kQ5K),
                    tensor(WeightFormat::kQ6K), tensor(WeightFormat::kFp8x128),
                    tensor(WeightFormat::kFp8x32), tensor(WeightFormat::kInt4x128),
                    tensor(WeightFormat::kInt4x32), tensor(WeightFormat::kFp4x16),
                    tensor(WeightFormat::kFp4x32), tensor(WeightFormat::kNf4x32),
                    tensor(WeightFormat::kAffine8x64), tensor(WeightFormat::kAffine4x32)),
    ParameterName());

Tensor attend_width(const AttentionCache& cache, const Tensor& queries) {
  Tensor out = at::full_like(queries, kNanWidth);
  cuda::PagedAttentionTask task = cuda::attention_task(
      queries, cache.kv().view(0), {AttentionCache::kScale, cache.shape().soft_cap, Tensor()}, out);
  const Tensor workspace = at::full({specdec_cuda_attention_workspace(&task)}, kNanWidth);
  task.workspace = workspace.mutable_data_ptr<float>();
  EXPECT_EQ(specdec_cuda_paged_attention(&task, nullptr), 0);
  return out;
}

class CudaAttentionWidthTest : public testing::TestWithParam<AttentionCase> {
 protected:
  static void keep_all(AttentionCache& cache, int64_t row, int64_t tokens) {
    std::vector<int64_t> path(static_cast<size_t>(tokens));
    std::iota(path.begin(), path.end(), 0);
    cache.kv().commit(row, path);
  }

  Tensor random_qkv(int64_t nodes) const {
    const AttentionCase& c = GetParam();
    return at::randn({nodes, (c.heads + 2 * c.kv_heads) * c.head_dim});
  }

  /// What a node of the drafted tokens attends to when its path is kept and it is decoded alone.
  Tensor decode_alone(const Tensor& prompt, const Tensor& drafted,
                      const std::vector<int64_t>& parents, int64_t node) const {
    std::vector<int64_t> path;
    for (int64_t n = node; n >= 0; n = parents[static_cast<size_t>(n)]) {
      path.insert(path.begin(), n);
    }
    const Tensor tokens = at::cat({prompt, drafted.index_select(0, at::tensor(path, at::kLong))});
    const int64_t kept = tokens.size(0) - 1;
    AttentionCache alone(GetParam());
    alone.extend({}, {}, tokens.narrow(0, 0, kept));
    keep_all(alone, 0, kept);
    return attend_width(alone, alone.extend({}, {}, tokens.narrow(0, kept, 1)))[0];
  }

  /// Row 1 drafts a chain or a tree; of row 0 half as many nodes come first, which hold anything.
  void expect_bits_of_decoding(int64_t length, int64_t width, const std::vector<int64_t>& parents) {
    const Tensor prompt = random_qkv(length);
    const Tensor drafted = random_qkv(width);
    const Tensor foreign = random_qkv(width / 2);
    for (int64_t other = 0; other < foreign.size(0); ++other) {
      fill_other(foreign[other], other);
    }
    AttentionCache cache(GetParam());
    std::vector<int64_t> rows(20, 0);
    rows.insert(rows.end(), static_cast<size_t>(length), 1);
    cache.extend(rows, {}, at::cat({random_qkv(20), prompt}));
    keep_all(cache, 0, 20);
    keep_all(cache, 1, length);
    rows.assign(static_cast<size_t>(foreign.size(0)), 0);
    rows.insert(rows.end(), static_cast<size_t>(width), 1);
    std::vector<int64_t> all_parents(static_cast<size_t>(foreign.size(0)), -1);
    all_parents.insert(all_parents.end(), parents.begin(), parents.end());
    const Tensor among =
        attend_width(cache, cache.extend(rows, all_parents, at::cat({foreign, drafted})));
    for (const int64_t node : {int64_t{0}, width / 2, width - 1}) {
      EXPECT_TRUE(
          same_bits(decode_alone(prompt, drafted, parents, node), among[foreign.size(0) + node]))
          << "node " << node << " of " << width << " after " << length;
    }
  }

  static std::vector<int64_t> lengths() {
    return cuda::runs_on_a_gpu() ? std::vector<int64_t>{1, 100, 127, 128, 300, 1100}
                                 : std::vector<int64_t>{124};
  }

  std::mt19937_64 random_{22};
};

TEST_P(CudaAttentionWidthTest, ANodeOfAChainHasTheBitsOfDecoding) {
  at::manual_seed(22);
  for (const int64_t length : lengths()) {
    for (const int64_t width : widths()) {
      std::vector<int64_t> parents(static_cast<size_t>(width));
      std::iota(parents.begin(), parents.end(), -1);
      expect_bits_of_decoding(length, width, parents);
    }
  }
}

TEST_P(CudaAttentionWidthTest, ANodeOfATreeHasTheBitsOfDecoding) {
  at::manual_seed(23);
  for (const int64_t length : lengths()) {
    for (const int64_t width : widths()) {
      std::vector<int64_t> parents;
      for (int64_t node = 0; node < width; ++node) {
        parents.push_back(std::max<int64_t>(-1, node - 1 - static_cast<int64_t>(random_() % 4)));
      }
      expect_bits_of_decoding(length, width, parents);
    }
  }
}

// A line for each geometry.
INSTANTIATE_TEST_SUITE_P(
    Shapes, CudaAttentionWidthTest,
    testing::Values(AttentionCase{at::kFloat, 4, 1, 64, 0, 0, false, 16},
                    AttentionCase{at::kFloat, 9, 3, 64, 100, 0, false, 16, KvFormat::kBFloat16},
                    AttentionCase{at::kFloat, 8, 4, 128, 130, 50, false, 32, KvFormat::kBFloat16},
                    AttentionCase{at::kFloat, 4, 1, 256, 0, 0, false, 16, KvFormat::kBFloat16},
                    AttentionCase{at::kFloat, 8, 1, 256, 512, 0, false, 16},
                    AttentionCase{at::kFloat, 2, 1, 512, 0, 0, false, 16},
                    AttentionCase{at::kFloat, 4, 1, 64, 50, 0, false, 16, KvFormat::kNative, 4},
                    AttentionCase{at::kFloat, 4, 2, 64, 0, 0, false, 16, KvFormat::kFloat16},
                    AttentionCase{at::kFloat, 4, 1, 128, 100, 0, false, 16, KvFormat::kFp8E4m3},
                    AttentionCase{at::kFloat, 6, 2, 64, 0, 0, false, 16, KvFormat::kQ8},
                    AttentionCase{at::kFloat, 4, 1, 256, 60, 0, false, 16, KvFormat::kQ4, 9},
                    AttentionCase{at::kFloat, 4, 1, 96, 0, 5, false, 16, KvFormat::kQ3, 0,
                                  KvRotation::kHadamard},
                    AttentionCase{at::kFloat, 4, 2, 64, 0, 0, false, 16, KvFormat::kQ3, 0,
                                  KvRotation::kNone, 0, true},
                    AttentionCase{at::kFloat, 6, 2, 64, 80, 0, false, 16, KvFormat::kHierarchical},
                    AttentionCase{at::kFloat, 4, 1, 64, 0, 0, false, 16, KvFormat::kQ4, 0,
                                  KvRotation::kNone, 3},
                    AttentionCase{at::kFloat, 6, 2, 64, 120, 0, false, 16, KvFormat::kQ8, 9,
                                  KvRotation::kHadamard, 100},
                    AttentionCase{at::kFloat, 4, 1, 64, 0, 0, false, 32, KvFormat::kKivi2, 0,
                                  KvRotation::kNone, 64},
                    AttentionCase{at::kFloat, 6, 2, 128, 110, 0, false, 64, KvFormat::kKivi4, 4,
                                  KvRotation::kNone, 64}),
    ParameterName());

}  // namespace
}  // namespace specdec
