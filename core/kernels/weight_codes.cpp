#include "core/kernels/weight_codes.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "core/error.h"
#include "core/kernels/linear.h"

namespace specdec {
namespace {

/// Low, then high four bits of the last dimension's bytes.
Tensor split_nibbles(const Tensor& bytes) {
  return at::cat({bytes.bitwise_and(15), bytes.bitwise_right_shift(4)}, -1);
}

/// The inverse.
Tensor join_nibbles(const Tensor& codes) {
  const std::vector<Tensor> halves = codes.chunk(2, -1);
  return halves[0].bitwise_or(halves[1].bitwise_left_shift(4));
}

/// Blocks [out, blocks, bytes] of one output after the other.
Tensor blocks_of(const Tensor& rows, int64_t bytes) { return rows.view({rows.size(0), -1, bytes}); }

/// [out, blocks, count], of each block's bytes.
Tensor bytes_of(const Tensor& blocks, int64_t first, int64_t count) {
  return blocks.narrow(2, first, count);
}

/// A float16 number or two of each block [out, blocks, bytes], once for each 64 inputs.
Tensor for_each_chunk(const Tensor& bytes) { return bytes.unsqueeze(2).expand({-1, -1, 4, -1}); }

/// Blocks that begin with what belongs to all their inputs, behind which lie codes.
struct ScaledBlocks {
  int64_t inputs;
  int64_t bits;         ///< of a code: 4 or 8
  int64_t scale_bytes;  ///< before the codes
  int64_t chunk_bytes;  ///< the same, filled up with zeros
  int64_t span = 32;    ///< of four bits: inputs that share bytes, the first half in the low bits
  uint8_t flipped = 0;  ///< bits of a byte in which a code differs

