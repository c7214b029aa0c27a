#include "core/kernels/block_formats.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/formats/float_values.h"
#include "core/formats/quantised/codebook_blocks.h"
#include "core/kernels/stored_rows.h"

namespace specdec {
namespace {

/// One output's part of an int8 block, from `count` values.
void quantize(const float* values, int64_t count, int64_t column, Int8Block& block) {
  float largest = 0.0F;
  bool finite = true;
  for (int64_t k = 0; k < count; ++k) {
    largest = std::max(largest, std::fabs(values[k]));
    finite = finite && std::isfinite(values[k]);
  }
  const float scale = largest / 127.0F;
  constexpr float kSmallest = 1e-30F;  // the inverse of less may be infinite; a half's is 6e-8
  const float inverse = finite && scale >= kSmallest ? 1.0F / scale : 0.0F;
  block.scales[column].bits = c10::Half(finite ? scale : std::numeric_limits<float>::quiet_NaN()).x;
  for (int64_t k = 0; k < count; ++k) {
    const float code = finite ? std::round(values[k] * inverse) : 1.0F;  // what is damaged shows
    block.codes[0].bytes[k / 4][column][k % 4] = static_cast<uint8_t>(code + Int8Block::kOffset);
  }
}

float widened(float scale) { return scale; }

float widened(Bf16 number) { return std::bit_cast<float>(uint32_t{number.bits} << 16U); }

float widened(Fp16 half) {
  return static_cast<float>(c10::Half(half.bits, c10::Half::from_bits()));
}

template <int kBits>
int code_of(const PanelCodes<kBits>& codes, int64_t column, int64_t k) {
  if constexpr (kBits == 8) {
    return codes.bytes[k / 4][column][k % 4];
  } else {
    constexpr int kLow = kLowBits<kBits>;
    constexpr int64_t kRun = kBlockInputs * kLow / 8;
    const int byte = codes.low[k % kRun / 4][column][k % 4];
    int code = byte >> (k / kRun * kLow) & ((1 << kLow) - 1);
    if constexpr (kBits > kLow) {
      const int64_t bit = k / 4 * (kBits - kLow);
      const uint32_t above = codes.high[bit / 8][column] >> (k % 4 * 8 + bit % 8);
      code |= static_cast<int>(above & ((1U << (kBits - kLow)) - 1)) << kLow;
    }
    return code;
  }
}

int part_scale(const PartScales<2, true>& parts, int64_t part, int64_t column) {
  return parts.both[part][column] & 15;
}

int part_minimum(const PartScales<2, true>& parts, int64_t part, int64_t column) {
  return parts.both[part][column] >> 4;
}

template <class Parts>
int part_scale(const Parts& parts, int64_t part, int64_t column) {
  return parts.scales[part][column];
}

template <class Parts>
int part_minimum(const Parts& parts, int64_t part, int64_t column) {
  return parts.minima[part][column];
}

template <class Block>
float computed_weight(const Block& block, int64_t column, int64_t k) {
  const PanelCodes<Block::kCodeBits>& codes = block.codes[k / kBlockInputs];
  [[maybe_unused]] const int64_t part = k / Block::kScaleInputs;
  float scale = widened(block.scales[column]);
  if constexpr (Block::kHasParts) {
    scale *= static_cast<float>(part_scale(block.parts, part, column));
  }
  if constexpr (Block::kIsFloat8) {
    return float8_value(codes.bytes[k % kBlockInputs / 4][column][k % 4]) * scale;
  } else if constexpr (Block::kHasZeros) {
    const int code = code_of(codes, column, k % kBlockInputs) - block.zeros[column];
    return static_cast<float>(code) * scale;
  }
  const auto code = static_cast<float>(code_of(codes, column, k % kBlockInputs) - Block::kOffset);
  if constexpr (Block::kIsAffine) {
    return std::fma(code, scale, widened(block.minima[column]));
  }
  const float product = code * scale;  // both products are exact
  if constexpr (Block::kHasMinima && Block::kHasParts) {
    const auto minimum = static_cast<float>(part_minimum(block.parts, part, column));
    return product - widened(block.minima[column]) * minimum;
  } else if constexpr (Block::kHasMinima && !Block::kHasZeros) {
    return product + widened(block.minima[column]);
  }
  return product;
}

/// `codebook`: of a format that has one.
template <class Block>
float weight_of(const Block& block, const float* codebook, int64_t column, int64_t k) {
  if constexpr (Block::kHasCodebook) {
    return codebook[code_of(block.codes[0], column, k)] *
           block.scales[k / Block::kScaleInputs][column];
  } else {
    return computed_weight(block, column, k);
  }
}

/// Writes an output's codes of 32 inputs.
template <int kBits>
void pack_codes(const uint8_t* from, int64_t column, PanelCodes<kBits>& to) {
  if constexpr (kBits == 8) {
    for (int64_t group = 0; group < kBlockInputs / 4; ++group) {
      std::memcpy(to.bytes[group][column], from + 4 * group, 4);
    }
  } else {
    constexpr int kLow = kLowBits<kBits>;
    constexpr int64_t kRun = kBlockInputs * kLow / 8;
    for (int64_t k = 0; k < kRun; ++k) {
      int byte = 0;
      for (int64_t i = 0; i < 8 / kLow; ++i) {
        byte |= (from[k + i * kRun] & ((1 << kLow) - 1)) << (i * kLow);
      }
      to.low[k / 4][column][k % 4] = static_cast<uint8_t>(byte);
    }
    if constexpr (kBits > kLow) {
      uint32_t high[kBits - kLow] = {};
      for (int64_t k = 0; k < kBlockInputs; ++k) {
        const int64_t bit = k / 4 * (kBits - kLow);
        high[bit / 8] |= static_cast<uint32_t>(from[k] >> kLow) << (k % 4 * 8 + bit % 8);
      }
      for (int64_t i = 0; i < kBits - kLow; ++i) {
        to.high[i][column] = high[i];
      }
    }
  }
}

/// An output's block as it is stored, codes in bytes.
template <class Block>
class StoredBlock {
 public:
  explicit StoredBlock(const std::byte* stored) : bytes_(reinterpret_cast<const uint8_t*>(stored)) {
    if constexpr (Block::kHasZeros || Block::kIsFloat8 || Block::kIsAffine) {
      read_scaled();
    } else if constexpr (!Block::kHasParts) {
      read_plain();
    } else if constexpr (Block::kCodeBits == 2) {
      read_q2k();
    } else if constexpr (Block::kCodeBits == 3) {
      read_q3k();
    } else if constexpr (Block::kHasMinima) {
      read_with_minima();
    } else {
      read_q6k();
    }
  }

