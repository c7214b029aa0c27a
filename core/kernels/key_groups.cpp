#include "core/kernels/key_groups.h"

#include <algorithm>
#include <cmath>

#include "core/kernels/device/stored_kv.h"
#include "core/kernels/team.h"

namespace specdec {
namespace {

static_assert(kKeyGroup == device::kRangedTokens && kRangesOfRow == device::kRangesOfRow);

int bits_of_code(KvFormat format) { return format == KvFormat::kKivi2 ? 2 : 4; }

/// Codes in a byte.
int64_t codes_of_byte(KvFormat format) { return 8 / bits_of_code(format); }

device::CodeRange range_of(KvFormat format, const float* numbers, int64_t count) {
  const bool finite =
      std::all_of(numbers, numbers + count, [](float each) { return std::isfinite(each); });
  const auto [least, most] = std::minmax_element(numbers, numbers + count);
  return device::code_range(*least, *most, finite, bits_of_code(format));
}

void write_half(device::HalfBits half, uint8_t* to, int64_t stride) {
  to[0] = static_cast<uint8_t>(half.bits);
  to[stride] = static_cast<uint8_t>(half.bits >> 8U);
}

device::HalfBits read_half(const uint8_t* from, int64_t stride) {
  return {static_cast<uint16_t>(from[0] | from[stride] << 8)};
}

/// Into the byte that neighbouring dimensions share, which are written in their order.
void write_code(KvFormat format, uint32_t code, int64_t dim, uint8_t* byte) {
  const int64_t place = dim % codes_of_byte(format);
  const uint32_t before = place == 0 ? 0 : *byte;
  *byte = static_cast<uint8_t>(before | code << (place * bits_of_code(format)));
}

uint32_t read_code(KvFormat format, int64_t dim, uint8_t byte) {
  return uint32_t{byte} >> (dim % codes_of_byte(format) * bits_of_code(format)) &
         ((1U << bits_of_code(format)) - 1U);
}

/// Where `least` of a dimension of a group of keys lies, and its step.
struct RangePlace {
  uint8_t *least, *step;
};

RangePlace range_place(KvFormat format, const KeyGroup& group, int64_t dim, int64_t head_dim) {
  const int64_t rows = (head_dim + kRangesOfRow - 1) / kRangesOfRow;
  const int64_t row = head_dim / codes_of_byte(format) + dim / kRangesOfRow;
  uint8_t* column = group.data + dim % kRangesOfRow * 2 * group.token_stride;
  return {column + row * group.stride, column + (row + rows) * group.stride};
}

uint8_t* byte_of_key(KvFormat format, const KeyGroup& group, int64_t dim, int64_t token) {
  return group.data + dim / codes_of_byte(format) * group.stride + token * group.token_stride;
}

/// Rounds a group of keys of all heads, from token `first` of a page on, out of the exact page.
void round_group(const KvView& view, int64_t page, int64_t exact_page, int64_t first) {
  const int64_t size = view.page_size();
  const int64_t heads = view.kv_heads();
  const int64_t head_dim = view.head_dim();
  const int64_t width = view.values.size(3);
  auto* rounded = static_cast<uint8_t*>(view.keys.mutable_data_ptr());
  const float* exact = view.exact.keys.const_data_ptr<float>();
  for (int64_t head = 0; head < heads; ++head) {
    encode_key_group(view.format, exact + (exact_page * heads + head) * head_dim * size + first,
                     size, head_dim,
                     {rounded + (page * heads + head) * width * size + first, size});
  }
}

}  // namespace

void encode_ranged_value(KvFormat format, const float* numbers, int64_t head_dim,
                         const KvElements& to) {
  auto* bytes = static_cast<uint8_t*>(to.data);
  uint8_t* ranges = bytes + head_dim / codes_of_byte(format) * to.stride;
  for (int64_t first = 0; first < head_dim;
       first += kKvGroup, ranges += device::kRangeBytes * to.stride) {
    const int64_t end = std::min(first + kKvGroup, head_dim);
    const device::CodeRange range = range_of(format, numbers + first, end - first);
    write_half(range.least, ranges, to.stride);
    write_half(range.step, ranges + 2 * to.stride, to.stride);
    for (int64_t dim = first; dim < end; ++dim) {
      write_code(format, device::ranged_code(numbers[dim], range, bits_of_code(format)), dim,
                 bytes + dim / codes_of_byte(format) * to.stride);
    }
  }
}

void decode_ranged_value(KvFormat format, const KvElements& from, int64_t head_dim,
                         float* numbers) {
  const auto* bytes = static_cast<const uint8_t*>(from.data);
  const int64_t codes = head_dim / codes_of_byte(format);
  for (int64_t dim = 0; dim < head_dim; ++dim) {
    const uint8_t* range = bytes + (codes + dim / kKvGroup * device::kRangeBytes) * from.stride;
    const device::CodeRange between{read_half(range, from.stride),
                                    read_half(range + 2 * from.stride, from.stride)};
    numbers[dim] = device::ranged_number(
        read_code(format, dim, bytes[dim / codes_of_byte(format) * from.stride]), between);
  }
}

void encode_key_group(KvFormat format, const float* keys, int64_t stride, int64_t head_dim,
                      const KeyGroup& to) {
  for (int64_t dim = 0; dim < head_dim; ++dim, keys += stride) {
    const device::CodeRange range = range_of(format, keys, kKeyGroup);
    const RangePlace place = range_place(format, to, dim, head_dim);
    write_half(range.least, place.least, to.token_stride);
    write_half(range.step, place.step, to.token_stride);
    for (int64_t token = 0; token < kKeyGroup; ++token) {
      write_code(format, device::ranged_code(keys[token], range, bits_of_code(format)), dim,
                 byte_of_key(format, to, dim, token));
    }
  }
}

void decode_key_of_group(KvFormat format, const KeyGroup& from, int64_t token, int64_t head_dim,
                         float* numbers) {
  for (int64_t dim = 0; dim < head_dim; ++dim) {
    const RangePlace place = range_place(format, from, dim, head_dim);
    const device::CodeRange range{read_half(place.least, from.token_stride),
                                  read_half(place.step, from.token_stride)};
    numbers[dim] = device::ranged_number(
        read_code(format, dim, *byte_of_key(format, from, dim, token)), range);
  }
}

void round_keys(const KvView& view) {
  constexpr double kNanosecondsPerNumber = 4;
  const BatchTables& tables = *view.tables;
  const auto entry = [](const Tensor& table, int64_t i) {
    return static_cast<int64_t>(table.const_data_ptr<int32_t>()[i]);
  };
  const int64_t grain =
      tile_grain(tables.nodes, kNanosecondsPerNumber * static_cast<double>(view.kv_heads()) *
                                   static_cast<double>(view.head_dim()));
  parallel_tiles(tables.nodes, grain, [&](int64_t begin, int64_t end) {
    for (int64_t node = begin; node < end; ++node) {
      const int64_t slot = entry(tables.slots, node);
      if ((slot + 1) % kKeyGroup != 0 || entry(tables.path_starts, node) >= 0) {
        continue;
      }
      const int64_t page = entry(tables.rows, node) * view.page_stride() + slot / view.page_size();
      round_group(view, view.page_table()[page], view.exact_page_table()[page],
                  (slot + 1 - kKeyGroup) % view.page_size());
    }
  });
}

}  // namespace specdec
