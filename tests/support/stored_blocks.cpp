#include "tests/support/stored_blocks.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "core/error.h"
#include "core/formats/float_values.h"
#include "core/formats/quantised/codebook_blocks.h"
#include "core/formats/quantised/scaled_blocks.h"

namespace specdec {
namespace {

using Bytes = std::vector<std::byte>;

void put(unsigned value, Bytes& to) { to.push_back(static_cast<std::byte>(value & 0xFFU)); }

/// Writes a half near `value`; returns it.
float put_half(float value, Bytes& to) {
  const c10::Half half(value);
  put(half.x, to);
  put(half.x >> 8U, to);
  return static_cast<float>(half);
}

/// The numbers of a block, as they are drawn.
struct Drawn {
  std::vector<int> codes;        ///< unsigned
  std::vector<int> part_scales;  ///< of blocks with parts
  std::vector<int> part_minima;
  float scale, minimum;
};

int bits_of(WeightFormat format) {
  switch (format) {
    case WeightFormat::kInt8:
    case WeightFormat::kAffine8x64:
      return 8;
    case WeightFormat::kQ50:
    case WeightFormat::kQ51:
    case WeightFormat::kQ5K:
      return 5;
    case WeightFormat::kQ6K:
      return 6;
    case WeightFormat::kQ2K:
      return 2;
    case WeightFormat::kQ3K:
      return 3;
    default:
      return 4;
  }
}

bool has_minima(WeightFormat format) {
  return format == WeightFormat::kQ41 || format == WeightFormat::kQ51 ||
         format == WeightFormat::kQ2K || format == WeightFormat::kQ4K ||
         format == WeightFormat::kQ5K || format == WeightFormat::kInt4x128 ||
         format == WeightFormat::kInt4x32 || format == WeightFormat::kAffine8x64 ||
         format == WeightFormat::kAffine4x32;
}

/// How the bits of codes lie in bytes: code k's `bits` from bit `from` on are in byte
/// k / span * (span / share) + k % (span / share), where `share` codes share a byte.
struct BitLayout {
  int from, bits, span, share;
};

void put_bits(const std::vector<int>& codes, const BitLayout& layout, Bytes& to) {
  const int apart = layout.span / layout.share;
  std::vector<unsigned> bytes(codes.size() / static_cast<size_t>(layout.share));
  for (int k = 0; k < static_cast<int>(codes.size()); ++k) {
    const unsigned part = static_cast<unsigned>(codes[static_cast<size_t>(k)] >> layout.from) &
                          ((1U << layout.bits) - 1);
    const int byte = k / layout.span * apart + k % apart;
    bytes[static_cast<size_t>(byte)] |= part << (k % layout.span / apart * layout.bits);
  }
  for (const unsigned byte : bytes) {
    put(byte, to);
  }
}

/// Q8_0, Q4_0, Q4_1, Q5_0, Q5_1.
void encode_plain(Drawn& drawn, WeightFormat format, Bytes& to) {
  drawn.scale = put_half(drawn.scale, to);
  if (has_minima(format)) {
    drawn.minimum = put_half(drawn.minimum, to);
  }
  if (format == WeightFormat::kInt8) {
    for (const int code : drawn.codes) {
      put(static_cast<unsigned>(code - 128), to);
    }
    return;
  }
  if (bits_of(format) == 5) {
    uint32_t fifth = 0;
    for (size_t k = 0; k < 32; ++k) {
      fifth |= static_cast<uint32_t>(drawn.codes[k] >> 4) << k;
    }
    for (int i = 0; i < 4; ++i) {
      put(fifth >> (8 * i), to);
    }
  }
  put_bits(drawn.codes, {.from = 0, .bits = 4, .span = 32, .share = 2}, to);
}

/// Q4_K, Q5_K.
void encode_super(Drawn& drawn, WeightFormat format, Bytes& to) {
  drawn.scale = put_half(drawn.scale, to);
  drawn.minimum = put_half(drawn.minimum, to);
  const auto& s = drawn.part_scales;
  const auto& m = drawn.part_minima;
  for (const auto* low : {&s, &m}) {
    for (size_t i = 0; i < 4; ++i) {
      put(static_cast<unsigned>((*low)[i] | (*low)[i + 4] >> 4 << 6), to);
    }
  }
  for (size_t i = 4; i < 8; ++i) {
    put(static_cast<unsigned>((s[i] & 15) | (m[i] & 15) << 4), to);
  }
  if (bits_of(format) == 5) {
    put_bits(drawn.codes, {.from = 4, .bits = 1, .span = 256, .share = 8}, to);
  }
  put_bits(drawn.codes, {.from = 0, .bits = 4, .span = 64, .share = 2}, to);
}

void encode_q6k(Drawn& drawn, Bytes& to) {
  put_bits(drawn.codes, {.from = 0, .bits = 4, .span = 128, .share = 2}, to);
  put_bits(drawn.codes, {.from = 4, .bits = 2, .span = 128, .share = 4}, to);
  for (const int scale : drawn.part_scales) {
    put(static_cast<unsigned>(scale), to);
  }
  drawn.scale = put_half(drawn.scale, to);
}

void encode_q2k(Drawn& drawn, Bytes& to) {
  for (size_t i = 0; i < drawn.part_scales.size(); ++i) {
    put(static_cast<unsigned>(drawn.part_scales[i] | drawn.part_minima[i] << 4), to);
  }
  put_bits(drawn.codes, {.from = 0, .bits = 2, .span = 128, .share = 4}, to);
  drawn.scale = put_half(drawn.scale, to);
  drawn.minimum = put_half(drawn.minimum, to);
}

void encode_q3k(Drawn& drawn, Bytes& to) {
  put_bits(drawn.codes, {.from = 2, .bits = 1, .span = 256, .share = 8}, to);
  put_bits(drawn.codes, {.from = 0, .bits = 2, .span = 128, .share = 4}, to);
  std::vector<int> six;
  for (const int scale : drawn.part_scales) {
    six.push_back(scale + 32);
  }
  put_bits(six, {.from = 0, .bits = 4, .span = 16, .share = 2}, to);
  put_bits(six, {.from = 4, .bits = 2, .span = 16, .share = 4}, to);
  drawn.scale = put_half(drawn.scale, to);
}

void encode_drawn(Drawn& drawn, WeightFormat format, Bytes& to) {
  switch (format) {
    case WeightFormat::kQ2K:
      return encode_q2k(drawn, to);
    case WeightFormat::kQ3K:
      return encode_q3k(drawn, to);
    case WeightFormat::kQ4K:
    case WeightFormat::kQ5K:
      return encode_super(drawn, format, to);
    case WeightFormat::kQ6K:
      return encode_q6k(drawn, to);
    default:
      return encode_plain(drawn, format, to);
  }
}

/// INT4 and FP8: the codes' numbers, their scale and minimum are returned.
Drawn encode_scaled(DType type, StoredCodes which, std::mt19937_64& random, Bytes& to,
                    std::vector<float>& numbers) {
  const auto values = static_cast<size_t>(block_values(type));
  const unsigned end = has_float8_codes(type) ? 127 : 16;  // 127 is NaN
  const unsigned largest = random() % 2 == 0 ? end - 1 : 0U;
  std::vector<uint8_t> codes(values);
  numbers.clear();
  for (uint8_t& code : codes) {
    code = static_cast<uint8_t>(which == StoredCodes::kAny ? random() % end : largest);
    if (has_float8_codes(type) && random() % 2 == 0) {
      code |= 0x80U;
    }
    numbers.push_back(has_float8_codes(type) ? float8_value(code) : static_cast<float>(code));
  }
  const float exact = static_cast<float>(1 + random() % 100000) / 1700000.0F /
                      (has_float8_codes(type) ? 448.0F : 1.0F);
  // A zero point of four bits times the scale has to be exact: one of 20 bits, or a bfloat16.
  const float narrow = has_wide_scale(type)
                           ? std::bit_cast<float>(std::bit_cast<uint32_t>(exact) & ~15U)
                           : static_cast<float>(c10::BFloat16(exact));
  const float scale = has_float8_codes(type) ? exact : narrow;
  const auto zero = static_cast<uint8_t>(random() % 16);
  to.resize(to.size() + static_cast<size_t>(dtype_bytes(type)));
  write_scaled_block(type, codes.data(), scale, zero, to.data() + to.size() - dtype_bytes(type));
  return {.codes = {},
          .part_scales = {},
          .part_minima = {},
          .scale = scale,
          .minimum = has_float8_codes(type) ? 0.0F : -scale * static_cast<float>(zero)};
}

/// A block of random bytes but for its scale, with what read_codebook_block says that it holds.
void encode_codebook(DType type, std::mt19937_64& random, Bytes& to, std::vector<uint8_t>& codes,
                     std::vector<float>& scales) {
  codes.resize(static_cast<size_t>(block_values(type)));
  scales.resize(codes.size() / static_cast<size_t>(codebook_scale_inputs(type)));
  const auto size = static_cast<size_t>(dtype_bytes(type));
  const float scale = static_cast<float>(1 + random() % 1000) / 977000.0F;
  Bytes block;
  do {
    block.clear();
    while (block.size() < size) {
      put(static_cast<unsigned>(random()), block);
    }
    Bytes half;
    put_half(scale, half);
    if (type == DType::kFp4x16 || type == DType::kFp4x32 || type == DType::kNf4x32) {
      std::memcpy(block.data(), &scale, sizeof(scale));
    } else if (type == DType::kTq1 || type == DType::kTq2) {
      std::copy(half.begin(), half.end(), block.end() - 2);
    } else if (type == DType::kMxfp4) {
      block[0] = static_cast<std::byte>(115 + random() % 12);
    } else if (type != DType::kIq1M && type != DType::kNvfp4) {
      std::copy(half.begin(), half.end(), block.begin());
    }
    read_codebook_block(type, block.data(), codes.data(), scales.data());
  } while (!std::all_of(scales.begin(), scales.end(),
                        [](float s) { return std::isfinite(s) && std::fabs(s) < 1.0F; }));
  to.insert(to.end(), block.begin(), block.end());
}

/// Draws and encodes a block with a minimum; scales are bfloat16, so that products are exact.
Drawn encode_affine(DType type, StoredCodes which, std::mt19937_64& random, Bytes& to,
                    std::vector<float>& numbers) {
  const bool wide = type == DType::kAffine8x64;
  const unsigned end = wide ? 256 : 16;
  const unsigned largest = random() % 2 == 0 ? end - 1 : 0U;
  std::vector<uint8_t> codes(static_cast<size_t>(block_values(type)));
  numbers.clear();
  for (uint8_t& code : codes) {
    code = static_cast<uint8_t>(which == StoredCodes::kAny ? random() % end : largest);
    numbers.push_back(static_cast<float>(code) - (wide ? 0.0F : 8.0F));
  }
  const auto near = [&random](float unit) {
    const float number = unit * static_cast<float>(1 + random() % 1000) / 977.0F;
    return static_cast<float>(c10::BFloat16(number));
  };
  const float scale = near(1.0F / static_cast<float>(end));
  const float minimum = -near(0.5F);
  to.resize(to.size() + static_cast<size_t>(dtype_bytes(type)));
  write_affine_block(type, codes.data(), scale, minimum, to.data() + to.size() - dtype_bytes(type));
  return {.codes = {}, .part_scales = {}, .part_minima = {}, .scale = scale, .minimum = minimum};
}

int64_t scale_inputs(WeightFormat format) {
  const DType type = stored_dtype(format);
  if (is_codebook_block(type)) {
    return codebook_scale_inputs(type);
  }
  return type == DType::kQ2K || type == DType::kQ3K || type == DType::kQ6K ? 16 : 32;
}

Drawn draw(WeightFormat format, StoredCodes codes, std::mt19937_64& random) {
  const auto values = static_cast<size_t>(block_values(stored_dtype(format)));
  const bool parts = values > 32;
  const auto end = 1U << bits_of(format);
  Drawn drawn;
  const bool largest = random() % 2 == 0;
  for (size_t k = 0; k < values; ++k) {
    drawn.codes.push_back(static_cast<int>(codes == StoredCodes::kAny ? random() % end
                                           : largest                  ? end - 1
                                                                      : 0U));
  }
  const int end_of_parts = format == WeightFormat::kQ6K   ? 256
                           : format == WeightFormat::kQ2K ? 16
                                                          : 64;
  const int offset = has_minima(format) ? 0 : end_of_parts / 2;
  for (size_t i = 0; parts && i < values / static_cast<size_t>(scale_inputs(format)); ++i) {
    drawn.part_scales.push_back(static_cast<int>(random() % static_cast<unsigned>(end_of_parts)) -
                                offset);
    drawn.part_minima.push_back(static_cast<int>(random() % static_cast<unsigned>(end_of_parts)));
  }
  const float unit = 1.0F / static_cast<float>(1 << bits_of(format)) / (parts ? 64.0F : 1.0F);
  drawn.scale = unit * static_cast<float>(1 + random() % 1000) / 977.0F;
  drawn.minimum = static_cast<float>(random() % 1000) / 1977.0F / (parts ? 64.0F : -1.0F);
  return drawn;
}

/// Blocks of random entries of their codebook.
void draw_codebook_row(std::mt19937_64& random, StoredRows& stored, int64_t row) {
  const DType type = stored_dtype(stored.format);
  auto codes = stored.codes.accessor<float, 2>();
  auto scales = stored.scales.accessor<float, 2>();
  std::vector<uint8_t> numbers;
  std::vector<float> block_scales;
  for (int64_t first = 0; first < stored.in; first += block_values(type)) {
    encode_codebook(type, random, stored.bytes[static_cast<size_t>(row)], numbers, block_scales);
    for (int64_t k = 0; k < block_values(type); ++k) {
      codes[row][first + k] = codebook_of(type)[numbers[static_cast<size_t>(k)]];
      scales[row][(first + k) / stored.scale_inputs] =
          block_scales[static_cast<size_t>(k / stored.scale_inputs)];
    }
  }
}

}  // namespace

Tensor StoredRows::values() const {
  return codes * scales.repeat_interleave(scale_inputs, 1) +
         minima.repeat_interleave(scale_inputs, 1);
}

Tensor StoredRows::magnitudes() const {
  return (codes * scales.repeat_interleave(scale_inputs, 1)).abs() +
         minima.repeat_interleave(scale_inputs, 1).abs();
}

Linear StoredRows::packed(const Placement& place) const {
  Linear linear(rows, in, format, place);
  for (int64_t row = 0; row < rows; ++row) {
    linear.set_stored_row(row, bytes[static_cast<size_t>(row)].data());
  }
  return linear;
}

StoredRows random_stored_rows(WeightFormat format, int64_t rows, int64_t in, uint64_t seed,
                              StoredCodes which) {
  std::mt19937_64 random(seed);
  StoredRows stored{.format = format,
                    .rows = rows,
                    .in = in,
                    .scale_inputs = scale_inputs(format),
                    .bytes = {},
                    .codes = at::zeros({rows, in}),
                    .scales = {},
                    .minima = {},
                    .has_minima = has_minima(format)};
  stored.scales = at::zeros({rows, in / stored.scale_inputs});
  stored.minima = at::zeros_like(stored.scales);
  auto codes = stored.codes.accessor<float, 2>();
  auto scales = stored.scales.accessor<float, 2>();
  auto minima = stored.minima.accessor<float, 2>();
  const int offset = stored.has_minima ? 0 : 1 << (bits_of(format) - 1);
  for (int64_t row = 0; row < rows; ++row) {
    Bytes& bytes = stored.bytes.emplace_back();
    if (const DType type = stored_dtype(format); is_scaled_block(type)) {
      std::vector<float> numbers;
      for (int64_t first = 0; first < in; first += block_values(type)) {
        const Drawn drawn = has_minimum(type) ? encode_affine(type, which, random, bytes, numbers)
                                              : encode_scaled(type, which, random, bytes, numbers);
        for (int64_t k = 0; k < block_values(type); ++k) {
          codes[row][first + k] = numbers[static_cast<size_t>(k)];
          scales[row][(first + k) / 32] = drawn.scale;
          minima[row][(first + k) / 32] = drawn.minimum;
        }
      }
      continue;
    }
    if (is_codebook_block(stored_dtype(format))) {
      draw_codebook_row(random, stored, row);
      continue;
    }
    for (int64_t first = 0; first < in; first += block_values(stored_dtype(format))) {
      Drawn drawn = draw(format, which, random);
      encode_drawn(drawn, format, bytes);
      for (int64_t k = 0; k < std::ssize(drawn.codes); ++k) {
        const auto part = static_cast<size_t>(k / stored.scale_inputs);
        const bool parts = !drawn.part_scales.empty();
        codes[row][first + k] = static_cast<float>(drawn.codes[static_cast<size_t>(k)] - offset);
        scales[row][(first + k) / stored.scale_inputs] =
            drawn.scale * (parts ? static_cast<float>(drawn.part_scales[part]) : 1.0F);
        if (stored.has_minima) {
          minima[row][(first + k) / stored.scale_inputs] =
              drawn.minimum * (parts ? -static_cast<float>(drawn.part_minima[part]) : 1.0F);
        }
      }
    }
  }
  return stored;
}

}  // namespace specdec
