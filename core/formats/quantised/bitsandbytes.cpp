#include "core/formats/quantised/bitsandbytes.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string_view>

#include "core/error.h"
#include "core/formats/float_values.h"
#include "core/formats/json_keys.h"
#include "core/formats/quantised/codebook_blocks.h"
#include "core/formats/quantised/matrix_checks.h"

namespace specdec {
namespace {

using Codes = CompressionScheme::Codes;

constexpr int64_t kNestedNumbers = 256;

std::span<const std::byte> bytes_of(const std::vector<float>& values) {
  return std::as_bytes(std::span(values));
}

/// What quant_state says.
struct QuantState {
  int64_t rows = 0, columns = 0;
  int64_t block = 0;
  int64_t nested_block = 0;  ///< 0 = scales are float32
  float nested_offset = 0.0F;
};

const TensorEntry& state_entry(const TensorFiles& files, const TensorEntry& codes) {
  for (const char* type : {"nf4", "fp4"}) {
    const auto* found = files.find(codes.name + ".quant_state.bitsandbytes__" + type);
    if (found != nullptr) {
      return *found;
    }
  }
  fail_tensor(files, codes,
              "has no '.quant_state.bitsandbytes__nf4' (or fp4) beside it, which says its shape");
}

QuantState read_state(const TensorFiles& files, const TensorEntry& codes) {
  const TensorEntry& entry = state_entry(files, codes);
  if (entry.dtype != DType::kU8) {
    fail_tensor(files, entry, "should hold the bytes of a JSON text (U8)");
  }
  const std::string text(reinterpret_cast<const char*>(entry.bytes.data()), entry.bytes.size());
  const std::string where = (files.folder() / entry.name).string();
  const auto parsed = parse_json_object(text, where);
  const JsonKeys keys(parsed, where);
  const auto& shape = keys.at("shape");
  const bool is_pair = shape.is_array() && shape.size() == 2 && shape[0].is_number_integer() &&
                       shape[1].is_number_integer();
  if (!is_pair) {
    keys.fail("shape", "should be the rows and columns of a matrix");
  }
  QuantState state{.rows = shape[0].get<int64_t>(),
                   .columns = shape[1].get<int64_t>(),
                   .block = keys.positive("blocksize")};
  if (keys.has("nested_blocksize")) {
    state.nested_block = keys.positive("nested_blocksize");
    state.nested_offset = static_cast<float>(keys.number("nested_offset", 0.0));
  }
  return state;
}

/// Checks the tensors beside codes of 4 bits.
void check_beside(const TensorFiles& files, const CompressedMatrix& matrix,
                  const QuantState& state) {
  const MatrixChecks checks(files, matrix);
  const int64_t scales = (matrix.rows * matrix.columns + state.block - 1) / state.block;
  checks.require(matrix.scales, "absmax", {scales});
  checks.require(matrix.numbers, "quant_map", {std::ssize(Codebook{})});
  checks.require_type(*matrix.numbers, {DType::kF32});
  for (const float number : float_values(*matrix.numbers)) {
    if (!std::isfinite(number)) {
      checks.fail(*matrix.numbers, "holds what is no number");
    }
  }
  if (state.nested_block == 0) {
    checks.require_type(*matrix.scales, {DType::kF32});
    return;
  }
  checks.require_type(*matrix.scales, {DType::kU8});
  checks.require(matrix.nested.numbers, "nested_quant_map", {kNestedNumbers});
  checks.require(matrix.nested.scales, "nested_absmax",
                 {(scales + state.nested_block - 1) / state.nested_block});
  checks.require_type(*matrix.nested.numbers, {DType::kF32});
  checks.require_type(*matrix.nested.scales, {DType::kF32});
}

CompressedMatrix describe_bits4(const TensorFiles& files, const TensorEntry& codes,
                                const CompressionScheme& scheme) {
  const QuantState state = read_state(files, codes);
  CompressedMatrix matrix;
  matrix.scheme = scheme;
  // Blocks that reach over the ends of rows are as many smaller ones that do not.
  matrix.scheme.columns_per_scale = std::gcd(state.columns, state.block);
  matrix.scale_block = state.block;
  matrix.codes = &codes;
  matrix.rows = state.rows;
  matrix.columns = state.columns;
  matrix.scales = files.find(codes.name + ".absmax");
  matrix.numbers = files.find(codes.name + ".quant_map");
  matrix.nested = {.numbers = files.find(codes.name + ".nested_quant_map"),
                   .scales = files.find(codes.name + ".nested_absmax"),
                   .block = state.nested_block,
                   .offset = state.nested_offset};
  const MatrixChecks checks(files, matrix);
  checks.require_size();
  if (std::ssize(codes.bytes) != (state.rows * state.columns + 1) / 2) {
    checks.fail(codes, fmt::format("holds {} codes of 4 bits, not those of a matrix [{}, {}]",
                                   std::ssize(codes.bytes) * 2, state.rows, state.columns));
  }
  check_beside(files, matrix, state);
  return matrix;
}

/// Older releases of the library may have saved a matrix in an order of a GPU's.
void check_row_order(const TensorFiles& files, const std::string& module) {
  const TensorEntry* order = files.find(module + ".weight_format");
  if (order == nullptr) {
    return;
  }
  const bool is_number = order->dtype == DType::kU8 && order->bytes.size() == 1;
  if (!is_number || order->bytes.front() != std::byte{0}) {
    fail_tensor(files, *order,
                "says that the matrix is not saved row after row; save it again with a newer "
                "release of bitsandbytes");
  }
}

CompressedMatrix describe_bits8(const TensorFiles& files, const TensorEntry& codes,
                                const CompressionScheme& scheme) {
  constexpr std::string_view kEnd = ".weight";
  CompressedMatrix matrix;
  matrix.scheme = scheme;
  matrix.codes = &codes;
  matrix.scales = files.find(codes.name.substr(0, codes.name.size() - kEnd.size()) + ".SCB");
  const MatrixChecks checks(files, matrix);
  if (codes.shape.size() != 2) {
    checks.fail(codes, "should have two dimensions");
  }
  matrix.rows = codes.shape[0];
  matrix.columns = codes.shape[1];
  checks.require_size();
  checks.require(matrix.scales, "SCB", {matrix.rows});
  check_row_order(files, codes.name.substr(0, codes.name.size() - kEnd.size()));
  checks.require_type(*matrix.scales, {DType::kF32});
  return matrix;
}

/// The scales of the blocks of codes of 4 bits.
std::vector<float> block_scales(const CompressedMatrix& stored) {
  if (stored.nested.block == 0) {
    return float_values(*stored.scales);
  }
  const std::vector<float> numbers = float_values(*stored.nested.numbers);
  const std::vector<float> factors = float_values(*stored.nested.scales);
  std::vector<float> scales;
  for (const std::byte code : stored.scales->bytes) {
    const auto group = static_cast<int64_t>(scales.size()) / stored.nested.block;
    const float product =
        numbers[std::to_integer<size_t>(code)] * factors[static_cast<size_t>(group)];
    scales.push_back(product + stored.nested.offset);
  }
  return scales;
}

/// The scale of each part of a row.
std::vector<float> widened_scales(const CompressedMatrix& stored) {
  const std::vector<float> blocks = block_scales(stored);
  const int64_t part = stored.scheme.columns_per_scale;
  std::vector<float> scales;
  for (int64_t first = 0; first < stored.rows * stored.columns; first += part) {
    scales.push_back(blocks[static_cast<size_t>(first / stored.scale_block)]);
  }
  return scales;
}

}  // namespace

CompressionScheme read_bitsandbytes(const JsonKeys& keys) {
  if (keys.boolean("load_in_8bit", false)) {
    return {.codes = Codes::kRows8, .rows_per_scale = 1};
  }
  if (!keys.boolean("load_in_4bit", false)) {
    keys.fail("quant_method", "is 'bitsandbytes', with neither load_in_4bit nor load_in_8bit");
  }
  return {.codes = Codes::kBlocks4, .bits = 4, .rows_per_scale = 1};
}

bool is_bitsandbytes(const CompressionScheme& scheme) {
  return scheme.codes == Codes::kBlocks4 || scheme.codes == Codes::kRows8;
}

CompressedMatrix describe_bitsandbytes(const TensorFiles& files, const TensorEntry& codes,
                                       const CompressionScheme& scheme) {
  return scheme.codes == Codes::kBlocks4 ? describe_bits4(files, codes, scheme)
                                         : describe_bits8(files, codes, scheme);
}

WidenedMatrix::WidenedMatrix(const CompressedMatrix& stored)
    : matrix_(stored), codes_(*stored.codes), scales_(*stored.scales) {
  if (stored.scheme.codes == Codes::kRows8) {
    constexpr float kLargest = 127.0F;
    for (const float largest : float_values(*stored.scales)) {
      scale_values_.push_back(largest / kLargest);
    }
    matrix_.scheme.codes = Codes::kInt8;
  } else {
    scale_values_ = widened_scales(stored);
    for (const std::byte pair : stored.codes->bytes) {
      code_bytes_.push_back(pair >> 4);
      code_bytes_.push_back(pair & std::byte{15});
    }
    codes_.bytes = code_bytes_;
    matrix_.scheme.codes = Codes::kBytes;
  }
  codes_.shape = {stored.rows, stored.columns};
  scales_.dtype = DType::kF32;
  scales_.shape = {stored.rows, stored.scale_columns()};
  scales_.bytes = bytes_of(scale_values_);
  matrix_.codes = &codes_;
  matrix_.scales = &scales_;
}

}  // namespace specdec
