#include "core/formats/finite_values.h"

#include <algorithm>
#include <cstring>

#include "core/formats/quantised/scaled_blocks.h"

namespace specdec {
namespace {

template <class Word>
Word word_at(const std::byte* bytes) {
  Word word;
  std::memcpy(&word, bytes, sizeof(Word));
  return word;
}

/// The bits of an exponent are all set in what is not finite, those of a fraction are then those of
/// a NaN.
template <class Word, Word kExponent, Word kFraction>
std::optional<NotFinite> find_element(std::span<const std::byte> bytes) {
  constexpr size_t kAtOnce = 4096 / sizeof(Word);  // a loop without a way out becomes vectors
  const size_t count = bytes.size() / sizeof(Word);
  const auto at = [&](size_t i) { return word_at<Word>(bytes.data() + i * sizeof(Word)); };
  for (size_t begin = 0; begin < count; begin += kAtOnce) {
    const size_t end = std::min(count, begin + kAtOnce);
    bool found = false;
    for (size_t i = begin; i < end; ++i) {
      found |= (at(i) & kExponent) == kExponent;
    }
    for (size_t i = begin; found && i < end; ++i) {
      if ((at(i) & kExponent) == kExponent) {
        return NotFinite{static_cast<int64_t>(i), (at(i) & kFraction) != 0};
      }
    }
  }
  return std::nullopt;
}

constexpr uint16_t kHalfExponent = 0x7C00;
constexpr uint16_t kHalfFraction = 0x03FF;

/// Where the halves of a block lie: a scale and perhaps a minimum.
struct Halves {
  size_t offset = 0;
  size_t count = 1;
};

Halves halves_of(DType dtype) {
  switch (dtype) {
    case DType::kQ41:
    case DType::kQ51:
    case DType::kQ4K:
    case DType::kQ5K:
      return {.offset = 0, .count = 2};
    case DType::kQ2K:
      return {.offset = 80, .count = 2};
    case DType::kQ3K:
      return {.offset = 108, .count = 1};
    case DType::kQ6K:
      return {.offset = 208, .count = 1};
    case DType::kTq1:
      return {.offset = 52, .count = 1};
    case DType::kTq2:
      return {.offset = 64, .count = 1};
    case DType::kMxfp4:  // powers of two
    case DType::kNvfp4:  // float8 without NaN
      return {.offset = 0, .count = 0};
    default:
      return {.offset = 0, .count = 1};
  }
}

std::optional<NotFinite> find_block(DType dtype, std::span<const std::byte> bytes) {
  const Halves halves = halves_of(dtype);
  const auto size = static_cast<size_t>(dtype_bytes(dtype));
  for (size_t block = 0; block + size <= bytes.size(); block += size) {
    for (size_t i = 0; i < halves.count; ++i) {
      const auto half = word_at<uint16_t>(bytes.data() + block + halves.offset + 2 * i);
      if ((half & kHalfExponent) == kHalfExponent) {
        return NotFinite{static_cast<int64_t>(block / size) * block_values(dtype),
                         (half & kHalfFraction) != 0};
      }
    }
  }
  return std::nullopt;
}

/// First block of IQ1_M whose scale is not finite. The scale lies in the high ends of four words,
/// its exponent in those of the last two.
std::optional<NotFinite> find_iq1_m(std::span<const std::byte> bytes) {
  constexpr size_t kWords = 48;
  const auto size = static_cast<size_t>(dtype_bytes(DType::kIq1M));
  for (size_t block = 0; block + size <= bytes.size(); block += size) {
    uint32_t half = 0;
    for (size_t i = 0; i < 4; ++i) {
      const auto word = word_at<uint16_t>(bytes.data() + block + kWords + 2 * i);
      half |= (uint32_t{word} >> 12U) << 4 * i;
    }
    if ((half & kHalfExponent) == kHalfExponent) {
      return NotFinite{static_cast<int64_t>(block / size) * block_values(DType::kIq1M),
                       (half & kHalfFraction) != 0};
    }
  }
  return std::nullopt;
}

/// First scale, minimum or E4M3 code (which has no infinities) that is not finite in blocks that
/// matrices of quantised folders become.
std::optional<NotFinite> find_scaled_block(DType dtype, std::span<const std::byte> bytes) {
  const auto size = static_cast<size_t>(dtype_bytes(dtype));
  const DType scale = has_wide_scale(dtype) ? DType::kF32 : DType::kBF16;
  const auto scale_size = static_cast<size_t>(dtype_bytes(scale));
  const auto is_nan = [](std::byte code) { return (code & std::byte{0x7F}) == std::byte{0x7F}; };
  for (size_t block = 0; block + size <= bytes.size(); block += size) {
    const auto here = bytes.subspan(block, size);
    const int64_t first = static_cast<int64_t>(block / size) * block_values(dtype);
    if (const auto found = first_not_finite(scale, here.first(scale_size))) {
      return NotFinite{first, found->is_nan};
    }
    const auto codes = here.subspan(scale_size);
    if (has_minimum(dtype)) {
      if (const auto found = first_not_finite(scale, codes.first(scale_size))) {
        return NotFinite{first, found->is_nan};
      }
    }
    if (has_float8_codes(dtype) && std::any_of(codes.begin(), codes.end(), is_nan)) {
      return NotFinite{first, true};
    }
  }
  return std::nullopt;
}

bool is_own_codebook(DType dtype) {
  return dtype == DType::kFp4x16 || dtype == DType::kFp4x32 || dtype == DType::kNf4x32;
}

}  // namespace

std::optional<NotFinite> first_not_finite(DType dtype, std::span<const std::byte> bytes) {
  switch (dtype) {
    case DType::kF64:
      return find_element<uint64_t, 0x7FF0000000000000U, 0x000FFFFFFFFFFFFFU>(bytes);
    case DType::kF32:
      return find_element<uint32_t, 0x7F800000U, 0x007FFFFFU>(bytes);
    case DType::kF16:
      return find_element<uint16_t, kHalfExponent, kHalfFraction>(bytes);
    case DType::kBF16:
      return find_element<uint16_t, 0x7F80, 0x007F>(bytes);
    default:
      if (dtype == DType::kIq1M) {
        return find_iq1_m(bytes);
      }
      if (is_scaled_block(dtype) || is_own_codebook(dtype)) {
        return find_scaled_block(dtype, bytes);
      }
      return is_block(dtype) ? find_block(dtype, bytes) : std::nullopt;
  }
}

}  // namespace specdec
