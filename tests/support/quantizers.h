#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <utility>

#include "core/formats/dtype.h"

namespace specdec {

/// What a checkpoint holds of a matrix: tensors by the ends of their names, after those of the
/// weight or, with a dot, of the module; and the values.
struct QuantizedMatrix {
  std::map<std::string, std::pair<DType, at::Tensor>> tensors;
  at::Tensor values;
};

/// A way to store matrices, and the key of config.json that says it.
struct Quantizer {
  std::string name;
  std::function<QuantizedMatrix(const at::Tensor&)> quantize;
  nlohmann::json config;
  std::string format = "float32";  ///< that matrices should have in memory
};

void PrintTo(const Quantizer& quantizer, std::ostream* out);

/// compressed-tensors' config with one group, of all linear layers but the head.
nlohmann::json compressed_tensors(const std::string& format, const nlohmann::json& weights);

/// int8 with a scale for each row.
Quantizer int8_rows();
/// FP8 with a scale of this type for each row.
Quantizer fp8_rows(DType scales = DType::kF32);
/// The method fp8 with a scale for each block of so many rows and columns, as of DeepSeek and Qwen.
Quantizer fp8_blocks(int64_t size = 32);
/// compressed-tensors' FP8 with a scale for each block.
Quantizer fp8_block_strategy(int64_t size);
/// The method fp8 with one scale for a matrix.
Quantizer fp8_whole();
/// Integers of four bits with a bfloat16 scale for each 32 inputs.
Quantizer w4a16(bool symmetric);
/// Floats of four bits, as a library stores them.
enum class Float4 {
  kNvfp4,     ///< compressed-tensors' NVFP4: FP8 scales of 16 inputs, divided by the matrix's scale
  kModelopt,  ///< Model Optimizer's: multiplied by it
  kMxfp4      ///< compressed-tensors' MXFP4: powers of two, of 32 inputs
};
Quantizer float4(Float4 kind);
/// What differs among checkpoints of GPTQ.
struct GptqKind {
  int64_t bits = 4;
  int64_t group = 32;       ///< 0 = whole rows
  bool symmetric = true;    ///< zero points are the middle of the codes
  bool second = false;      ///< checkpoint_format gptq_v2
  bool is_ordered = false;  ///< groups hold every other input (desc_act)
};
Quantizer gptq(const std::string& name, const GptqKind& kind, const std::string& format);
/// AWQ's words of version gemm, groups of 32.
Quantizer awq();
/// MLX's integers of so many bits (4 or 8), bfloat16 scales and biases of 32 inputs.
Quantizer mlx(int64_t bits);
/// bitsandbytes' nf4 with a float32 scale for each 32 inputs.
Quantizer bitsandbytes_nf4();
/// Integers of two bits with a bfloat16 scale for each row.
Quantizer w2a16_rows();

}  // namespace specdec
