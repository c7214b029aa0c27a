#pragma once
#include <c10/core/ScalarType.h>

#include <cstdint>

namespace specdec {

/// What the numbers in the pages of a cache are, rounded when they are written and widened,
/// exactly, when they are read. All but kNative stand beside float32 activations.
enum class KvFormat {
  kNative,    ///< of the activations' dtype
  kBFloat16,  ///< to the nearest, ties to even
  kFloat16,   ///< likewise, at most 65504
  kFp8E4m3,   ///< likewise, at most 448 (Micikevicius et al., 2022, arXiv:2209.05433)
  kQ8,        ///< 8-bit integers times a float16 scale of 32 dimensions of a head
  kQ4,        ///< 4-bit integers, likewise
};

constexpr KvFormat kKvFormats[] = {KvFormat::kNative,  KvFormat::kBFloat16, KvFormat::kFloat16,
                                   KvFormat::kFp8E4m3, KvFormat::kQ8,       KvFormat::kQ4};

/// Dimensions of a head that share a scale.
constexpr int64_t kKvGroup = 32;

// Elements of pages whose numbers are no C++ type, of one byte each. The key or value of a token
// takes its codes, then the scales of its groups, low byte first.
struct Fp8Code {
  uint8_t bits;
};
struct Q8Code {
  int8_t code;
};
struct Q4Codes {
  uint8_t pair;  ///< of dimensions 2 i, in the low four bits, and 2 i + 1
};

/// Whether groups of numbers have scales.
constexpr bool has_scales(KvFormat format) {
  return format == KvFormat::kQ8 || format == KvFormat::kQ4;
}

/// "float32" (the native one), "bfloat16", "float16", "fp8_e4m3", "q8" or "q4".
const char* kv_format_name(KvFormat format);
/// The dtype of a page's elements beside activations of `activations`; bytes (uint8) where the
/// numbers have none.
at::ScalarType kv_element_type(KvFormat format, at::ScalarType activations);
/// Elements that a key or value of head_dim numbers takes; kQ4 needs an even one.
int64_t kv_width(KvFormat format, int64_t head_dim);
/// The inverse.
int64_t kv_head_dim(KvFormat format, int64_t width);

/// Elements of a key or value in a page: element i at i * stride, which counts elements.
struct KvElements {
  void* data;
  int64_t stride;
};

/// Rounds and writes the numbers of one head. NaN stays NaN; in a format with scales it makes all
/// of its group NaN, as an infinite number does.
void encode_kv(KvFormat format, const float* numbers, int64_t head_dim, const KvElements& to);
/// Reads what encode_kv wrote.
void decode_kv(KvFormat format, const KvElements& from, int64_t head_dim, float* numbers);

}  // namespace specdec
