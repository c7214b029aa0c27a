#include "core/kernels/block_formats.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace specdec {
namespace {

template <class Block>
constexpr bool kTwoCodesAByte = sizeof(Block::codes) == kPanel* kBlockInputs / 2;

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
    block.codes[k / 4][column][k % 4] = static_cast<uint8_t>(code + Int8Block::kOffset);
  }
}

float widened(Fp16 half) {
  return static_cast<float>(c10::Half(half.bits, c10::Half::from_bits()));
}

template <class Block>
int code_of(const Block& block, int64_t column, int64_t k) {
  if constexpr (kTwoCodesAByte<Block>) {
    const int byte = block.codes[k % 16 / 4][column][k % 4];
    return k < 16 ? byte & 0xF : byte >> 4;
  } else {
    return block.codes[k / 4][column][k % 4];
  }
}

template <class Block>
float weight_of(const Block& block, int64_t column, int64_t k) {
  const auto code = static_cast<float>(code_of(block, column, k) - Block::kOffset);
  const float product = code * widened(block.scales[column]);  // exact
  if constexpr (Block::kHasMinima) {
    return product + widened(block.minima[column]);
  }
  return product;
}

template <class Block>
void pack_block(const std::byte* stored, int64_t column, Block& block) {
  std::memcpy(&block.scales[column], stored, sizeof(Fp16));
  stored += sizeof(Fp16);
  if constexpr (Block::kHasMinima) {
    std::memcpy(&block.minima[column], stored, sizeof(Fp16));
    stored += sizeof(Fp16);
  }
  constexpr int64_t kBytes = kTwoCodesAByte<Block> ? kBlockInputs / 2 : kBlockInputs;
  // An int8 as code: 128 more.
  constexpr auto kTurn = static_cast<uint8_t>(kTwoCodesAByte<Block> ? 0 : 0x80);
  for (int64_t i = 0; i < kBytes; ++i) {
    block.codes[i / 4][column][i % 4] =
        static_cast<uint8_t>(std::to_integer<uint8_t>(stored[i]) ^ kTurn);
  }
}

}  // namespace

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
  SPECDEC_CHECK(in % kBlockInputs == 0, "stored blocks of {} inputs", in);
  with_block_type(format, [&]<class Block>(Block* /*type*/) {
    auto* blocks = reinterpret_cast<Block*>(panels.mutable_data_ptr<uint8_t>()) +
                   output / kPanel * blocks_of(in);
    for (int64_t b = 0; b < blocks_of(in); ++b) {
      pack_block(row + b * Block::kStoredBytes, output % kPanel, blocks[b]);
    }
  });
}

void unpack_block_rows(const at::Tensor& panels, WeightFormat format, std::span<const int64_t> ids,
                       float* out, int64_t in) {
  with_block_type(format, [&]<class Block>(Block* /*type*/) {
    const auto* blocks = reinterpret_cast<const Block*>(panels.const_data_ptr<uint8_t>());
    for (const int64_t id : ids) {
      const Block* panel = blocks + id / kPanel * blocks_of(in);
      for (int64_t k = 0; k < in; ++k) {
        *out++ = weight_of(panel[k / kBlockInputs], id % kPanel, k % kBlockInputs);
      }
    }
  });
}

}  // namespace specdec
