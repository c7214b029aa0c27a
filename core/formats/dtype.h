#pragma once
#include <cstdint>
#include <string_view>

namespace specdec {

/// Element types that checkpoints use: by their names in safetensors headers, then blocks, which
/// hold several values each: those of GGUF (core/formats/gguf/gguf_blocks.h, codebook_blocks.h),
/// and those that matrices of quantised folders become, with their values (scaled_blocks.h,
/// codebook_blocks.h).
enum class DType {
  kF64,
  kF32,
  kF16,
  kBF16,
  kI64,
  kI32,
  kI16,
  kI8,
  kU8,
  kBool,
  kF8E4M3,
  kQ40,
  kQ41,
  kQ50,
  kQ51,
  kQ80,
  kQ2K,
  kQ3K,
  kQ4K,
  kQ5K,
  kQ6K,
  kIq1S,
  kIq1M,
  kIq2Xxs,
  kIq2Xs,
  kIq2S,
  kIq3Xxs,
  kIq3S,
  kIq4Nl,
  kIq4Xs,
  kTq1,
  kTq2,
  kMxfp4,
  kNvfp4,
  kFp8x128,
  kFp8x32,
  kInt4x128,
  kInt4x32,
  kFp4x16,
  kFp4x32,
  kNf4x32,
  kAffine8x64,
  kAffine4x32
};

/// The last of them: from Q4_0 on all are blocks.
inline constexpr DType kLastType = DType::kAffine4x32;

/// Bytes of one element, or of one block.
int64_t dtype_bytes(DType dtype);
/// Values of one block; 1 for plain elements.
int64_t block_values(DType dtype);
bool is_block(DType dtype);
/// "F32", "BF16", "Q4_1", ...
std::string_view dtype_name(DType dtype);

}  // namespace specdec
