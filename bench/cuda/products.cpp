#include "bench/cuda/products.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <set>

#include "core/kernels/cuda/kernels.h"

namespace specdec::cuda {
namespace {

constexpr size_t kPatternBytes = size_t{1} << 20U;

uint16_t small_half(std::mt19937& random) {  // 2^-10 to 2^-8
  return static_cast<uint16_t>((random() % 2 + 5) << 10U | random() % 1024);
}

/// Random weights, all finite: float32, or numbers in place of a matrix's fragments. What each is
/// means nothing but in bfloat16; pairs of bytes are small float16 numbers where scales may lie.
std::vector<std::byte> random_weights(WeightFormat format) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 0.02F);
  std::vector<std::byte> bytes(kPatternBytes);
  const size_t size = format == WeightFormat::kFloat32 ? 4 : 2;
  for (size_t at = 0; at < bytes.size(); at += size) {
    if (format == WeightFormat::kFloat32 || format == WeightFormat::kBFloat16) {
      const float number = normal(random);
      // The upper half of a float32 is a bfloat16.
      std::memcpy(&bytes[at], reinterpret_cast<const std::byte*>(&number) + 4 - size, size);
    } else {
      const uint16_t half = small_half(random);
      std::memcpy(&bytes[at], &half, sizeof(half));
    }
  }
  return bytes;
}

DeviceArray random_inputs(const ProductSize& size) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(static_cast<size_t>(size.rows) * static_cast<size_t>(size.in));
  for (float& number : numbers) {
    number = normal(random);
  }
  return DeviceArray::of(numbers);
}

size_t weight_bytes(WeightFormat format, const ProductSize& size) {
  if (format == WeightFormat::kFloat32) {
    return sizeof(float) * static_cast<size_t>(size.outputs) * static_cast<size_t>(size.in);
  }
  return static_cast<size_t>(specdec_cuda_fragment_bytes(size.outputs, size.in, format));
}

DeviceArray new_results(const ProductSize& size) {
  DeviceArray out(sizeof(float) * static_cast<size_t>(size.rows) *
                  static_cast<size_t>(size.outputs));
  out.tile(std::vector<std::byte>(4096, std::byte{0xFF}));  // NaN
  return out;
}

/// specdec_cuda_linear.
PreparedProduct prepare_plain(const ProductSize& size, int copies) {
  const size_t bytes = weight_bytes(WeightFormat::kFloat32, size);
  const DeviceArray weights(bytes * static_cast<size_t>(copies));
  weights.tile(random_weights(WeightFormat::kFloat32));
  const DeviceArray inputs = random_inputs(size);
  const DeviceArray out = new_results(size);
  return {bytes, out, [=](int copy, int rows, void* stream) {
            LinearTask task{};
            task.weight =
                weights.data<float>() + static_cast<size_t>(copy) * (bytes / sizeof(float));
            task.input = inputs.data<float>();
            task.out = out.data<float>();
            task.out_stride = size.outputs;
            task.rows = rows;
            task.in = size.in;
            task.outputs = size.outputs;
            check(specdec_cuda_linear(&task, stream), "specdec_cuda_linear");
          }};
}

/// specdec_cuda_tensor_linear.
PreparedProduct prepare_tensor(WeightFormat format, const ProductSize& size, int copies) {
  const size_t bytes = weight_bytes(format, size);
  const DeviceArray fragments(bytes * static_cast<size_t>(copies));
  fragments.tile(random_weights(format));
  const DeviceArray inputs = random_inputs(size);
  const DeviceArray workspace(static_cast<size_t>(specdec_cuda_split_bytes(size.rows, size.in)));
  const DeviceArray out = new_results(size);
  return {bytes, out, [=](int copy, int rows, void* stream) {
            TensorLinearTask task{};
            task.fragments = fragments.data() + static_cast<size_t>(copy) * bytes;
            task.input = inputs.data<float>();
            task.workspace = workspace.data();
            task.out = out.data<float>();
            task.out_stride = size.outputs;
            task.rows = rows;
            task.in = size.in;
            task.outputs = size.outputs;
            task.format = format;
            check(specdec_cuda_tensor_linear(&task, stream), "specdec_cuda_tensor_linear");
          }};
}

/// Experts of each token, for one choice after the other: [choices * tokens * chosen].
std::vector<int32_t> random_choices(const ExpertSize& size, int choices) {
  std::mt19937 random(3);
  std::vector<int32_t> all(static_cast<size_t>(size.count));
  std::iota(all.begin(), all.end(), 0);
  std::vector<int32_t> experts;
  for (int token = 0; token < choices * size.tokens; ++token) {
    std::shuffle(all.begin(), all.end(), random);
    experts.insert(experts.end(), all.begin(), all.begin() + size.chosen);
  }
  return experts;
}

