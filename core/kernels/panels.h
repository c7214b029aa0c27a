#pragma once
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "core/kernels/device/weight_format.h"

namespace specdec {

/// The last format, for loops over all.
inline constexpr WeightFormat kLastFormat = WeightFormat::kAffine4x32;

/// Whether weights of a block share scales.
inline bool is_in_blocks(WeightFormat format) { return format >= WeightFormat::kInt8; }
/// Whether the codes of its blocks are integers: those that int8 activations can be multiplied
/// with.
inline bool has_integer_blocks(WeightFormat format) {
  return (format >= WeightFormat::kInt8 && format <= WeightFormat::kQ6K) ||
         format == WeightFormat::kInt4x128 || format == WeightFormat::kInt4x32 ||
         format >= WeightFormat::kAffine8x64;
}
/// Whether the codes of its blocks stand for the numbers of a table of 16.
inline bool has_codebook(WeightFormat format) {
  return format >= WeightFormat::kIq1S && format <= WeightFormat::kNf4x32;
}

/// What a product's inputs are rounded to.
enum class ActivationFormat {
  kFloat32,  ///< not at all
  kInt8,     ///< blocks of 32 as integers of -127 to 127 times a float32 scale; weights in blocks
};

/// Outputs of a panel. In memory a panel holds for each input the weights of its outputs: float64
/// and float32 in their order, 16-bit types as 0, 16, 1, 17, ..., so that a word holds one of each
/// half. What lies behind the last output, or input of a block, is zero.
inline constexpr int64_t kPanel = 32;
/// Inputs of a block; of larger ones (Q2_K to Q6_K, those of 128 inputs): of a part.
inline constexpr int64_t kBlockInputs = 32;
inline int64_t blocks_of(int64_t in) { return (in + kBlockInputs - 1) / kBlockInputs; }

/// Bits of a bfloat16 or float16 weight.
struct Bf16 {
  uint16_t bits;
};
struct Fp16 {
  uint16_t bits;
};

/// Zeros for a weight [out, in]: [panels, in, kPanel] of the format's dtype; in blocks: [panels,
/// blocks, bytes of one] (core/kernels/block_formats.h).
at::Tensor empty_panels(int64_t out, int64_t in, WeightFormat format);
/// Panels over memory that holds such panels, which it shares.
at::Tensor panels_in(const std::shared_ptr<std::byte>& memory, int64_t out, int64_t in,
                     WeightFormat format);
/// Writes rows [n, in], of any floating dtype, as outputs first .. first + n - 1, converted to
/// the format; not to those that only GGUF files hold.
void pack_rows(const at::Tensor& rows, int64_t first, WeightFormat format, at::Tensor& panels);
/// The weights of n outputs, widened: out [n, in] float32 (float64 for kFloat64).
void unpack_rows(const at::Tensor& panels, WeightFormat format, std::span<const int32_t> outputs,
                 at::Tensor& out);

}  // namespace specdec
