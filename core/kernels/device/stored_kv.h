#pragma once
#include "core/kernels/device/numbers.h"

// Groups of a cached key's or value's numbers as codes times a float16 scale, or between two
// float16 numbers; see KvFormat.

namespace specdec::portable {

/// Numbers that share a scale.
SPECDEC_CONSTANT int kScaledGroup = 32;

/// The integers that a format's codes are, in units of its scale.
struct IntegerCodes {
  float lowest, highest, unit;
};

/// All of so many bits.
SPECDEC_DEVICE IntegerCodes integer_codes(int bits) {
  const float half = static_cast<float>(1 << (bits - 1));
  return IntegerCodes{-half, half - 1.0F, 1.0F};
}

/// Bits of a group's scale. Its number of the largest magnitude, the first of several, `most`,
/// becomes the lowest code, as in GGUF's Q4_0, so that all codes are used. Not finite = NaN.
SPECDEC_DEVICE HalfBits group_scale(float most, bool finite, IntegerCodes codes) {
  if (!finite) {
    return HalfBits{0x7E00U};
  }
  const float scale = most / (codes.lowest * codes.unit);
  const HalfBits rounded = narrow(scale, HalfBits{});
  // Subnormal scales are coarse: one that is too small would cut the largest number.
  const float size = magnitude_of(scale);
  const bool cuts = magnitude_of(widen(rounded)) < size && size < float_of(0x38800000U);  // 2^-14
  return HalfBits{static_cast<uint16_t>(cuts ? rounded.bits + 1U : rounded.bits)};
}

/// The nearest integer to a number of a group with this scale.
SPECDEC_DEVICE int32_t group_code(float number, HalfBits scale, IntegerCodes codes) {
  const float factor = widen(scale) * codes.unit;
  if (factor == 0.0F || factor != factor) {
    return 0;
  }
  const float nearest = nearest_integer(number * (1.0F / factor));
  return static_cast<int32_t>(nearest < codes.lowest    ? codes.lowest
                              : nearest > codes.highest ? codes.highest
                                                        : nearest);
}

/// The integer whose low bits, in two's complement, are `code`.
template <int kBits>
SPECDEC_DEVICE float code_value(uint32_t code) {
  const uint32_t sign = 1U << (kBits - 1U);
  return static_cast<float>(static_cast<int32_t>(code ^ sign) - static_cast<int32_t>(sign));
}

/// Codes of two halves, 16 upper + lower: all whose halves have 4 bits each and that lie about
/// zero. The scale is that of the upper halves.
SPECDEC_DEVICE IntegerCodes halved_codes() { return IntegerCodes{-119.0F, 119.0F, 0.0625F}; }

/// code / 16, rounded to the nearest, and what is left, -8 to 7.
SPECDEC_DEVICE int32_t upper_half(int32_t code) { return (code + 8) >> 4; }
SPECDEC_DEVICE int32_t lower_half(int32_t code) { return code - 16 * upper_half(code); }

/// kNormalLevels, where a kernel has no memory of them.
struct NormalLevels {
  SPECDEC_DEVICE float operator[](int32_t code) const {
    const float low = (code & 1) != 0 ? 0.7560F : 0.2451F;
    const float high = (code & 1) != 0 ? 2.1520F : 1.3439F;
    const float size = (code & 2) != 0 ? high : low;
    return (code & 4) != 0 ? -size : size;
  }
};

#if !defined(__METAL_VERSION__)  // which has no float64
/// The code of kQ3 whose level, levels[code] times the root mean square of its group, is nearest to
/// a number: the first of several. 0 in a group of zeros and NaN.
template <class Levels>
SPECDEC_DEVICE int32_t level_code(float number, double rms, const Levels& levels) {
  const float unscaled = rms > 0.0 ? static_cast<float>(number / rms) : 0.0F;
  int32_t nearest = 0;
  for (int32_t code = 1; rms > 0.0 && code < 8; ++code) {
    if (magnitude_of(unscaled - levels[code]) < magnitude_of(unscaled - levels[nearest])) {
      nearest = code;
    }
  }
  return nearest;
}

/// Bits of a group's scale in kQ3: that of least squared error for its codes, by the sums of
/// numbers times their levels and of these squared. NaN where rms is not finite.
SPECDEC_DEVICE HalfBits level_scale(double rms, double products, double squares) {
  const bool finite = rms - rms == 0.0;
  const double scale = squares > 0.0 ? products / squares : 0.0;
  return narrow(finite ? static_cast<float>(scale) : float_of(0x7FC00000U), HalfBits{});
}
#endif

/// Tokens whose keys are rounded together where each channel has a range: kKeyGroup.
SPECDEC_CONSTANT int kRangedTokens = 32;
/// Dimensions whose ranges lie in a row of such keys.
SPECDEC_CONSTANT int kRangesOfRow = kRangedTokens / 2;

/// What a group's codes lie between: code c means least + c * step.
struct CodeRange {
  HalfBits least, step;
};
/// Bytes of one.
SPECDEC_CONSTANT int kRangeBytes = 4;

/// The largest code of so many bits.
SPECDEC_DEVICE float highest_code(int bits) { return static_cast<float>((1 << bits) - 1); }

/// Range of the codes of a group from `least` to `most`; NaN where a number of it is not finite. A
/// zero is +0, whose sign else depends on the order of numbers that are equal.
SPECDEC_DEVICE CodeRange code_range(float least, float most, bool finite, int bits) {
  if (!finite) {
    return CodeRange{HalfBits{0x7E00U}, HalfBits{0x7E00U}};
  }
  const float step = (most - least) / highest_code(bits);
  return CodeRange{narrow(least + 0.0F, HalfBits{}), narrow(step + 0.0F, HalfBits{})};
}

/// The code nearest to a number of a group, ties to even; 0 where all numbers are equal or NaN.
SPECDEC_DEVICE uint32_t ranged_code(float number, CodeRange range, int bits) {
  const float step = widen(range.step);
  if (!(step > 0.0F)) {
    return 0;
  }
  const float code = nearest_integer((number - widen(range.least)) / step);
  const float most = highest_code(bits);
  return static_cast<uint32_t>(code > most ? most : code > 0.0F ? code : 0.0F);
}

/// What a code means. Its product with the step is exact, so the sum alone is rounded.
SPECDEC_DEVICE float ranged_number(uint32_t code, CodeRange range) {
  return rounded_product(static_cast<float>(code), widen(range.step)) + widen(range.least);
}

}  // namespace specdec::portable
