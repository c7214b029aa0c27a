#include "core/formats/quantised/torchao_codes.h"

#include <fmt/format.h>

#include <cstring>
#include <span>
#include <utility>

#include "core/error.h"
#include "core/formats/float_values.h"

namespace specdec {
namespace {

using Codes = CompressionScheme::Codes;

/// Values first, first + stride, ...
std::vector<float> at_stride(const std::vector<float>& values, size_t first, size_t stride) {
  std::vector<float> taken;
  for (size_t i = first; i < values.size(); i += stride) {
    taken.push_back(values[i]);
  }
  return taken;
}

/// [groups, wide] -> [rows, columns], of which the first ones are taken.
std::vector<float> turned(const std::vector<float>& values, int64_t wide, int64_t rows,
                          int64_t columns) {
  std::vector<float> taken;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      taken.push_back(values[static_cast<size_t>(column * wide + row)]);
    }
  }
  return taken;
}

}  // namespace

std::vector<float> torchao_zero_points(const TensorEntry& entry) {
  if (entry.dtype == DType::kF32 || entry.dtype == DType::kF16 || entry.dtype == DType::kBF16) {
    return float_values(entry);
  }
  const auto wide = static_cast<size_t>(dtype_bytes(entry.dtype));
  std::vector<float> zeros;
  for (size_t at = 0; at < entry.bytes.size(); at += wide) {
    const bool negative = (entry.bytes[at + wide - 1] & std::byte{0x80}) != std::byte{0};
    int64_t zero = negative ? -1 : 0;
    std::memcpy(&zero, entry.bytes.data() + at, wide);
    zeros.push_back(static_cast<float>(zero));
  }
  return zeros;
}

UnwrappedMatrix::UnwrappedMatrix(const CompressedMatrix& stored)
    : matrix_(stored), codes_(*stored.codes), scales_(*stored.scales) {
  code_bytes_.resize(static_cast<size_t>(stored.rows * stored.columns));
  switch (stored.scheme.codes) {
    case Codes::kTorchaoBytes:
      unwrap_bytes(stored);
      break;
    case Codes::kTorchaoPairs:
      unwrap_pairs(stored);
      break;
    default:
      unwrap_tiles(stored);
      break;
  }
  codes_.shape = {stored.rows, stored.columns};
  codes_.bytes = std::as_bytes(std::span(code_bytes_));
  matrix_.scheme.codes = Codes::kBytes;
  matrix_.codes = &codes_;
  matrix_.scales = &scales_;
}

void UnwrappedMatrix::unwrap_bytes(const CompressedMatrix& stored) {
  const int half = 1 << (stored.scheme.bits - 1);
  for (size_t i = 0; i < code_bytes_.size(); ++i) {
    const int byte = std::to_integer<int>(stored.codes->bytes[i]);
    const int code = byte < 128 ? byte : byte - 256;
    if (code < -half || code >= half) {
      throw WeightsError(
          fmt::format("tensor '{}' holds the code {}, which has more than {} bits: "
                      "the file is damaged, copy or download it again.",
                      stored.codes->name, code, stored.scheme.bits));
    }
    code_bytes_[i] = static_cast<uint8_t>(code + half);
  }
  if (stored.zeros != nullptr) {
    for (const float zero : torchao_zero_points(*stored.zeros)) {
      zero_bytes_.push_back(static_cast<uint8_t>(static_cast<int>(zero) + half));
    }
    zeros_ = *stored.zeros;
    zeros_.dtype = DType::kU8;
    zeros_.bytes = std::as_bytes(std::span(zero_bytes_));
    matrix_.zeros = &zeros_;
  }
}

void UnwrappedMatrix::unwrap_pairs(const CompressedMatrix& stored) {
  for (size_t i = 0; i < code_bytes_.size(); ++i) {
    const auto pair = std::to_integer<unsigned>(stored.codes->bytes[i / 2]);
    code_bytes_[i] = static_cast<uint8_t>((i % 2 == 0 ? pair & 15U : pair >> 4U) ^ 8U);  // signed
  }
  const int64_t groups = stored.scale_columns();
  set_groups(turned(float_values(*stored.scales), stored.rows, stored.rows, groups),
             turned(float_values(*stored.minima), stored.rows, stored.rows, groups));
}

void UnwrappedMatrix::unwrap_tiles(const CompressedMatrix& stored) {
  // A word is what a thread of a tensor core reads of two tiles [8, 16]: of its row the inputs 2t,
  // 2t + 1, 2t + 8, 2t + 9 of either tile, the first ones of these pairs in its low half, the
  // others in its high half (PyTorch, aten/src/ATen/native/cuda/int4mm.cu).
  const std::vector<int64_t>& shape = stored.codes->shape;
  const int64_t words = shape[3];
  for (int64_t row = 0; row < stored.rows; ++row) {
    for (int64_t column = 0; column < stored.columns; ++column) {
      const int64_t tile = column / TorchaoTiles::kColumns;
      const int64_t place = column % TorchaoTiles::kColumns;
      const int64_t lane = row % TorchaoTiles::kRows * 4 + place % 8 / 2;
      const int64_t outer = row / TorchaoTiles::kRows * shape[1] + tile / (2 * words);
      const int64_t word = (outer * TorchaoTiles::kLanes + lane) * words + tile % (2 * words) / 2;
      const int64_t nibble = tile % 2 * 2 + place / 8 + place % 2 * 4;
      uint32_t bits = 0;
      std::memcpy(&bits, stored.codes->bytes.data() + word * static_cast<int64_t>(sizeof(bits)),
                  sizeof(bits));
      code_bytes_[static_cast<size_t>(row * stored.columns + column)] =
          static_cast<uint8_t>(bits >> static_cast<unsigned>(4 * nibble) & 15U);
    }
  }
  const std::vector<float> both = float_values(*stored.scales);  // [groups, padded rows, 2]
  const int64_t padded = shape[0] * TorchaoTiles::kRows;
  const int64_t groups = stored.scale_columns();
  set_groups(turned(at_stride(both, 0, 2), padded, stored.rows, groups),
             turned(at_stride(both, 1, 2), padded, stored.rows, groups));
}

void UnwrappedMatrix::set_groups(std::vector<float> scales, std::vector<float> minima) {
  scale_values_ = std::move(scales);
  minimum_values_ = std::move(minima);
  for (auto [entry, values] : {std::pair(&scales_, &scale_values_), {&minima_, &minimum_values_}}) {
    entry->dtype = DType::kF32;
    entry->shape = {matrix_.rows, matrix_.scale_columns()};
    entry->bytes = std::as_bytes(std::span(*values));
  }
  matrix_.minima = &minima_;
}

}  // namespace specdec