PreparedExperts prepare_experts(WeightFormat format, const ExpertSize& size, int choices) {
  const ProductSize matrix = {size.outputs, size.in, size.tokens};
  const size_t bytes = weight_bytes(format, matrix);
  const DeviceArray weights(bytes * static_cast<size_t>(size.count));
  weights.tile(random_weights(format));
  const DeviceArray inputs = random_inputs(matrix);
  const DeviceArray workspace(static_cast<size_t>(specdec_cuda_split_bytes(size.tokens, size.in)));
  const DeviceArray out = new_results({size.outputs, size.in, size.tokens * size.chosen});
  const std::vector<int32_t> choice_of = random_choices(size, choices);
  const DeviceArray experts = DeviceArray::of(choice_of);
  const auto run = [=](int choice, int tokens, void* stream) {
    ExpertLinearTask task{};
    task.weight = weights.data();
    task.expert_bytes = static_cast<int64_t>(bytes);
    task.format = format;
    task.experts = experts.data<int32_t>() + choice * size.tokens * size.chosen;
    task.input = inputs.data<float>();
    task.out = out.data<float>();
    task.pairs = tokens * size.chosen;
    task.rows_share = size.chosen;
    task.count = size.count;
    task.in = size.in;
    task.outputs = size.outputs;
    task.workspace = workspace.data();
    check(format == WeightFormat::kFloat32 ? specdec_cuda_expert_linear(&task, stream)
                                           : specdec_cuda_tensor_experts(&task, stream),
          "a product with experts");
  };
  const auto matrix_bytes = [=](int tokens) {
    size_t distinct = 0;
    for (int choice = 0; choice < choices; ++choice) {
      const auto first = choice_of.begin() + choice * size.tokens * size.chosen;
      distinct += std::set<int32_t>(first, first + tokens * size.chosen).size();
    }
    return distinct * bytes / static_cast<size_t>(choices);
  };
  return {out, run, matrix_bytes};
}

/// A format and inputs of its blocks. Float32 is multiplied plainly, all others on tensor cores.
struct ProductFormat {
  const char* name;
  WeightFormat format;
  int32_t block;

  const char* kernel() const { return format == WeightFormat::kFloat32 ? "plain" : "tensor"; }
};

// A line for each kernel.
constexpr ProductFormat kProductFormats[] = {{"bfloat16", WeightFormat::kBFloat16, 1},
                                             {"float16", WeightFormat::kFloat16, 1},
                                             {"Q8_0", WeightFormat::kInt8, 32},
                                             {"Q4_0", WeightFormat::kQ40, 32},
                                             {"Q4_1", WeightFormat::kQ41, 32},
                                             {"Q5_0", WeightFormat::kQ50, 32},
                                             {"Q5_1", WeightFormat::kQ51, 32},
                                             {"Q2_K", WeightFormat::kQ2K, 256},
                                             {"Q3_K", WeightFormat::kQ3K, 256},
                                             {"Q4_K", WeightFormat::kQ4K, 256},
                                             {"Q5_K", WeightFormat::kQ5K, 256},
                                             {"Q6_K", WeightFormat::kQ6K, 256},
                                             {"FP8_128", WeightFormat::kFp8x128, 128},
                                             {"FP8_32", WeightFormat::kFp8x32, 32},
                                             {"INT4_128", WeightFormat::kInt4x128, 128},
                                             {"INT4_32", WeightFormat::kInt4x32, 32},
                                             {"FP4_16", WeightFormat::kFp4x16, 16},
                                             {"FP4_32", WeightFormat::kFp4x32, 32},
                                             {"NF4_32", WeightFormat::kNf4x32, 32},
                                             {"AFFINE8_64", WeightFormat::kAffine8x64, 64},
                                             {"AFFINE4_32", WeightFormat::kAffine4x32, 32},
                                             {"float32", WeightFormat::kFloat32, 1}};

}  // namespace

std::vector<ExpertKernel> expert_kernels() {
  std::vector<ExpertKernel> kernels;
  for (const ProductFormat& one : kProductFormats) {
    kernels.push_back({one.name, one.kernel(), one.block,
                       [format = one.format](const ExpertSize& size, int choices) {
                         return prepare_experts(format, size, choices);
                       }});
  }
  return kernels;
}

std::vector<ProductKernel> product_kernels() {
  std::vector<ProductKernel> kernels;
  for (const ProductFormat& one : kProductFormats) {
    const WeightFormat format = one.format;
    kernels.push_back({one.name, one.kernel(), one.block,
                       [format](const ProductSize& size) { return weight_bytes(format, size); },
                       [format](const ProductSize& size, int copies) {
                         return format == WeightFormat::kFloat32
                                    ? prepare_plain(size, copies)
                                    : prepare_tensor(format, size, copies);
                       }});
  }
  return kernels;
}

}  // namespace specdec::cuda
