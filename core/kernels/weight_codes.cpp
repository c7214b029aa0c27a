#include "core/kernels/weight_codes.h"

#include <ATen/ATen.h>

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

CodesAndScales take_q80(const Tensor& rows) {
  const Tensor blocks = blocks_of(rows, 34);
  return {bytes_of(blocks, 2, 32).bitwise_xor(128), bytes_of(blocks, 0, 2)};
}

Tensor join_q80(const Tensor& codes, const Tensor& scales) {
  return at::cat({scales.view({codes.size(0), -1, 2}), blocks_of(codes, 32).bitwise_xor(128)}, 2);
}

CodesAndScales take_q40(const Tensor& rows) {
  const Tensor blocks = blocks_of(rows, 18);
  return {split_nibbles(bytes_of(blocks, 2, 16)), bytes_of(blocks, 0, 2)};
}

Tensor join_q40(const Tensor& codes, const Tensor& scales) {
  return at::cat({scales.view({codes.size(0), -1, 2}), join_nibbles(blocks_of(codes, 32))}, 2);
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

CodesAndScales take_fp8x128(const Tensor& rows) {
  const Tensor blocks = blocks_of(rows, 132);
  return {bytes_of(blocks, 4, 128), bytes_of(blocks, 0, 4).unsqueeze(2).expand({-1, -1, 2, -1})};
}

Tensor join_fp8x128(const Tensor& codes, const Tensor& scales) {
  const Tensor chunks = scales.view({codes.size(0), -1, 2, 4});
  return at::cat({chunks.select(2, 0), blocks_of(codes, 128)}, 2);
}

CodesAndScales take_fp8x32(const Tensor& rows) {
  const Tensor blocks = blocks_of(rows, 36);
  return {bytes_of(blocks, 4, 32), bytes_of(blocks, 0, 4)};
}

Tensor join_fp8x32(const Tensor& codes, const Tensor& scales) {
  return at::cat({blocks_of(scales, 4), blocks_of(codes, 32)}, 2);
}

CodesAndScales take_int4x128(const Tensor& rows) {
  const Tensor blocks = blocks_of(rows, 69);
  const Tensor scale = at::constant_pad_nd(bytes_of(blocks, 0, 5), {0, 3});
  return {split_nibbles(bytes_of(blocks, 5, 64).reshape({rows.size(0), -1, 4, 16})),
          scale.unsqueeze(2).expand({-1, -1, 2, -1})};
}

Tensor join_int4x128(const Tensor& codes, const Tensor& scales) {
  const int64_t out = codes.size(0);
  const Tensor chunks = scales.view({out, -1, 2, 8});
  const Tensor nibbles = join_nibbles(codes.view({out, -1, 4, 32})).reshape({out, -1, 64});
  return at::cat({chunks.select(2, 0).narrow(2, 0, 5), nibbles}, 2);
}

CodesAndScales take_int4x32(const Tensor& rows) {
  const Tensor blocks = blocks_of(rows, 19);
  return {split_nibbles(bytes_of(blocks, 3, 16)),
          at::constant_pad_nd(bytes_of(blocks, 0, 3), {0, 1})};
}

Tensor join_int4x32(const Tensor& codes, const Tensor& scales) {
  return at::cat({bytes_of(blocks_of(scales, 4), 0, 3), join_nibbles(blocks_of(codes, 32))}, 2);
}

CodesAndScales taken(const Tensor& rows, WeightFormat format) {
  switch (format) {
    case WeightFormat::kInt8:
      return take_q80(rows);
    case WeightFormat::kQ40:
      return take_q40(rows);
    case WeightFormat::kQ4K:
      return take_q4k(rows);
    case WeightFormat::kFp8x128:
      return take_fp8x128(rows);
    case WeightFormat::kFp8x32:
      return take_fp8x32(rows);
    case WeightFormat::kInt4x128:
      return take_int4x128(rows);
    case WeightFormat::kInt4x32:
      return take_int4x32(rows);
    default:
      return take_q6k(rows);
  }
}

Tensor joined(const Tensor& codes, const Tensor& scales, WeightFormat format) {
  switch (format) {
    case WeightFormat::kInt8:
      return join_q80(codes, scales);
    case WeightFormat::kQ40:
      return join_q40(codes, scales);
    case WeightFormat::kQ4K:
      return join_q4k(codes, scales);
    case WeightFormat::kFp8x128:
      return join_fp8x128(codes, scales);
    case WeightFormat::kFp8x32:
      return join_fp8x32(codes, scales);
    case WeightFormat::kInt4x128:
      return join_int4x128(codes, scales);
    case WeightFormat::kInt4x32:
      return join_int4x32(codes, scales);
    default:
      return join_q6k(codes, scales);
  }
}

}  // namespace

bool has_codes(WeightFormat format) {
  switch (format) {
    case WeightFormat::kBFloat16:
    case WeightFormat::kFloat16:
    case WeightFormat::kInt8:
    case WeightFormat::kQ40:
    case WeightFormat::kQ4K:
    case WeightFormat::kQ6K:
    case WeightFormat::kFp8x128:
    case WeightFormat::kFp8x32:
    case WeightFormat::kInt4x128:
    case WeightFormat::kInt4x32:
      return true;
    default:
      return false;
  }
}

int64_t chunk_scale_bytes(WeightFormat format) {
  switch (format) {
    case WeightFormat::kInt8:
    case WeightFormat::kQ40:
    case WeightFormat::kFp8x128:
      return 4;
    case WeightFormat::kQ4K:
    case WeightFormat::kQ6K:
    case WeightFormat::kFp8x32:
    case WeightFormat::kInt4x128:
    case WeightFormat::kInt4x32:
      return 8;
    default:
      return 0;
  }
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
