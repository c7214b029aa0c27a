#include "core/kernels/weight_fragments.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <vector>

#include "core/error.h"
#include "core/kernels/linear.h"
#include "core/kernels/weight_codes.h"

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

/// Bits of codes, as they lie in fragments.
struct Plane {
  CodeOrder order;  ///< dimensions of codes, as they follow one another
  at::ScalarType code;
  int64_t packed;  ///< of kByte: so many of the last dimensions are in one byte
  int64_t first;   ///< bit
  int64_t bits;    ///< of a code, where some are packed
};

/// How a format's numbers lie in fragments: of a chunk, one plane behind the other.
using Planes = std::vector<Plane>;

const Planes& planes_of(WeightFormat format) {
  using C = Code;
  static constexpr CodeOrder kNibbles = {C::kTile, C::kChunk, C::kGroup, C::kQuad, C::kPair,
                                         C::kStep, C::kOne,   C::kHalf,  C::kHigh};
  static const Planes kSixteenBits = {
      {{C::kTile, C::kChunk, C::kPair, C::kStep, C::kGroup, C::kQuad, C::kHalf, C::kHigh, C::kOne},
       at::kShort,
       0,
       0,
       0}};
  static const Planes kEightBits = {
      {{C::kTile, C::kChunk, C::kPair, C::kGroup, C::kQuad, C::kStep, C::kHalf, C::kHigh, C::kOne},
       at::kByte,
       0,
       0,
       0}};
  static const Plane kLowBits = {kNibbles, at::kByte, 1, 0, 4};
  static const Planes kFourBits = {kLowBits};
  static const Planes kFiveBits = {kLowBits, {kNibbles, at::kByte, 3, 4, 1}};
  static constexpr CodeOrder kBitPairs = {C::kTile, C::kChunk, C::kGroup, C::kQuad, C::kPair,
                                          C::kOne,  C::kStep,  C::kHalf,  C::kHigh};
  static const Planes kSixBits = {kLowBits, {kBitPairs, at::kByte, 2, 4, 2}};
  static const Planes kTwoBits = {{kBitPairs, at::kByte, 2, 0, 2}};
  static const Planes kThreeBits = {kTwoBits[0], {kNibbles, at::kByte, 3, 2, 1}};
  SPECDEC_CHECK(has_codes(format), "{} has no fragments", format_name(format));
  if (has_codebook(format)) {
    return kFourBits;
  }
  switch (format) {
    case WeightFormat::kInt8:
    case WeightFormat::kAffine8x64:
    case WeightFormat::kFp8x128:
    case WeightFormat::kFp8x32:
      return kEightBits;
    case WeightFormat::kQ50:
    case WeightFormat::kQ51:
    case WeightFormat::kQ5K:
      return kFiveBits;
    case WeightFormat::kQ40:
    case WeightFormat::kQ41:
    case WeightFormat::kQ4K:
    case WeightFormat::kInt4x128:
    case WeightFormat::kInt4x32:
    case WeightFormat::kAffine4x32:
      return kFourBits;
    case WeightFormat::kQ6K:
      return kSixBits;
    case WeightFormat::kQ2K:
      return kTwoBits;
    case WeightFormat::kQ3K:
      return kThreeBits;
    default:
      return kSixteenBits;
  }
}

/// Bytes of a plane of a tile and chunk.
int64_t plane_bytes(const Plane& plane) {
  return static_cast<int64_t>(c10::elementSize(plane.code)) * kFragmentOutputs * kFragmentInputs >>
         plane.packed;
}

int64_t code_bytes(const Planes& planes) {
  int64_t bytes = 0;
  for (const Plane& plane : planes) {
    bytes += plane_bytes(plane);
  }
  return bytes;
}

int64_t fragment_chunks(int64_t in) { return (in + kFragmentInputs - 1) / kFragmentInputs; }
/// Number of tiles of outputs, which come in pairs.
int64_t fragment_tiles(int64_t out) {
  return (out + 2 * kFragmentOutputs - 1) / kFragmentOutputs / 2 * 2;
}

std::array<int64_t, Code::kCount> code_sizes(int64_t tiles, int64_t chunks) {
  return {tiles, 2, 8, chunks, 2, 2, 2, 4, 2};
}

/// Fills up to `rows` and `columns` with zeros: codes of numbers, which inputs of 0 are multiplied
/// with.
Tensor padded(const Tensor& numbers, int64_t rows, int64_t columns) {
  if (numbers.size(0) == rows && numbers.size(1) == columns) {
    return numbers;
  }
  return at::constant_pad_nd(numbers, {0, columns - numbers.size(1), 0, rows - numbers.size(0)});
}

/// Codes [padded out, padded in] -> [tiles * chunks, bytes].
Tensor pack_plane(const Tensor& codes, const Plane& plane, int64_t tiles, int64_t chunks) {
  Tensor arranged = codes.view(code_sizes(tiles, chunks)).permute(plane.order);
  if (plane.packed > 0) {
    const Tensor some =
        arranged.bitwise_right_shift(plane.first).bitwise_and((1 << plane.bits) - 1);
    const Tensor last = some.flatten(Code::kCount - plane.packed);
    arranged = last.select(-1, 0);
    for (int64_t i = 1; i < last.size(-1); ++i) {
      arranged = arranged.bitwise_or(last.select(-1, i).bitwise_left_shift(i * plane.bits));
    }
  }
  return arranged.contiguous().view(-1).view(at::kByte).view({tiles * chunks, -1});
}

/// Where outputs lie.
struct FragmentRows {
  explicit FragmentRows(const Tensor& ids)
      : tile(ids.floor_divide(kFragmentOutputs)),
        high(ids.floor_divide(8).bitwise_and(1)),
        group(ids.bitwise_and(7)) {}
  Tensor tile, high, group;  ///< [n] int64
};