  void pack(int64_t column, Block& block) const {
    std::memcpy(&block.scales[column], scale_, sizeof(block.scales[0]));
    if constexpr (Block::kHasZeros) {
      block.zeros[column] = scale_[sizeof(block.scales[0])];
    } else if constexpr (Block::kHasMinima) {
      constexpr size_t kSize = sizeof(block.minima[0]);
      std::memcpy(&block.minima[column], scale_ + kSize, kSize);
    }
    if constexpr (Block::kHasParts) {
      for (int64_t part = 0; part < Block::kInputs / Block::kScaleInputs; ++part) {
        pack_part(part, column, block.parts);
      }
    }
    for (int64_t k = 0; k < Block::kInputs; k += kBlockInputs) {
      pack_codes(codes_ + k, column, block.codes[k / kBlockInputs]);
    }
  }

 private:
  static constexpr int64_t kHalf = kBlockInputs / 2;

  template <class Parts>
  void pack_part(int64_t part, int64_t column, Parts& parts) const {
    if constexpr (Block::kCodeBits == 2) {
      parts.both[part][column] = static_cast<uint8_t>(part_scales_[part] | part_minima_[part] << 4);
    } else {
      std::memcpy(&parts.scales[part][column], &part_scales_[part], 1);
      if constexpr (Block::kHasMinima) {
        parts.minima[part][column] = part_minima_[part];
      }
    }
  }

  /// Reads a block as core/formats/quantised/scaled_blocks.h describes it.
  void read_scaled() {
    scale_ = bytes_;
    const uint8_t* codes = bytes_ + Block::kStoredBytes - Block::kInputs * Block::kCodeBits / 8;
    for (int64_t k = 0; k < Block::kInputs; ++k) {
      if constexpr (Block::kCodeBits == 8) {
        codes_[k] = codes[k];
      } else {
        codes_[k] =
            codes[k / kBlockInputs * kHalf + k % kHalf] >> (k % kBlockInputs / kHalf * 4) & 15;
      }
    }
  }

