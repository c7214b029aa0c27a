#include "core/formats/quantised/column_packed.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/error.h"
#include "core/formats/json_keys.h"
#include "core/formats/quantised/matrix_checks.h"

namespace specdec {
namespace {

using Codes = CompressionScheme::Codes;

constexpr int64_t kColumnWordBits = 32;
/// Outputs that are unpacked together: the cache holds a line of each.
constexpr int64_t kRowTile = 64;
/// Where AWQ's words hold outputs 0 to 7.
constexpr std::array<int64_t, 8> kAwqPlaces = {0, 4, 1, 5, 2, 6, 3, 7};

uint32_t column_word(const TensorEntry& entry, int64_t i) {
  uint32_t word = 0;
  std::memcpy(&word, entry.bytes.data() + static_cast<size_t>(i) * sizeof(word), sizeof(word));
  return word;
}

/// Code number `place` of a word.
uint8_t column_code(uint32_t word, int64_t place, int64_t bits) {
  return static_cast<uint8_t>(word >> static_cast<unsigned>(place * bits) &
                              ((1U << static_cast<unsigned>(bits)) - 1U));
}

/// The code of an output in words along the outputs, of which a row has `words`, once `summand` is
/// added to the word.
uint8_t code_along(const TensorEntry& entry, const CompressionScheme& scheme, int64_t row,
                   int64_t words, int64_t output, uint32_t summand = 0) {
  const int64_t codes = kColumnWordBits / scheme.bits;
  const int64_t place = output % codes;
  return column_code(column_word(entry, row * words + output / codes) + summand,
                     scheme.codes == Codes::kAwq ? kAwqPlaces[static_cast<size_t>(place)] : place,
                     scheme.bits);
}

/// What GPTQ's first format subtracts from the words of zero points: 1 from each, with carries.
uint32_t ones_of(const CompressionScheme& scheme) {
  return !scheme.zeros_less_one ? 0U
         : scheme.bits == 2     ? 0x55555555U
         : scheme.bits == 4     ? 0x11111111U
                                : 0x01010101U;
}

/// The group of each input, where they do not follow one another.
std::vector<int32_t> column_groups(const CompressedMatrix& stored) {
  std::vector<int32_t> groups(static_cast<size_t>(stored.columns));
  std::memcpy(groups.data(), stored.order->bytes.data(), groups.size() * sizeof(int32_t));
  return groups;
}

std::span<const std::byte> column_bytes(const std::vector<std::byte>& bytes) { return bytes; }

/// The zero points, [outputs, groups].
std::vector<uint8_t> column_zeros(const CompressedMatrix& stored) {
  const int64_t groups = stored.scales->shape.front();
  const int64_t words = stored.zero_words->shape.back();
  std::vector<uint8_t> zeros;
  for (int64_t row = 0; row < stored.rows; ++row) {
    for (int64_t group = 0; group < groups; ++group) {
      zeros.push_back(
          code_along(*stored.zero_words, stored.scheme, group, words, row, ones_of(stored.scheme)));
    }
  }
  return zeros;
}

/// Checks scales and zero points of a matrix.
void check_columns(const MatrixChecks& checks, const CompressedMatrix& matrix) {
  checks.require_size();
  const int64_t groups = matrix.scale_columns();
  checks.require(matrix.scales, "scales", {groups, matrix.rows});
  const int64_t codes = kColumnWordBits / matrix.scheme.bits;
  checks.require(matrix.zero_words, "qzeros", {groups, (matrix.rows + codes - 1) / codes});
  checks.require_type(*matrix.zero_words, {DType::kI32});
  checks.require_type(*matrix.scales, {DType::kF16, DType::kBF16, DType::kF32});
}

/// The tensor, where it is another order than one group after the other.
const TensorEntry* unusual_order(const MatrixChecks& checks, const CompressedMatrix& matrix,
                                 const TensorEntry* entry) {
  if (entry == nullptr) {
    return nullptr;
  }
  checks.require(entry, "g_idx", {matrix.columns});
  checks.require_type(*entry, {DType::kI32});
  const int64_t columns = matrix.scheme.columns_per_scale;
  bool is_usual = true;
  for (int64_t i = 0; i < matrix.columns; ++i) {
    const auto group = static_cast<int32_t>(column_word(*entry, i));
    if (group < 0 || group >= matrix.scale_columns()) {
      checks.fail(*entry, fmt::format("names group {} of {}", group, matrix.scale_columns()));
    }
    is_usual = is_usual && group == (columns == 0 ? 0 : i / columns);
  }
  return is_usual ? nullptr : entry;
}

/// What GPTQ and AWQ have in common: integers with a scale and a zero point for each group of a
/// row's inputs.
CompressionScheme read_columns(const JsonKeys& keys, Codes codes) {
  CompressionScheme scheme{.codes = codes, .symmetric = false, .rows_per_scale = 1};
  const int64_t group = keys.integer("group_size", 128);
  if (group == 0 || group < -1) {
    keys.fail("group_size",
              fmt::format("is {}; it should be above 0, or -1 for whole rows", group));
  }
  scheme.columns_per_scale = std::max<int64_t>(group, 0);
  return scheme;
}

}  // namespace

CompressionScheme read_gptq(const JsonKeys& keys) {
  CompressionScheme scheme = read_columns(keys, Codes::kGptq);
  scheme.bits = keys.positive("bits");
  if (scheme.bits != 2 && scheme.bits != 4 && scheme.bits != 8) {
    keys.fail("bits", fmt::format("is {}, which is not supported; known: 2, 4, 8", scheme.bits));
  }
  const std::string format = keys.text("checkpoint_format", "gptq");
  if (format != "gptq" && format != "gptq_v2") {
    keys.fail("checkpoint_format",
              fmt::format("is '{}', which is not supported; known: gptq, gptq_v2", format));
  }
  scheme.zeros_less_one = format == "gptq";
  if (keys.boolean("is_marlin_format", false)) {
    keys.fail("is_marlin_format", "is true: weights in Marlin's order are not supported");
  }
  if (keys.has("dynamic") && !keys.at("dynamic").empty()) {
    keys.fail("dynamic", "stores some modules otherwise than the rest, which is not supported");
  }
  return scheme;
}

CompressionScheme read_awq(const JsonKeys& keys) {
  CompressionScheme scheme = read_columns(keys, Codes::kAwq);
  scheme.bits = keys.integer("bits", 4);
  if (scheme.bits != 4) {
    keys.fail("bits", fmt::format("is {}, which is not supported; known: 4", scheme.bits));
  }
  const std::string version = keys.text("version", "gemm");
  if (version != "gemm" && version != "GEMM") {
    keys.fail("version", fmt::format("is '{}', which packs words otherwise and is not supported; "
                                     "known: gemm",
                                     version));
  }
  if (!keys.boolean("zero_point", true)) {
    keys.fail("zero_point", "is false, which is not supported");
  }
  return scheme;
}

bool is_column_packed(const CompressionScheme& scheme) {
  return scheme.codes == Codes::kGptq || scheme.codes == Codes::kAwq;
}

CompressedMatrix describe_columns(const TensorFiles& files, const TensorEntry& codes,
                                  const std::string& module, const CompressionScheme& scheme) {
  CompressedMatrix matrix;
  matrix.scheme = scheme;
  matrix.codes = &codes;
  matrix.scales = files.find(module + ".scales");
  matrix.zero_words = files.find(module + ".qzeros");
  const MatrixChecks checks(files, matrix);
  if (codes.shape.size() != 2) {
    checks.fail(codes, "should have two dimensions");
  }
  if (std::max(codes.shape[0], codes.shape[1]) > kMaxMatrixSize) {
    checks.fail(codes, "is too large");
  }
  const int64_t per_word = kColumnWordBits / scheme.bits;
  const bool along_inputs = scheme.codes == Codes::kGptq;
  matrix.rows = codes.shape[1] * (along_inputs ? 1 : per_word);
  matrix.columns = codes.shape[0] * (along_inputs ? per_word : 1);
  check_columns(checks, matrix);
  matrix.order = unusual_order(checks, matrix, files.find(module + ".g_idx"));
  const std::vector<uint8_t> zeros = column_zeros(matrix);
  const auto middle = static_cast<uint8_t>(1U << static_cast<unsigned>(scheme.bits - 1));
  matrix.scheme.symmetric =
      std::all_of(zeros.begin(), zeros.end(), [middle](uint8_t zero) { return zero == middle; });
  if (matrix.order != nullptr) {
    matrix.scheme.columns_per_scale = 1;
  }
  return matrix;
}

UnpackedMatrix::UnpackedMatrix(const CompressedMatrix& stored) : matrix_(stored) {
  unpack_codes(stored);
  unpack_scales(stored);
  matrix_.scheme.codes = Codes::kBytes;
  matrix_.codes = &codes_;
  matrix_.scales = &scales_;
  matrix_.zeros = stored.scheme.symmetric ? nullptr : &zeros_;
}

void UnpackedMatrix::unpack_codes(const CompressedMatrix& stored) {
  codes_ = {.name = stored.codes->name,
            .dtype = DType::kU8,
            .shape = {stored.rows, stored.columns},
            .bytes = {}};
  code_bytes_.resize(static_cast<size_t>(stored.rows * stored.columns));
  const int64_t bits = stored.scheme.bits;
  const int64_t codes = kColumnWordBits / bits;
  const int64_t words = stored.codes->shape.back();  // of a row of the file
  for (int64_t first = 0; first < stored.rows; first += kRowTile) {
    for (int64_t k = 0; k < stored.columns; ++k) {
      for (int64_t row = first; row < std::min(first + kRowTile, stored.rows); ++row) {
        const uint8_t code =
            stored.scheme.codes == Codes::kGptq
                ? column_code(column_word(*stored.codes, k / codes * words + row), k % codes, bits)
                : code_along(*stored.codes, stored.scheme, k, words, row);
        code_bytes_[static_cast<size_t>(row * stored.columns + k)] = std::byte{code};
      }
    }
  }
  codes_.bytes = column_bytes(code_bytes_);
}

void UnpackedMatrix::unpack_scales(const CompressedMatrix& stored) {
  const int64_t groups = stored.scales->shape.front();
  const auto size = static_cast<size_t>(dtype_bytes(stored.scales->dtype));
  const std::vector<uint8_t> zeros = column_zeros(stored);
  std::vector<int32_t> order;
  if (stored.order != nullptr) {
    order = column_groups(stored);
  }
  const int64_t parts = order.empty() ? groups : stored.columns;
  scale_bytes_.reserve(static_cast<size_t>(stored.rows * parts) * size);
  for (int64_t row = 0; row < stored.rows; ++row) {
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t group = order.empty() ? part : order[static_cast<size_t>(part)];
      const std::byte* scale =
          stored.scales->bytes.data() + static_cast<size_t>(group * stored.rows + row) * size;
      scale_bytes_.insert(scale_bytes_.end(), scale, scale + size);
      zero_bytes_.push_back(std::byte{zeros[static_cast<size_t>(row * groups + group)]});
    }
  }
  scales_ = {.name = stored.scales->name,
             .dtype = stored.scales->dtype,
             .shape = {stored.rows, parts},
             .bytes = column_bytes(scale_bytes_)};
  zeros_ = {.name = stored.zero_words->name,
            .dtype = DType::kU8,
            .shape = {stored.rows, parts},
            .bytes = column_bytes(zero_bytes_)};
}

}  // namespace specdec
