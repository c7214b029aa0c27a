#include "tests/support/quantizers.h"

#include <ATen/ATen.h>

#include "core/formats/atomic_file.h"
#include "core/formats/strict_json.h"
#include "tests/support/golden.h"

namespace specdec {
namespace {

using at::Tensor;
using nlohmann::json;

/// FP8 with a scale for each part of so many rows and columns.
QuantizedMatrix quantize_fp8(const Tensor& values, int64_t rows, int64_t columns,
                             const char* scale_name, DType scale_type = DType::kF32) {
  const int64_t height = values.size(0);
  const int64_t width = values.size(1);
  const Tensor padded = at::constant_pad_nd(
      values, {0, (columns - width % columns) % columns, 0, (rows - height % rows) % rows});
  const Tensor parts = padded.abs().unflatten(1, {-1, columns}).unflatten(0, {-1, rows});
  Tensor scale = parts.amax({1, 3}) / 440.0;
  Tensor stored = scale_type == DType::kBF16 ? scale.to(at::kBFloat16) : scale;
  scale = stored.to(at::kFloat);
  const Tensor scales = scale.repeat_interleave(rows, 0)
                            .repeat_interleave(columns, 1)
                            .narrow(0, 0, height)
                            .narrow(1, 0, width);
  const Tensor codes = (values / scales).to(at::kFloat8_e4m3fn);
  return {{{"", {DType::kF8E4M3, codes}}, {scale_name, {scale_type, stored}}},
          codes.to(at::kFloat) * scales};
}

json fp8_method() {
  return {{"quant_method", "fp8"},
          {"fmt", "e4m3"},
          {"activation_scheme", "dynamic"},
          {"modules_to_not_convert", {"lm_head"}}};
}

/// Integers of so few bits, the first one of a word lowest, along a dimension.
Tensor packed(const Tensor& codes, int64_t dim, int64_t bits = 4) {
  const Tensor shifts = at::arange(0, 32, bits, at::kLong);
  const Tensor apart = codes.to(at::kLong).transpose(dim, 1).unflatten(1, {-1, 32 / bits});
  return at::bitwise_left_shift(apart, shifts).sum(2).to(at::kInt).transpose(dim, 1);
}

QuantizedMatrix quantize_int4(const Tensor& values, bool symmetric) {
  const Tensor groups = values.unflatten(1, {-1, 32});
  const Tensor low = symmetric ? -groups.abs().amax(2) : groups.amin(2).clamp_max(0.0);
  const Tensor high = symmetric ? groups.abs().amax(2) : groups.amax(2).clamp_min(0.0);
  const Tensor scale = ((high - low) / 15.0).to(at::kBFloat16);
  const Tensor wide = scale.to(at::kFloat);
  const Tensor zero = symmetric ? at::full_like(wide, 8.0) : (-low / wide).round().clamp(0.0, 15.0);
  const Tensor codes = ((groups / wide.unsqueeze(2)).round() + zero.unsqueeze(2)).clamp(0.0, 15.0);
  QuantizedMatrix matrix;
  matrix.values = ((codes - zero.unsqueeze(2)) * wide.unsqueeze(2)).flatten(1);
  matrix.tensors = {{"_packed", {DType::kI32, packed(codes.flatten(1), 1)}},
                    {"_scale", {DType::kBF16, scale}},
                    {"_shape", {DType::kI64, at::tensor(values.sizes(), at::kLong)}}};
  if (!symmetric) {
    matrix.tensors["_zero_point"] = {DType::kI32, packed(zero, 0)};
  }
  return matrix;
}

QuantizedMatrix quantize_int2(const Tensor& values) {
  const Tensor scale = (values.abs().amax(1, true) / 2.0).to(at::kBFloat16);
  const Tensor wide = scale.to(at::kFloat);
  const Tensor codes = ((values / wide).round() + 2.0).clamp(0.0, 3.0);
  return {{{"_packed", {DType::kI32, packed(codes, 1, 2)}},
           {"_scale", {DType::kBF16, scale}},
           {"_shape", {DType::kI64, at::tensor(values.sizes(), at::kLong)}}},
          (codes - 2.0) * wide};
}

}  // namespace

void PrintTo(const Quantizer& quantizer, std::ostream* out) { *out << quantizer.name; }

json compressed_tensors(const std::string& format, const json& weights) {
  return {{"quant_method", "compressed-tensors"},
          {"format", format},
          {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}}}}},
          {"ignore", {"lm_head"}}};
}

Quantizer int8_rows() {
  const auto quantize = [](const Tensor& values) {
    const Tensor scale = values.abs().amax(1, true) / 127.0;
    const Tensor codes = (values / scale).round().to(at::kChar);
    return QuantizedMatrix{{{"", {DType::kI8, codes}}, {"_scale", {DType::kF32, scale}}},
                           codes.to(at::kFloat) * scale};
  };
  return {
      "int8", quantize,
      json::parse(read_file(test_data("compressed") / "int8/config.json"))["quantization_config"]};
}

Quantizer fp8_rows(DType scales) {
  return {scales == DType::kF32 ? "fp8_rows" : "fp8_rows_bfloat16",
          [scales](const Tensor& values) {
            return quantize_fp8(values, 1, values.size(1), "_scale", scales);
          },
          compressed_tensors("float-quantized",
                             {{"num_bits", 8}, {"type", "float"}, {"strategy", "channel"}}),
          "FP8_32"};
}

Quantizer fp8_blocks(int64_t size) {
  json config = fp8_method();
  config["weight_block_size"] = {size, size};
  return {"fp8_blocks",
          [size](const Tensor& values) { return quantize_fp8(values, size, size, "_scale_inv"); },
          config, "FP8_32"};
}

Quantizer fp8_block_strategy(int64_t size) {
  return {"fp8_block_strategy",
          [size](const Tensor& values) { return quantize_fp8(values, size, size, "_scale"); },
          compressed_tensors("float-quantized", {{"num_bits", 8},
                                                 {"type", "float"},
                                                 {"strategy", "block"},
                                                 {"block_structure", {size, size}}}),
          "FP8_32"};
}

Quantizer fp8_whole() {
  return {"fp8_whole",
          [](const Tensor& values) {
            return quantize_fp8(values, values.size(0), values.size(1), "_scale");
          },
          fp8_method(), "FP8_32"};
}

Quantizer w4a16(bool symmetric) {
  return {symmetric ? "w4a16" : "w4a16_asymmetric",
          [symmetric](const Tensor& values) { return quantize_int4(values, symmetric); },
          compressed_tensors("pack-quantized", {{"num_bits", 4},
                                                {"type", "int"},
                                                {"strategy", "group"},
                                                {"group_size", 32},
                                                {"symmetric", symmetric},
                                                {"actorder", "weight"}}),
          "INT4_32"};
}

Quantizer w2a16_rows() {
  return {"w2a16", quantize_int2,
          compressed_tensors("pack-quantized",
                             {{"num_bits", 2}, {"type", "int"}, {"strategy", "channel"}}),
          "INT4_32"};
}

}  // namespace specdec
