#include "core/kernels/weight_fragments.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <vector>

#include "core/error.h"
#include "core/kernels/linear.h"

namespace specdec {
namespace {

constexpr int64_t kFragmentOutputs = 16;
constexpr int64_t kFragmentInputs = 64;

/// Dimensions of codes: output 16 * kTile + 8 * kHigh + kGroup, input 64 * kChunk + 32 * kPair + 16
/// * kStep + 8 * kHalf + 2 * kQuad + kOne. Its lane is 4 * kGroup + kQuad.
struct Code {
  enum Dimension { kTile, kHigh, kGroup, kChunk, kPair, kStep, kHalf, kQuad, kOne, kCount };
};
using CodeOrder = std::array<int64_t, Code::kCount>;

/// How a format's numbers lie in fragments.
struct FragmentFormat {
  CodeOrder order;       ///< dimensions of codes, as they follow one another
  at::ScalarType code;   ///< of one; kByte: of two where they are `nibbles`
  bool nibbles;          ///< codes of four bits: the last dimension is in one byte
  int64_t zero;          ///< code of padding
  int64_t block_inputs;  ///< that share scales; 0 = none
  int64_t scale_bytes;   ///< of a block
};

const FragmentFormat* fragment_format(WeightFormat format) {
  static constexpr CodeOrder kInSteps = {Code::kTile, Code::kChunk, Code::kPair,
                                         Code::kStep, Code::kGroup, Code::kQuad,
                                         Code::kHalf, Code::kHigh,  Code::kOne};
  static constexpr FragmentFormat kSixteenBits = {kInSteps, at::kShort, false, 0, 0, 0};
  static constexpr FragmentFormat kQ80Format = {
      {Code::kTile, Code::kChunk, Code::kPair, Code::kGroup, Code::kQuad, Code::kStep, Code::kHalf,
       Code::kHigh, Code::kOne},
      at::kByte,
      false,
      128,
      32,
      2};
  static constexpr FragmentFormat kQ40Format = {
      {Code::kTile, Code::kChunk, Code::kGroup, Code::kQuad, Code::kPair, Code::kStep, Code::kOne,
       Code::kHalf, Code::kHigh},
      at::kByte,
      true,
      8,
      32,
      2};
  switch (format) {
    case WeightFormat::kBFloat16:
    case WeightFormat::kFloat16:
      return &kSixteenBits;
    case WeightFormat::kInt8:
      return &kQ80Format;
    case WeightFormat::kQ40:
      return &kQ40Format;
    default:
      return nullptr;
  }
}

const FragmentFormat& checked_format(WeightFormat format) {
  const FragmentFormat* found = fragment_format(format);
  SPECDEC_CHECK(found != nullptr, "{} has no fragments", format_name(format));
  return *found;
}

int64_t fragment_chunks(int64_t in) { return (in + kFragmentInputs - 1) / kFragmentInputs; }
/// In pairs.
int64_t fragment_tiles(int64_t out) {
  return (out + 2 * kFragmentOutputs - 1) / kFragmentOutputs / 2 * 2;
}

std::array<int64_t, Code::kCount> code_sizes(int64_t tiles, int64_t chunks) {
  return {tiles, 2, 8, chunks, 2, 2, 2, 4, 2};
}

/// Fills up to `rows` and `columns`.
Tensor padded_codes(const Tensor& numbers, int64_t rows, int64_t columns, int64_t zero) {
  if (numbers.size(0) == rows && numbers.size(1) == columns) {
    return numbers;
  }
  return at::constant_pad_nd(numbers, {0, columns - numbers.size(1), 0, rows - numbers.size(0)},
                             zero);
}

/// Two halves of a last dimension's bytes, as low and high four bits.
Tensor joined_nibbles(const Tensor& low, const Tensor& high) {
  return low.bitwise_or(high.bitwise_left_shift(4));
}
Tensor low_nibbles(const Tensor& bytes) { return bytes.bitwise_and(15); }
Tensor high_nibbles(const Tensor& bytes) { return bytes.bitwise_right_shift(4); }

/// Codes [out, in] and scales [out, bytes] of rows.
struct CodesAndScales {
  Tensor codes, scales;
};

CodesAndScales take_apart(const Tensor& rows, WeightFormat format) {
  const FragmentFormat& layout = checked_format(format);
  if (layout.block_inputs == 0) {
    return {rows.view(at::kShort), {}};
  }
  const int64_t out = rows.size(0);
  const int64_t code_bytes = layout.nibbles ? layout.block_inputs / 2 : layout.block_inputs;
  const Tensor blocks = rows.view({out, -1, layout.scale_bytes + code_bytes});
  const Tensor stored = blocks.narrow(2, layout.scale_bytes, code_bytes);
  const Tensor codes = layout.nibbles ? at::cat({low_nibbles(stored), high_nibbles(stored)}, 2)
                                      : stored.bitwise_xor(128);
  return {codes.reshape({out, -1}), blocks.narrow(2, 0, layout.scale_bytes).reshape({out, -1})};
}

/// The inverse of take_apart.
Tensor put_together(const CodesAndScales& parts, WeightFormat format) {
  const FragmentFormat& layout = checked_format(format);
  if (layout.block_inputs == 0) {
    return parts.codes.contiguous().view(scalar_type(format));
  }
  const int64_t out = parts.codes.size(0);
  const Tensor codes = parts.codes.reshape({out, -1, layout.block_inputs});
  const Tensor scales = parts.scales.reshape({out, -1, layout.scale_bytes});
  const int64_t half = layout.block_inputs / 2;
  const Tensor stored = layout.nibbles
                            ? joined_nibbles(codes.narrow(2, 0, half), codes.narrow(2, half, half))
                            : codes.bitwise_xor(128);
  return at::cat({scales, stored}, 2).view({out, -1});
}

int64_t scale_bytes_of_chunk(const FragmentFormat& layout) {
  return layout.block_inputs == 0 ? 0 : kFragmentInputs / layout.block_inputs * layout.scale_bytes;
}

/// Codes of some rows: fragments' bytes -> [n, padded in].
Tensor codes_of(const Tensor& bytes, const FragmentFormat& layout, int64_t chunks,
                const Tensor& ids) {
  const int64_t last = layout.nibbles ? Code::kCount - 1 : Code::kCount;
  const auto sizes = code_sizes(-1, chunks);
  std::vector<int64_t> shape;
  std::array<int64_t, Code::kCount> place{};
  for (int64_t i = 0; i < last; ++i) {
    const auto dimension = static_cast<size_t>(layout.order[static_cast<size_t>(i)]);
    place[dimension] = i;
    shape.push_back(sizes[dimension]);
  }
  std::vector<int64_t> natural(place.begin(), place.end());
  if (layout.nibbles) {
    natural.erase(natural.begin() + Code::kHigh);
  }
  const Tensor codes = bytes.view(layout.code).view(shape).permute(natural);
  const Tensor tile = ids.floor_divide(kFragmentOutputs);
  const Tensor high = ids.floor_divide(8).bitwise_and(1);
  const Tensor group = ids.bitwise_and(7);
  if (!layout.nibbles) {
    return codes.index({tile, high, group}).reshape({ids.size(0), -1});
  }
  const Tensor both = codes.index({tile, group}).reshape({ids.size(0), -1});
  return at::where(high.unsqueeze(1).eq(1), high_nibbles(both), low_nibbles(both));
}

/// Scales of some rows: [n, chunks * bytes of a chunk].
Tensor scales_of(const Tensor& bytes, const FragmentFormat& layout, int64_t chunks,
                 const Tensor& ids) {
  const Tensor scales = bytes.view({-1, chunks, 8, 2, scale_bytes_of_chunk(layout)});
  return scales.permute({0, 3, 2, 1, 4})
      .index({ids.floor_divide(kFragmentOutputs), ids.floor_divide(8).bitwise_and(1),
              ids.bitwise_and(7)})
      .reshape({ids.size(0), -1});
}

}  // namespace

bool has_fragments(WeightFormat format) { return fragment_format(format) != nullptr; }

Tensor pack_fragments(const Tensor& rows, WeightFormat format) {
  const FragmentFormat& layout = checked_format(format);
  const CodesAndScales parts = take_apart(rows, format);
  const int64_t tiles = fragment_tiles(rows.size(0));
  const int64_t chunks = fragment_chunks(parts.codes.size(1));
  const int64_t out = tiles * kFragmentOutputs;
  Tensor codes = padded_codes(parts.codes, out, chunks * kFragmentInputs, layout.zero)
                     .reshape(code_sizes(tiles, chunks))
                     .permute(layout.order);
  if (layout.nibbles) {
    codes = joined_nibbles(codes.select(-1, 0), codes.select(-1, 1));
  }
  codes = codes.contiguous().view(-1).view(at::kByte);
  if (layout.block_inputs == 0) {
    return codes;
  }
  const int64_t bytes = scale_bytes_of_chunk(layout);
  const Tensor scales = padded_codes(parts.scales, out, chunks * bytes, 0)
                            .view({tiles, 2, 8, chunks, bytes})
                            .permute({0, 3, 2, 1, 4});
  return at::cat({codes, scales.reshape({-1})});
}

Tensor unpack_fragments(const Tensor& fragments, WeightFormat format, int64_t in,
                        const Tensor& ids) {
  const FragmentFormat& layout = checked_format(format);
  const int64_t chunks = fragment_chunks(in);
  const int64_t scales = scale_bytes_of_chunk(layout);
  const auto code_bytes = static_cast<int64_t>(c10::elementSize(layout.code)) * kFragmentInputs /
                          (layout.nibbles ? 2 : 1);
  const int64_t outputs = fragments.size(0) / (chunks * (code_bytes + scales));
  const int64_t split = outputs * chunks * code_bytes;
  CodesAndScales parts;
  parts.codes = codes_of(fragments.narrow(0, 0, split), layout, chunks, ids).narrow(1, 0, in);
  if (layout.block_inputs > 0) {
    parts.scales =
        scales_of(fragments.narrow(0, split, fragments.size(0) - split), layout, chunks, ids)
            .narrow(1, 0, in / layout.block_inputs * layout.scale_bytes);
  }
  return put_together(parts, format);
}

}  // namespace specdec
