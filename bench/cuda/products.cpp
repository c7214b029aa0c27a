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

/// How a format's weights lie: blocks of some inputs, of which some bytes are float16 numbers.
struct BlockLayout {
  CudaWeights format;
  int32_t inputs;
  size_t bytes;
  std::vector<size_t> halves;  ///< offsets of float16 scales
};

uint16_t small_half(std::mt19937& random) {  // 2^-10 to 2^-8
  return static_cast<uint16_t>((random() % 2 + 5) << 10U | random() % 1024);
}

/// Blocks of random weights, all finite.
std::vector<std::byte> random_blocks(const BlockLayout& layout) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 0.02F);
  std::vector<std::byte> bytes(kPatternBytes / layout.bytes * layout.bytes);
  for (size_t at = 0; at < bytes.size(); at += layout.bytes) {
    if (layout.format == CudaWeights::kFloat32 || layout.format == CudaWeights::kBFloat16) {
      const float number = normal(random);
      // The upper half of a float32 is a bfloat16.
      std::memcpy(&bytes[at], reinterpret_cast<const std::byte*>(&number) + 4 - layout.bytes,
                  layout.bytes);
      continue;
    }
    for (size_t i = 0; i < layout.bytes; ++i) {
      bytes[at + i] = static_cast<std::byte>(random() & 0xFFU);
    }
    for (const size_t offset : layout.halves) {
      const uint16_t half = small_half(random);
      std::memcpy(&bytes[at + offset], &half, sizeof(half));
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

size_t stored_bytes(const BlockLayout& layout, const ProductSize& size) {
  return static_cast<size_t>(size.outputs) * static_cast<size_t>(size.in / layout.inputs) *
         layout.bytes;
}

DeviceArray new_results(const ProductSize& size) {
  DeviceArray out(sizeof(float) * static_cast<size_t>(size.rows) *
                  static_cast<size_t>(size.outputs));
  out.tile(std::vector<std::byte>(4096, std::byte{0xFF}));  // NaN
  return out;
}

/// specdec_cuda_linear.
PreparedProduct prepare_plain(const BlockLayout& layout, const ProductSize& size, int copies) {
  const size_t bytes = stored_bytes(layout, size);
  const DeviceArray weights(bytes * static_cast<size_t>(copies));
  weights.tile(random_blocks(layout));
  const DeviceArray inputs = random_inputs(size);
  const DeviceArray out = new_results(size);
  const CudaWeights format = layout.format;
  return {bytes, out, [=](int copy, int rows, void* stream) {
            LinearTask task{};
            task.weight = weights.data() + static_cast<size_t>(copy) * bytes;
            task.format = format;
            task.input = inputs.data<float>();
            task.out = out.data<float>();
            task.out_stride = size.outputs;
            task.rows = rows;
            task.in = size.in;
            task.outputs = size.outputs;
            check(specdec_cuda_linear(&task, stream), "specdec_cuda_linear");
          }};
}

ProductKernel plain(const std::string& format, const BlockLayout& layout) {
  return {format, "plain", layout.inputs,
          [=](const ProductSize& size) { return stored_bytes(layout, size); },
          [=](const ProductSize& size, int copies) { return prepare_plain(layout, size, copies); }};
}

const BlockLayout kBrain = {CudaWeights::kBFloat16, 1, 2, {}};

size_t fragment_bytes(CudaWeights format, const ProductSize& size) {
  return static_cast<size_t>(specdec_cuda_fragment_bytes(size.outputs, size.in, format));
}

/// Random numbers in place of a matrix's fragments: what each is means nothing. Pairs of bytes are
/// small float16 numbers where scales may lie.
std::vector<std::byte> random_fragments(CudaWeights format) {
  return random_blocks(format == CudaWeights::kBFloat16 ? kBrain : BlockLayout{format, 1, 2, {0}});
}

/// specdec_cuda_tensor_linear.
PreparedProduct prepare_tensor(CudaWeights format, const ProductSize& size, int copies) {
  const size_t bytes = fragment_bytes(format, size);
  const DeviceArray fragments(bytes * static_cast<size_t>(copies));
  fragments.tile(random_fragments(format));
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

ProductKernel tensor(const std::string& name, CudaWeights format, int32_t block_inputs) {
  return {
      name, "tensor", block_inputs,
      [=](const ProductSize& size) { return fragment_bytes(format, size); },
      [=](const ProductSize& size, int copies) { return prepare_tensor(format, size, copies); }};
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

PreparedExperts prepare_experts(const ProductKernel& kernel, const BlockLayout& layout,
                                const ExpertSize& size, int choices) {
  const bool on_tensor_cores = kernel.kernel == "tensor";
  const ProductSize matrix = {size.outputs, size.in, size.tokens};
  const size_t bytes = kernel.bytes(matrix);
  const DeviceArray weights(bytes * static_cast<size_t>(size.count));
  weights.tile(on_tensor_cores ? random_fragments(layout.format) : random_blocks(layout));
  const DeviceArray inputs = random_inputs(matrix);
  const DeviceArray workspace(static_cast<size_t>(specdec_cuda_split_bytes(size.tokens, size.in)));
  const DeviceArray out = new_results({size.outputs, size.in, size.tokens * size.chosen});
  const std::vector<int32_t> choice_of = random_choices(size, choices);
  const DeviceArray experts = DeviceArray::of(choice_of);
  const CudaWeights format = layout.format;
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
    check(on_tensor_cores ? specdec_cuda_tensor_experts(&task, stream)
                          : specdec_cuda_expert_linear(&task, stream),
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

ExpertKernel experts(const ProductKernel& kernel, const BlockLayout& layout) {
  return {kernel.format, kernel.kernel, kernel.block_inputs,
          [=](const ExpertSize& size, int choices) {
            return prepare_experts(kernel, layout, size, choices);
          }};
}

/// Formats that tensor cores multiply with, and inputs of their blocks.
struct TensorFormat {
  const char* name;
  CudaWeights format;
  int32_t block;
};
constexpr TensorFormat kTensorFormats[] = {{"bfloat16", CudaWeights::kBFloat16, 1},
                                           {"float16", CudaWeights::kFloat16, 1},
                                           {"Q8_0", CudaWeights::kQ80, 32},
                                           {"Q4_0", CudaWeights::kQ40, 32},
                                           {"Q4_K", CudaWeights::kQ4K, 256},
                                           {"Q6_K", CudaWeights::kQ6K, 256},
                                           {"FP8_128", CudaWeights::kFp8x128, 128},
                                           {"INT4_128", CudaWeights::kInt4x128, 128},
                                           {"AFFINE8_64", CudaWeights::kAffine8x64, 64},
                                           {"AFFINE4_32", CudaWeights::kAffine4x32, 32}};

}  // namespace

std::vector<ExpertKernel> expert_kernels() {
  std::vector<ExpertKernel> kernels;
  for (const TensorFormat& one : kTensorFormats) {
    kernels.push_back(experts(tensor(one.name, one.format, one.block), {one.format, 1, 2, {}}));
  }
  kernels.push_back(experts(plain("bfloat16", kBrain), kBrain));
  return kernels;
}

// A line for each, or in kTensorFormats.
std::vector<ProductKernel> product_kernels() {
  std::vector<ProductKernel> kernels;
  for (const TensorFormat& one : kTensorFormats) {
    kernels.push_back(tensor(one.name, one.format, one.block));
  }
  for (const ProductKernel& each : {
           plain("bfloat16", kBrain),
           plain("float32", {CudaWeights::kFloat32, 1, 4, {}}),
           plain("float16", {CudaWeights::kFloat16, 1, 2, {0}}),
           plain("Q8_0", {CudaWeights::kQ80, 32, 34, {0}}),
           plain("Q4_0", {CudaWeights::kQ40, 32, 18, {0}}),
           plain("Q4_K", {CudaWeights::kQ4K, 256, 144, {0, 2}}),
           plain("Q6_K", {CudaWeights::kQ6K, 256, 210, {208}}),
           // The upper half of a float32 scale.
           plain("FP4_32", {CudaWeights::kFp4x32, 32, 20, {2}}),
       }) {
    kernels.push_back(each);
  }
  return kernels;
}

}  // namespace specdec::cuda