/// Dimensions of codes that a plane does not pack, as they follow one another in `stored` order,
/// brought into that of Code.
Tensor unpermuted(const Tensor& bytes, const Plane& plane, int64_t chunks) {
  const auto sizes = code_sizes(-1, chunks);
  std::vector<int64_t> shape;
  std::array<int64_t, Code::kCount> place{};
  place.fill(-1);
  for (int64_t i = 0; i < Code::kCount - plane.packed; ++i) {
    const auto dimension = static_cast<size_t>(plane.order[static_cast<size_t>(i)]);
    place[dimension] = i;
    shape.push_back(sizes[dimension]);
  }
  std::vector<int64_t> natural;
  std::copy_if(place.begin(), place.end(), std::back_inserter(natural),
               [](int64_t i) { return i >= 0; });
  shape.front() = bytes.size(0) / chunks;
  return bytes.view(plane.code).view(shape).permute(natural);
}

/// What a plane [tiles * chunks, bytes] has of some rows' codes: [n, padded in].
Tensor plane_of(const Tensor& bytes, const Plane& plane, int64_t chunks, const FragmentRows& rows) {
  const int64_t count = rows.tile.size(0);
  const Tensor stored = unpermuted(bytes, plane, chunks);
  if (plane.packed == 0) {
    return stored.index({rows.tile, rows.high, rows.group}).reshape({count, -1});
  }
  // [n, chunk, pair, step, half, quad, one], of which a byte may hold both halves, and both ones.
  Tensor codes = stored.index({rows.tile, rows.group});
  Tensor place = rows.high.view({count, 1, 1, 1, 1, 1, 1});
  if (plane.packed >= 2) {
    codes = codes.unsqueeze(4);
    place = place + 2 * at::arange(2, place.options()).view({1, 1, 1, 1, 2, 1, 1});
  }
  if (plane.packed == 3) {
    codes = codes.unsqueeze(6);
    place = place + 4 * at::arange(2, place.options()).view({1, 1, 1, 1, 1, 1, 2});
  }
  return codes.bitwise_right_shift(place.mul(plane.bits).to(at::kByte))
      .bitwise_and((1 << plane.bits) - 1)
      .reshape({count, -1})
      .bitwise_left_shift(plane.first);
}

/// Scales of some rows: [n, chunks * bytes of a chunk].
Tensor scales_of(const Tensor& bytes, int64_t chunk_bytes, int64_t chunks,
                 const FragmentRows& rows) {
  const Tensor scales = bytes.view({-1, chunks, 8, 2, chunk_bytes});
  return scales.permute({0, 3, 2, 1, 4})
      .index({rows.tile, rows.high, rows.group})
      .reshape({rows.tile.size(0), -1});
}

}  // namespace

bool has_fragments(WeightFormat format) { return has_codes(format); }

int64_t fragment_bytes(int64_t out, int64_t in, WeightFormat format) {
  return fragment_tiles(out) * fragment_chunks(in) *
         (code_bytes(planes_of(format)) + kFragmentOutputs * chunk_scale_bytes(format));
}

bool takes_fragments(const Placement& place) {
  return place.layout == WeightLayout::kRows && !place.device.is_mps() && !place.device.is_meta();
}

Tensor pack_fragments(const Tensor& rows, WeightFormat format) {
  const Planes& planes = planes_of(format);
  const CodesAndScales parts = codes_and_scales(rows, format);
  const int64_t tiles = fragment_tiles(rows.size(0));
  const int64_t chunks = fragment_chunks(parts.codes.size(1));
  const int64_t out = tiles * kFragmentOutputs;
  const Tensor codes = padded(parts.codes, out, chunks * kFragmentInputs);
  std::vector<Tensor> packed;
  for (const Plane& plane : planes) {
    packed.push_back(pack_plane(codes, plane, tiles, chunks));
  }
  const Tensor fragments = packed.size() == 1 ? packed[0].view(-1) : at::cat(packed, 1).view(-1);
  const int64_t bytes = chunk_scale_bytes(format);
  if (bytes == 0) {
    return fragments;
  }
  const Tensor scales = padded(parts.scales, out, chunks * bytes)
                            .view({tiles, 2, 8, chunks, bytes})
                            .permute({0, 3, 2, 1, 4});
  return at::cat({fragments, scales.reshape({-1})});
}

Tensor unpack_fragments(const Tensor& fragments, WeightFormat format, int64_t in,
                        const Tensor& ids) {
  const Planes& planes = planes_of(format);
  const FragmentRows rows(ids);
  const int64_t chunks = fragment_chunks(in);
  const int64_t scale_bytes = chunk_scale_bytes(format);
  const int64_t chunk_bytes = code_bytes(planes);
  const int64_t pieces = fragments.size(0) / (chunk_bytes + kFragmentOutputs * scale_bytes);
  const int64_t split = pieces * chunk_bytes;
  const Tensor all = fragments.narrow(0, 0, split).view({pieces, chunk_bytes});
  CodesAndScales parts;
  int64_t first = 0;
  for (const Plane& plane : planes) {
    const Tensor codes = plane_of(all.narrow(1, first, plane_bytes(plane)), plane, chunks, rows);
    parts.codes = parts.codes.defined() ? parts.codes.bitwise_or(codes) : codes;
    first += plane_bytes(plane);
  }
  parts.codes = parts.codes.narrow(1, 0, in);
  if (scale_bytes > 0) {
    parts.scales =
        scales_of(fragments.narrow(0, split, fragments.size(0) - split), scale_bytes, chunks, rows)
            .narrow(1, 0, in * scale_bytes / kFragmentInputs);
  }
  return rows_of_codes(parts, format);
}

}  // namespace specdec