  int64_t bytes() const { return scale_bytes + inputs * bits / 8; }
};

std::optional<ScaledBlocks> scaled_blocks(WeightFormat format) {
  switch (format) {
    case WeightFormat::kInt8:
      return ScaledBlocks{32, 8, 2, 2, 32, 128};
    case WeightFormat::kQ40:
      return ScaledBlocks{32, 4, 2, 2};
    case WeightFormat::kFp8x128:
      return ScaledBlocks{128, 8, 4, 4};
    case WeightFormat::kFp8x32:
      return ScaledBlocks{32, 8, 4, 4};
    case WeightFormat::kInt4x128:
      return ScaledBlocks{128, 4, 5, 8};
    case WeightFormat::kInt4x32:
      return ScaledBlocks{32, 4, 3, 4};
    case WeightFormat::kAffine8x64:
      return ScaledBlocks{64, 8, 8, 8};
    case WeightFormat::kAffine4x32:
      return ScaledBlocks{32, 4, 4, 4};
    default:
      return {};
  }
}

CodesAndScales take_scaled(const Tensor& rows, const ScaledBlocks& layout) {
  const int64_t out = rows.size(0);
  const Tensor blocks = blocks_of(rows, layout.bytes());
  const Tensor stored = bytes_of(blocks, layout.scale_bytes, layout.inputs * layout.bits / 8);
  Tensor scales = at::constant_pad_nd(bytes_of(blocks, 0, layout.scale_bytes),
                                      {0, layout.chunk_bytes - layout.scale_bytes});
  if (layout.inputs == 128) {
    scales = scales.unsqueeze(2).expand({-1, -1, 2, -1});
  }
  if (layout.bits == 8) {
    return {stored.bitwise_xor(layout.flipped), scales};
  }
  return {split_nibbles(stored.reshape({out, -1, layout.span / 2})), scales};
}

Tensor join_scaled(const Tensor& codes, const Tensor& scales, const ScaledBlocks& layout) {
  const int64_t out = codes.size(0);
  const Tensor whole = layout.inputs == 128
                           ? scales.view({out, -1, 2, layout.chunk_bytes}).select(2, 0)
                           : blocks_of(scales, layout.chunk_bytes);
  const Tensor stored = layout.bits == 8 ? codes.bitwise_xor(layout.flipped)
                                         : join_nibbles(codes.view({out, -1, layout.span}));
  return at::cat({bytes_of(whole, 0, layout.scale_bytes),
                  stored.reshape({out, -1, layout.inputs * layout.bits / 8})},
                 2);
}

/// Bits 4 and 5, which lie in bits 6 and 7 of another byte.
Tensor upper_bits(const Tensor& bytes) { return bytes.bitwise_right_shift(2).bitwise_and(48); }

CodesAndScales take_q4k(const Tensor& rows) {
  const Tensor blocks = blocks_of(rows, 144);
  const int64_t out = rows.size(0);
  const Tensor scale = bytes_of(blocks, 4, 4);
  const Tensor minimum = bytes_of(blocks, 8, 4);
  const Tensor both = bytes_of(blocks, 12, 4);
  const Tensor scales =
      at::cat({scale.bitwise_and(63), both.bitwise_and(15).bitwise_or(upper_bits(scale))}, 2);
  const Tensor minima = at::cat(
      {minimum.bitwise_and(63), both.bitwise_right_shift(4).bitwise_or(upper_bits(minimum))}, 2);
  const Tensor groups = at::stack({scales, minima}, 3).view({out, -1, 4, 4});
  return {split_nibbles(bytes_of(blocks, 16, 128).reshape({out, -1, 4, 32})),
          at::cat({for_each_chunk(bytes_of(blocks, 0, 4)), groups}, 3)};
}

Tensor join_q4k(const Tensor& codes, const Tensor& scales) {
  const int64_t out = codes.size(0);
  const Tensor chunks = scales.view({out, -1, 4, 8});
  const Tensor groups = chunks.narrow(3, 4, 4).reshape({out, -1, 8, 2});
  const auto of_groups = [&groups](int64_t which, int64_t first) {
    return groups.select(3, which).narrow(2, first, 4);
  };
  const auto with_upper = [&of_groups](int64_t which) {
    const Tensor upper = of_groups(which, 4).bitwise_and(48).bitwise_left_shift(2);
    return of_groups(which, 0).bitwise_or(upper);
  };
  const Tensor lower = of_groups(0, 4).bitwise_and(15).bitwise_or(
      of_groups(1, 4).bitwise_and(15).bitwise_left_shift(4));
  const Tensor nibbles = join_nibbles(codes.view({out, -1, 4, 64})).reshape({out, -1, 128});
  return at::cat(
      {chunks.select(2, 0).narrow(2, 0, 4), with_upper(0), with_upper(1), lower, nibbles}, 2);
}

CodesAndScales take_q6k(const Tensor& rows) {
  const Tensor blocks = blocks_of(rows, 210);
  const int64_t out = rows.size(0);
  const Tensor low = split_nibbles(bytes_of(blocks, 0, 128).reshape({out, -1, 2, 64}));
  const Tensor pairs = bytes_of(blocks, 128, 64).reshape({out, -1, 2, 32});
  std::vector<Tensor> high;
  for (int64_t shift = 0; shift < 8; shift += 2) {
    high.push_back(pairs.bitwise_right_shift(shift).bitwise_and(3));
  }
  const Tensor scales = at::cat({bytes_of(blocks, 192, 16).reshape({out, -1, 4, 4}),
                                 for_each_chunk(bytes_of(blocks, 208, 2))},
                                3);
  return {low.bitwise_or(at::cat(high, 3).bitwise_left_shift(4)),
          at::constant_pad_nd(scales, {0, 2})};
}

Tensor join_q6k(const Tensor& codes, const Tensor& scales) {
  const int64_t out = codes.size(0);
  const Tensor halves = codes.view({out, -1, 2, 128});
  const Tensor low = join_nibbles(halves.bitwise_and(15)).reshape({out, -1, 128});
  const Tensor upper = halves.bitwise_right_shift(4).view({out, -1, 2, 4, 32});
  Tensor high = upper.select(3, 0);
  for (int64_t i = 1; i < 4; ++i) {
    high = high.bitwise_or(upper.select(3, i).bitwise_left_shift(2 * i));
  }
  const Tensor chunks = scales.view({out, -1, 4, 8});
  return at::cat({low, high.reshape({out, -1, 64}), chunks.narrow(3, 0, 4).reshape({out, -1, 16}),
                  chunks.select(2, 0).narrow(2, 4, 2)},
                 2);
}

CodesAndScales taken(const Tensor& rows, WeightFormat format) {
  if (const std::optional<ScaledBlocks> layout = scaled_blocks(format)) {
    return take_scaled(rows, *layout);
  }
  return format == WeightFormat::kQ4K ? take_q4k(rows) : take_q6k(rows);
}

Tensor joined(const Tensor& codes, const Tensor& scales, WeightFormat format) {
  if (const std::optional<ScaledBlocks> layout = scaled_blocks(format)) {
    return join_scaled(codes, scales, *layout);
  }
  return format == WeightFormat::kQ4K ? join_q4k(codes, scales) : join_q6k(codes, scales);
}

}  // namespace

bool has_codes(WeightFormat format) {
  return format == WeightFormat::kBFloat16 || format == WeightFormat::kFloat16 ||
         chunk_scale_bytes(format) > 0;
}

int64_t chunk_scale_bytes(WeightFormat format) {
  if (const std::optional<ScaledBlocks> layout = scaled_blocks(format)) {
    return layout->chunk_bytes * std::max<int64_t>(1, 64 / layout->inputs);
  }
  return format == WeightFormat::kQ4K || format == WeightFormat::kQ6K ? 8 : 0;
}

CodesAndScales codes_and_scales(const Tensor& rows, WeightFormat format) {
  SPECDEC_CHECK(has_codes(format), "{} has no codes", format_name(format));
  if (chunk_scale_bytes(format) == 0) {
    return {rows.view(at::kShort), {}};
  }
  const CodesAndScales parts = taken(rows, format);
  const int64_t out = rows.size(0);
  return {parts.codes.reshape({out, -1}), parts.scales.reshape({out, -1})};
}

Tensor rows_of_codes(const CodesAndScales& parts, WeightFormat format) {
  SPECDEC_CHECK(has_codes(format), "{} has no codes", format_name(format));
  if (chunk_scale_bytes(format) == 0) {
    return parts.codes.contiguous().view(scalar_type(format));
  }
  return joined(parts.codes.contiguous(), parts.scales.contiguous(), format)
      .reshape({parts.codes.size(0), -1});
}

}  // namespace specdec
