#include "core/kernels/weight_codes.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "core/error.h"
#include "core/formats/quantised/codebook_blocks.h"
#include "core/kernels/linear.h"
#include "core/kernels/stored_rows.h"

namespace specdec {
namespace {

/// Low, then high four bits of the last dimension's bytes.
Tensor split_nibbles(const Tensor& bytes) {
  return at::cat({bytes.bitwise_and(15), bytes.bitwise_right_shift(4)}, -1);
}

/// Bytes of low, then high four bits: the inverse of split_nibbles.
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

/// Places of the bits of a byte along a dimension of four.
Tensor bit_places(int64_t dimension) {
  std::vector<int64_t> shape(4, 1);
  shape[static_cast<size_t>(dimension)] = 8;
  return at::arange(8, at::kByte).view(shape);
}

/// Bits of bytes [a, b, c], in a dimension of their own, as fifth bits of codes.
Tensor fifth_bits(const Tensor& bytes, int64_t dimension) {
  const Tensor places = bit_places(dimension).to(bytes.device());
  return bytes.unsqueeze(dimension).bitwise_right_shift(places).bitwise_and(1).bitwise_left_shift(
      4);
}

/// Bytes of the fifth bits of codes: the inverse of fifth_bits.
Tensor fifth_bytes(const Tensor& codes, int64_t dimension) {
  const Tensor places = bit_places(dimension).to(codes.device());
  return codes.bitwise_right_shift(4).bitwise_left_shift(places).sum(dimension, false, at::kByte);
}

/// Blocks that begin with what belongs to all their inputs, behind which lie codes.
struct ScaledBlocks {
  int64_t inputs;
  int64_t bits;         ///< of a code: 4, 5 or 8; fifth bits lie before the others
  int64_t scale_bytes;  ///< before the codes
  int64_t chunk_bytes;  ///< the same, filled up with zeros
  int64_t span = 32;    ///< of four bits: inputs that share bytes, the first half in the low bits
  uint8_t flipped = 0;  ///< bits of a byte in which a code differs