  /// Q8_0: scale, int8 codes. Q4_0, Q4_1, Q5_0, Q5_1: scale, minimum, fifth bits, low bits of
  /// codes.
  void read_plain() {
    scale_ = bytes_;
    const uint8_t* codes = bytes_ + (Block::kHasMinima ? 4 : 2);
    if constexpr (Block::kCodeBits == 8) {
      for (int64_t k = 0; k < kBlockInputs; ++k) {
        codes_[k] = codes[k] ^ 0x80;  // 128 more
      }
      return;
    }
    const uint8_t* fifth = codes;
    codes += Block::kCodeBits == 5 ? 4 : 0;
    for (int64_t k = 0; k < kBlockInputs; ++k) {
      codes_[k] = k < kHalf ? codes[k] & 0xF : codes[k - kHalf] >> 4;
      if constexpr (Block::kCodeBits == 5) {
        codes_[k] |= static_cast<uint8_t>((fifth[k / 8] >> (k % 8) & 1) << 4);
      }
    }
  }

  /// Q4_K and Q5_K: scale, minimum, eight scales and minima in six bits, fifth bits, low bits.
  void read_with_minima() {
    scale_ = bytes_;
    const uint8_t* six = bytes_ + 4;
    for (int part = 0; part < 4; ++part) {
      part_scales_[part] = six[part] & 63;
      part_minima_[part] = six[part + 4] & 63;
      part_scales_[part + 4] = static_cast<uint8_t>((six[part + 8] & 15) | (six[part] >> 6) << 4);
      part_minima_[part + 4] = static_cast<uint8_t>(six[part + 8] >> 4 | (six[part + 4] >> 6) << 4);
    }
    const uint8_t* fifth = six + 12;
    const uint8_t* codes = fifth + (Block::kCodeBits == 5 ? kBlockInputs : 0);
    for (int64_t k = 0; k < Block::kInputs; ++k) {
      const int64_t part = k / kBlockInputs;
      codes_[k] = codes[k / 64 * 32 + k % 32] >> (part % 2 * 4) & 15;
      if constexpr (Block::kCodeBits == 5) {
        codes_[k] |= static_cast<uint8_t>((fifth[k % 32] >> part & 1) << 4);
      }
    }
  }

  /// Scales and minima of 16 inputs in halves of a byte, codes, scale, minimum.
  void read_q2k() {
    for (int part = 0; part < 16; ++part) {
      part_scales_[part] = bytes_[part] & 15;
      part_minima_[part] = bytes_[part] >> 4;
    }
    read_pairs(bytes_ + 16);
    scale_ = bytes_ + 16 + Block::kInputs / 4;
  }

  /// Third bits of codes, low bits, scales of 16 inputs in six bits, scale.
  void read_q3k() {
    const uint8_t* low = bytes_ + Block::kInputs / 8;
    const uint8_t* six = low + Block::kInputs / 4;
    scale_ = six + 12;
    read_pairs(low);
    for (int64_t k = 0; k < Block::kInputs; ++k) {
      codes_[k] |= static_cast<uint8_t>((bytes_[k % 32] >> (k / 32) & 1) << 2);
    }
    for (int part = 0; part < 16; ++part) {
      const int below = six[part % 8] >> (part / 8 * 4) & 15;
      const int above = six[8 + part % 4] >> (part / 4 * 2) & 3;
      part_scales_[part] = static_cast<uint8_t>((below | above << 4) - 32);
    }
  }

  /// The low two bits of codes.
  void read_pairs(const uint8_t* pairs) {
    for (int64_t k = 0; k < Block::kInputs; ++k) {
      codes_[k] = pairs[k / 128 * 32 + k % 32] >> (k % 128 / 32 * 2) & 3;
    }
  }

  /// Low bits of codes, high bits, scales of 16 inputs, scale.
  void read_q6k() {
    const uint8_t* high = bytes_ + Block::kInputs / 2;
    std::memcpy(part_scales_, high + Block::kInputs / 4, 16);
    scale_ = high + Block::kInputs / 4 + 16;
    for (int64_t k = 0; k < Block::kInputs; ++k) {
      const int low = bytes_[k / 128 * 64 + k % 64] >> (k % 128 / 64 * 4) & 15;
      const int above = high[k / 128 * 32 + k % 32] >> (k % 128 / 32 * 2) & 3;
      codes_[k] = static_cast<uint8_t>(low | above << 4);
    }
  }

