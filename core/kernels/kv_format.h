#pragma once
#include <c10/core/ScalarType.h>

#include <cstdint>

#include "core/kernels/device/kv_format.h"

namespace specdec {

/// Formats that round each token by itself.
constexpr KvFormat kKvFormats[] = {KvFormat::kNative,  KvFormat::kBFloat16,    KvFormat::kFloat16,
                                   KvFormat::kFp8E4m3, KvFormat::kQ8,          KvFormat::kQ4,
                                   KvFormat::kQ3,      KvFormat::kHierarchical};

/// What is read of the numbers in a cache: all, or of kHierarchical the upper halves.
enum class KvRead { kAll, kUpperHalf };

/// What keys, queries and values are multiplied with before they are rounded; see
/// core/kernels/hadamard.h.
enum class KvRotation { kNone, kHadamard };

/// Dimensions of a head that share a scale.
constexpr int64_t kKvGroup = 32;
/// Tokens whose keys kKivi2 and kKivi4 round together.
constexpr int64_t kKeyGroup = 32;

// Elements of pages whose numbers are no C++ type, of one byte each. The key or value of a token
// takes its codes, then the scales of its groups, low byte first; a hierarchical one its upper
// halves and scales, which have the layout of kQ4, then its lower halves.
struct Fp8Code {
  uint8_t bits;
};
struct Q8Code {
  int8_t code;
};
struct Q4Codes {
  uint8_t pair;  ///< of dimensions 2 i, in the low four bits, and 2 i + 1
};
/// Eight dimensions take three: the low two bits of the codes of four, from the low end on, those
/// of the other four, and the high bits of all.
struct Q3Codes {
  uint8_t bits;
};
struct HalfCodes {
  uint8_t pair;  ///< as Q4Codes; code = 16 upper + lower
};

/// Codes of four neighbouring dimensions of a token, from the low end on.
struct Kivi2Codes {
  uint8_t bits;
};
struct Kivi4Codes {
  uint8_t bits;  ///< likewise, of two
};

/// Dimensions whose codes of kQ3 lie together.
constexpr int64_t kQ3Block = 8;
/// Codes of kQ3.
constexpr int64_t kQ3Levels = 8;
/// What codes of kQ3 mean, in units of their scale, where nothing else is said: the levels of least
/// squared error for a normal distribution (Max, 1960, doi:10.1109/TIT.1960.1057548).
constexpr float kNormalLevels[kQ3Levels] = {0.2451F,  0.7560F,  1.3439F,  2.1520F,
                                            -0.2451F, -0.7560F, -1.3439F, -2.1520F};

/// Whether groups of numbers have scales.
constexpr bool has_scales(KvFormat format) {
  return format == KvFormat::kQ8 || format == KvFormat::kQ4 || format == KvFormat::kQ3 ||
         format == KvFormat::kHierarchical;
}

/// Tokens whose keys a format rounds together, once all of them are there: 1 = each by itself.
constexpr int64_t kv_key_group(KvFormat format) {
  return format == KvFormat::kKivi2 || format == KvFormat::kKivi4 ? kKeyGroup : 1;
}

/// "float32" (the native one), "bfloat16", "float16", "fp8_e4m3", "q8", "q4", "q3",
/// "hierarchical", "kivi2" or "kivi4".
const char* kv_format_name(KvFormat format);
/// The dtype of a page's elements beside activations of `activations`; bytes (uint8) where the
/// numbers have none.
at::ScalarType kv_element_type(KvFormat format, at::ScalarType activations);
/// Dimensions that a head's number of them has to be a multiple of: 2 of kQ4 and kHierarchical,
/// 8 of kQ3, kKivi2 and kKivi4.
int64_t kv_multiple(KvFormat format);
/// Elements that a key or value of head_dim numbers takes, a multiple of kv_multiple(format).
int64_t kv_width(KvFormat format, int64_t head_dim);
/// Numbers of a key or value that takes `width` elements: the inverse of kv_width.
int64_t kv_head_dim(KvFormat format, int64_t width);

/// Elements of a key or value in a page: element i at i * stride, which counts elements.
struct KvElements {
  void* data;
  int64_t stride;
  const float* levels = kNormalLevels;  ///< [kQ3Levels] of kQ3
};

/// Rounds and writes the numbers of one head, of kKivi2 and kKivi4 those of a value alone. NaN
/// stays NaN; in a format with scales it makes all of its group NaN, as an infinite number does,
/// and likewise where codes lie between two numbers.
void encode_kv(KvFormat format, const float* numbers, int64_t head_dim, const KvElements& to);
/// Reads what encode_kv wrote.
void decode_kv(KvFormat format, const KvElements& from, int64_t head_dim, float* numbers);
/// Reads what an attention does that reads the upper halves of kHierarchical.
void decode_upper_half(const KvElements& from, int64_t head_dim, float* numbers);

}  // namespace specdec