  int64_t bytes() const { return scale_bytes + inputs * bits / 8; }
};

std::optional<ScaledBlocks> scaled_blocks(WeightFormat format) {
  if (has_codebook(format)) {
    const int64_t inputs = codebook_scale_inputs(stored_dtype(format));
    return ScaledBlocks{inputs, 4, 4, 4, inputs};
  }
  switch (format) {
    case WeightFormat::kInt8:
      return ScaledBlocks{32, 8, 2, 2, 32, 128};
    case WeightFormat::kQ40:
      return ScaledBlocks{32, 4, 2, 2};
    case WeightFormat::kQ41:
      return ScaledBlocks{32, 4, 4, 4};
    case WeightFormat::kQ50:
      return ScaledBlocks{32, 5, 2, 2};
    case WeightFormat::kQ51:
      return ScaledBlocks{32, 5, 4, 4};
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
  const int64_t behind = layout.bytes() - layout.scale_bytes;
  Tensor scales = at::constant_pad_nd(bytes_of(blocks, 0, layout.scale_bytes),
                                      {0, layout.chunk_bytes - layout.scale_bytes});
  if (layout.inputs == 128) {
    scales = scales.unsqueeze(2).expand({-1, -1, 2, -1});
  }
  if (layout.bits == 8) {
    return {bytes_of(blocks, layout.scale_bytes, behind).bitwise_xor(layout.flipped), scales};
  }
  const int64_t fifths = layout.bits == 5 ? layout.inputs / 8 : 0;
  const Tensor low = bytes_of(blocks, layout.scale_bytes + fifths, behind - fifths);
  Tensor codes = split_nibbles(low.reshape({out, -1, layout.span / 2}));
  if (fifths > 0) {
    codes =
        codes.bitwise_or(fifth_bits(bytes_of(blocks, layout.scale_bytes, fifths), 3).flatten(2));
  }
  return {codes, scales};
}

Tensor join_scaled(const Tensor& codes, const Tensor& scales, const ScaledBlocks& layout) {
  const int64_t out = codes.size(0);
  const Tensor whole = layout.inputs == 128
                           ? scales.view({out, -1, 2, layout.chunk_bytes}).select(2, 0)
                           : blocks_of(scales, layout.chunk_bytes);
  std::vector<Tensor> parts = {bytes_of(whole, 0, layout.scale_bytes)};
  if (layout.bits == 8) {
    parts.push_back(blocks_of(codes, layout.inputs).bitwise_xor(layout.flipped));
    return at::cat(parts, 2);
  }
  if (layout.bits == 5) {
    parts.push_back(fifth_bytes(codes.view({out, -1, layout.inputs / 8, 8}), 3));
  }
  const Tensor low = codes.bitwise_and(15).view({out, -1, layout.span});
  parts.push_back(join_nibbles(low).reshape({out, -1, layout.inputs / 2}));
  return at::cat(parts, 2);
}

/// Bits 4 and 5, which lie in bits 6 and 7 of another byte.
Tensor upper_bits(const Tensor& bytes) { return bytes.bitwise_right_shift(2).bitwise_and(48); }

/// Q4_K, and Q5_K, whose fifth bits of 32 inputs each lie in one of 32 bytes before the others.
CodesAndScales take_super(const Tensor& rows, bool has_fifths) {
  const int64_t fifths = has_fifths ? 32 : 0;
  const Tensor blocks = blocks_of(rows, 144 + fifths);
  const int64_t out = rows.size(0);
  const Tensor scale = bytes_of(blocks, 4, 4);
  const Tensor minimum = bytes_of(blocks, 8, 4);
  const Tensor both = bytes_of(blocks, 12, 4);
  const Tensor scales =
      at::cat({scale.bitwise_and(63), both.bitwise_and(15).bitwise_or(upper_bits(scale))}, 2);
  const Tensor minima = at::cat(
      {minimum.bitwise_and(63), both.bitwise_right_shift(4).bitwise_or(upper_bits(minimum))}, 2);
  const Tensor groups = at::stack({scales, minima}, 3).view({out, -1, 4, 4});
  const Tensor low = bytes_of(blocks, 16 + fifths, 128).reshape({out, -1, 4, 32});
  Tensor codes = split_nibbles(low).view({out, -1, 8, 32});
  if (has_fifths) {
    codes = codes.bitwise_or(fifth_bits(bytes_of(blocks, 16, fifths), 2));
  }
  return {codes, at::cat({for_each_chunk(bytes_of(blocks, 0, 4)), groups}, 3)};
}

Tensor join_super(const Tensor& codes, const Tensor& scales, bool has_fifths) {
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
  std::vector<Tensor> parts = {chunks.select(2, 0).narrow(2, 0, 4), with_upper(0), with_upper(1),
                               lower};
  if (has_fifths) {
    parts.push_back(fifth_bytes(codes.view({out, -1, 8, 32}), 2));
  }
  const Tensor low = codes.bitwise_and(15).view({out, -1, 4, 64});
  parts.push_back(join_nibbles(low).reshape({out, -1, 128}));
  return at::cat(parts, 2);
}

/// Two bits of the last dimension's bytes, the lowest first.
Tensor split_pairs(const Tensor& bytes) {
  std::vector<Tensor> pairs;
  for (int64_t shift = 0; shift < 8; shift += 2) {
    pairs.push_back(bytes.bitwise_right_shift(shift).bitwise_and(3));
  }
  return at::cat(pairs, -1);
}

/// Bytes of two bits each: the inverse of split_pairs.
Tensor join_pairs(const Tensor& pairs) {
  const std::vector<Tensor> fourths = pairs.chunk(4, -1);
  Tensor bytes = fourths[0];
  for (size_t i = 1; i < fourths.size(); ++i) {
    bytes = bytes.bitwise_or(fourths[i].bitwise_left_shift(2 * static_cast<int64_t>(i)));
  }
  return bytes;
}

/// Two bits of a block's codes, as 64 bytes of it hold them.
Tensor split_code_pairs(const Tensor& bytes) {
  return split_pairs(bytes.reshape({bytes.size(0), -1, 2, 32}));
}

Tensor join_code_pairs(const Tensor& codes) {
  const Tensor pairs = codes.bitwise_and(3).view({codes.size(0), -1, 2, 128});
  return join_pairs(pairs).reshape({codes.size(0), -1, 64});
}

/// Int8 scales of 16 inputs [out, blocks, 16] and the block's one, float16, for each 64 inputs.
Tensor signed_scales(const Tensor& parts, const Tensor& scale) {
  const Tensor fourths = parts.reshape({parts.size(0), -1, 4, 4});
  return at::constant_pad_nd(at::cat({fourths, for_each_chunk(scale)}, 3), {0, 2});
}

/// The scales of 16 inputs, and that of the block, of what signed_scales() returns.
std::array<Tensor, 2> split_signed_scales(const Tensor& scales) {
  const Tensor chunks = scales.view({scales.size(0), -1, 4, 8});
  return {chunks.narrow(3, 0, 4).reshape({scales.size(0), -1, 16}),
          chunks.select(2, 0).narrow(2, 4, 2)};
}

CodesAndScales take_q6k(const Tensor& rows) {
  const Tensor blocks = blocks_of(rows, 210);
  const Tensor low = split_nibbles(bytes_of(blocks, 0, 128).reshape({rows.size(0), -1, 2, 64}));
  const Tensor high = split_code_pairs(bytes_of(blocks, 128, 64));
  return {low.bitwise_or(high.bitwise_left_shift(4)),
          signed_scales(bytes_of(blocks, 192, 16), bytes_of(blocks, 208, 2))};
}

Tensor join_q6k(const Tensor& codes, const Tensor& scales) {
  const int64_t out = codes.size(0);
  const Tensor halves = codes.bitwise_and(15).view({out, -1, 2, 128});
  const Tensor low = join_nibbles(halves).reshape({out, -1, 128});
  const auto [parts, scale] = split_signed_scales(scales);
  return at::cat({low, join_code_pairs(codes.bitwise_right_shift(4)), parts, scale}, 2);
}

CodesAndScales take_q2k(const Tensor& rows) {
  const Tensor blocks = blocks_of(rows, 84);
  const Tensor parts = bytes_of(blocks, 0, 16).reshape({rows.size(0), -1, 4, 4});
  return {split_code_pairs(bytes_of(blocks, 16, 64)),
          at::cat({for_each_chunk(bytes_of(blocks, 80, 4)), parts}, 3)};
}

Tensor join_q2k(const Tensor& codes, const Tensor& scales) {
  const int64_t out = codes.size(0);
  const Tensor chunks = scales.view({out, -1, 4, 8});
  return at::cat({chunks.narrow(3, 4, 4).reshape({out, -1, 16}), join_code_pairs(codes),
                  chunks.select(2, 0).narrow(2, 0, 4)},
                 2);
}

/// Third bits of codes, of 32 inputs each in one of 32 bytes; low bits; scales of six bits, 32 more
/// than they mean: low halves, then the two bits above; the block's scale.
CodesAndScales take_q3k(const Tensor& rows) {
  const Tensor blocks = blocks_of(rows, 110);
  const Tensor low = split_code_pairs(bytes_of(blocks, 32, 64)).view({rows.size(0), -1, 8, 32});
  const Tensor third = fifth_bits(bytes_of(blocks, 0, 32), 2).bitwise_right_shift(2);
  const Tensor above = split_pairs(bytes_of(blocks, 104, 4)).bitwise_left_shift(4);
  const Tensor parts = split_nibbles(bytes_of(blocks, 96, 8)).bitwise_or(above).sub(32);
  return {low.bitwise_or(third), signed_scales(parts, bytes_of(blocks, 108, 2))};
}

Tensor join_q3k(const Tensor& codes, const Tensor& scales) {
  const auto [parts, scale] = split_signed_scales(scales);
  const Tensor six = parts.add(32).bitwise_and(63);
  const Tensor third = codes.bitwise_left_shift(2).view({codes.size(0), -1, 8, 32});
  return at::cat({fifth_bytes(third, 2), join_code_pairs(codes), join_nibbles(six.bitwise_and(15)),
                  join_pairs(six.bitwise_right_shift(4)), scale},
                 2);
}

CodesAndScales taken(const Tensor& rows, WeightFormat format) {
  if (const std::optional<ScaledBlocks> layout = scaled_blocks(format)) {
    return take_scaled(rows, *layout);
  }
  switch (format) {
    case WeightFormat::kQ2K:
      return take_q2k(rows);
    case WeightFormat::kQ3K:
      return take_q3k(rows);
    case WeightFormat::kQ6K:
      return take_q6k(rows);
    default:
      return take_super(rows, format == WeightFormat::kQ5K);
  }
}

Tensor joined(const Tensor& codes, const Tensor& scales, WeightFormat format) {
  if (const std::optional<ScaledBlocks> layout = scaled_blocks(format)) {
    return join_scaled(codes, scales, *layout);
  }
  switch (format) {
    case WeightFormat::kQ2K:
      return join_q2k(codes, scales);
    case WeightFormat::kQ3K:
      return join_q3k(codes, scales);
    case WeightFormat::kQ6K:
      return join_q6k(codes, scales);
    default:
      return join_super(codes, scales, format == WeightFormat::kQ5K);
  }
}

}  // namespace

bool has_codes(WeightFormat format) {
  return format != WeightFormat::kFloat64 && format != WeightFormat::kFloat32;
}

int64_t chunk_scale_bytes(WeightFormat format) {
  if (const std::optional<ScaledBlocks> layout = scaled_blocks(format)) {
    return layout->chunk_bytes * std::max<int64_t>(1, 64 / layout->inputs);
  }
  return is_in_blocks(format) ? 8 : 0;  // Q2_K to Q6_K
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