  const uint8_t* bytes_;
  const uint8_t* scale_ = nullptr;  ///< a minimum behind it
  uint8_t codes_[Block::kInputs];
  uint8_t part_scales_[16] = {};
  uint8_t part_minima_[16] = {};
};

/// Writes the blocks of one output, which are larger in a file, or of 16 inputs.
template <class Block>
void pack_codebook_row(const std::byte* row, DType dtype, std::span<Block> blocks, int64_t column) {
  const int64_t each = block_values(dtype);
  const int64_t inputs = std::max(each, kBlockInputs);
  std::array<uint8_t, 256> codes{};
  std::array<float, 16> scales{};
  for (int64_t first = 0; first < std::ssize(blocks) * kBlockInputs; first += inputs) {
    for (int64_t k = 0; k < inputs; k += each, row += dtype_bytes(dtype)) {
      read_codebook_block(dtype, row, codes.data() + k, scales.data() + k / Block::kScaleInputs);
    }
    for (int64_t k = 0; k < inputs; k += kBlockInputs) {
      Block& block = blocks[static_cast<size_t>((first + k) / kBlockInputs)];
      pack_codes(codes.data() + k, column, block.codes[0]);
      for (int64_t i = 0; i < kBlockInputs / Block::kScaleInputs; ++i) {
        block.scales[i][column] = scales[static_cast<size_t>(k / Block::kScaleInputs + i)];
      }
    }
  }
}

}  // namespace

const float* codebook_numbers(WeightFormat format) {
  const DType dtype = stored_dtype(format);
  return is_codebook_block(dtype) ? codebook_of(dtype).data() : nullptr;
}

void quantize_rows_int8(const at::Tensor& rows, int64_t first, at::Tensor& panels) {
  const auto* values = rows.const_data_ptr<float>();
  auto* blocks = reinterpret_cast<Int8Block*>(panels.mutable_data_ptr<uint8_t>());
  const int64_t in = rows.size(1);
  for (int64_t n = 0; n < rows.size(0); ++n) {
    Int8Block* panel = blocks + (first + n) / kPanel * blocks_of(in);
    for (int64_t k = 0; k < in; k += kBlockInputs) {
      quantize(values + n * in + k, std::min(kBlockInputs, in - k), (first + n) % kPanel,
               panel[k / kBlockInputs]);
    }
  }
}

void pack_stored_row(const std::byte* row, int64_t in, int64_t output, WeightFormat format,
                     at::Tensor& panels) {
  with_block_type(format, [&]<class Block>(Block* /*type*/) {
    SPECDEC_CHECK(in % Block::kInputs == 0, "stored blocks of {} inputs", in);
    const int64_t count = in / Block::kInputs;
    auto* blocks =
        reinterpret_cast<Block*>(panels.mutable_data_ptr<uint8_t>()) + output / kPanel * count;
    if constexpr (Block::kHasCodebook) {
      pack_codebook_row(row, stored_dtype(format), std::span(blocks, static_cast<size_t>(count)),
                        output % kPanel);
    } else {
      static_assert(kKeepsItsSize<Block>);
      for (int64_t b = 0; b < count; ++b) {
        StoredBlock<Block>(row + b * Block::kStoredBytes).pack(output % kPanel, blocks[b]);
      }
    }
  });
}

void unpack_block_rows(const at::Tensor& panels, WeightFormat format, std::span<const int32_t> ids,
                       float* out, int64_t in) {
  with_block_type(format, [&]<class Block>(Block* /*type*/) {
    const auto* blocks = reinterpret_cast<const Block*>(panels.const_data_ptr<uint8_t>());
    const int64_t count = (in + Block::kInputs - 1) / Block::kInputs;
    const float* codebook = codebook_numbers(format);
    for (const int64_t id : ids) {
      const Block* panel = blocks + id / kPanel * count;
      for (int64_t k = 0; k < in; ++k) {
        *out++ = weight_of(panel[k / Block::kInputs], codebook, id % kPanel, k % Block::kInputs);
      }
    }
  });
}

}  // namespace specdec
