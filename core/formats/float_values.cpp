#include "core/formats/float_values.h"

#include <cstring>
#include <limits>

#include "core/error.h"

namespace specdec {
namespace {

template <class Word>
Word word_at(const TensorEntry& entry, size_t i) {
  Word word;
  std::memcpy(&word, entry.bytes.data() + i * sizeof(Word), sizeof(Word));
  return word;
}

float value_at(const TensorEntry& entry, size_t i) {
  switch (entry.dtype) {
    case DType::kF32:
      return word_at<float>(entry, i);
    case DType::kF16:
      return half_value(word_at<uint16_t>(entry, i));
    default:
      return std::bit_cast<float>(uint32_t{word_at<uint16_t>(entry, i)} << 16);
  }
}

}  // namespace

float float8_value(uint8_t bits) {
  const unsigned exponent = bits >> 3U & 15U;
  const unsigned mantissa = bits & 7U;
  if (exponent == 15 && mantissa == 7) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  const float value = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                    : std::ldexp(static_cast<float>(8U + mantissa),
                                                 static_cast<int>(exponent) - 10);
  return (bits & 0x80U) != 0 ? -value : value;
}

std::vector<float> float_values(const TensorEntry& entry) {
  SPECDEC_CHECK(
      entry.dtype == DType::kF32 || entry.dtype == DType::kF16 || entry.dtype == DType::kBF16,
      "{} is of type {}", entry.name, dtype_name(entry.dtype));
  std::vector<float> values(entry.bytes.size() / static_cast<size_t>(dtype_bytes(entry.dtype)));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = value_at(entry, i);
  }
  return values;
}

}  // namespace specdec
