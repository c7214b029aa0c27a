#include "tests/support/quantizers.h"

#include <ATen/ATen.h>

#include <cstring>

#include "core/formats/atomic_file.h"
#include "core/formats/quantised/codebook_blocks.h"
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

/// Codes of E2M1 nearest to values.
Tensor float4_codes(const Tensor& values) {
  const Tensor magnitudes = at::tensor({0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F});
  const Tensor nearest = (values.abs().unsqueeze(-1) - magnitudes).abs().argmin(-1);
  return nearest + values.lt(0).logical_and(nearest.gt(0)).to(at::kLong) * 8;
}

Tensor float4_values(const Tensor& codes) {
  const Tensor magnitudes = at::tensor({0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F});
  return magnitudes.index({codes.bitwise_and(7)}) * (1 - codes.bitwise_and(8).div(4));
}

QuantizedMatrix quantize_float4(const Tensor& values, Float4 kind) {
  const int64_t group = kind == Float4::kMxfp4 ? 32 : 16;
  const Tensor groups = values.unflatten(1, {-1, group});
  const Tensor wanted = groups.abs().amax(2) / 6.0;
  QuantizedMatrix matrix;
  Tensor scale;
  if (kind == Float4::kMxfp4) {
    const Tensor exponent = wanted.clamp_min(1e-20).log2().ceil();
    matrix.tensors["_scale"] = {DType::kU8, (exponent + 127).to(at::kByte)};
    scale = exponent.exp2();
  } else {
    const bool divides = kind == Float4::kNvfp4;
    const Tensor whole = at::full(
        {1}, divides ? 448.0 / wanted.max().item<double>() : wanted.max().item<double>() / 448.0,
        at::kFloat);
    const Tensor stored = (divides ? wanted * whole : wanted / whole).to(at::kFloat8_e4m3fn);
    matrix.tensors["_scale"] = {DType::kF8E4M3, stored};
    matrix.tensors[divides ? "_global_scale" : "_scale_2"] = {DType::kF32, whole};
    scale = divides ? stored.to(at::kFloat) / whole : stored.to(at::kFloat) * whole;
  }
  const Tensor safe = at::where(scale.gt(0), scale, at::ones({}));
  const Tensor codes = float4_codes(groups / safe.unsqueeze(2));
  matrix.values = (float4_values(codes) * scale.unsqueeze(2)).flatten(1).contiguous();
  const Tensor pairs = codes.flatten(1).unflatten(1, {-1, 2});
  matrix.tensors[kind == Float4::kModelopt ? "" : "_packed"] = {
      DType::kU8, (pairs.select(2, 0) + pairs.select(2, 1) * 16).to(at::kByte)};
  return matrix;
}

QuantizedMatrix quantize_nf4(const Tensor& values) {
  const Codebook& numbers = codebook_of(DType::kNf4x32);
  const Tensor map = at::tensor(at::ArrayRef<float>(numbers.data(), numbers.size()));
  const Tensor blocks = values.reshape({-1, 32});
  const Tensor scales = blocks.abs().amax(1);
  const Tensor places = blocks / at::where(scales.gt(0), scales, at::ones({})).unsqueeze(1);
  const Tensor codes = (places.unsqueeze(2) - map).abs().argmin(2);
  const Tensor pairs = codes.reshape({-1, 2});
  const std::string state = json{
      {"shape", values.sizes().vec()},
      {"blocksize", 32},
      {"quant_type", "nf4"},
      {"dtype", "bfloat16"}}.dump();
  Tensor text = at::empty({std::ssize(state)}, at::kByte);
  std::memcpy(text.mutable_data_ptr<uint8_t>(), state.data(), state.size());
  return {{{"", {DType::kU8, (pairs.select(1, 0) * 16 + pairs.select(1, 1)).to(at::kByte)}},
           {".weight.absmax", {DType::kF32, scales}},
           {".weight.quant_map", {DType::kF32, map}},
           {".weight.quant_state.bitsandbytes__nf4", {DType::kU8, text}}},
          (map.index({codes}) * scales.unsqueeze(1)).reshape(values.sizes())};
}

json float4_config(Float4 kind) {
  if (kind == Float4::kModelopt) {
    return {{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}, {"ignore", {"lm_head"}}};
  }
  const bool is_mx = kind == Float4::kMxfp4;
  return compressed_tensors(is_mx ? "mxfp4-pack-quantized" : "nvfp4-pack-quantized",
                            {{"num_bits", 4},
                             {"type", "float"},
                             {"strategy", is_mx ? "group" : "tensor_group"},
                             {"group_size", is_mx ? 32 : 16}});
}

/// Integers with a float16 scale and a zero point for each group of inputs; `order`: the group of
/// each input.
struct GroupCodes {
  Tensor codes;   ///< [rows, columns]
  Tensor scales;  ///< [rows, groups] float16
  Tensor zeros;   ///< [rows, groups]
  Tensor values;  ///< [rows, columns] float32
};

GroupCodes quantize_groups(const Tensor& values, const Tensor& order, int64_t bits,
                           bool symmetric) {
  const int64_t groups = order.max().item<int64_t>() + 1;
  const double most = static_cast<double>((int64_t{1} << bits) - 1);
  std::vector<Tensor> scales;
  std::vector<Tensor> zeros;
  for (int64_t group = 0; group < groups; ++group) {
    const Tensor part = values.index_select(1, order.eq(group).nonzero().squeeze(1));
    const Tensor high = symmetric ? part.abs().amax(1) : part.amax(1).clamp_min(0.0);
    const Tensor low = symmetric ? -high : part.amin(1).clamp_max(0.0);
    scales.push_back(((high - low) / most).to(at::kHalf));
    zeros.push_back(symmetric ? at::full_like(high, (most + 1.0) / 2.0)
                              : (-low / scales.back().to(at::kFloat)).round().clamp(0.0, most));
  }
  GroupCodes all;
  all.scales = at::stack(scales, 1);
  all.zeros = at::stack(zeros, 1);
  const Tensor scale = all.scales.to(at::kFloat).index_select(1, order);
  const Tensor zero = all.zeros.index_select(1, order);
  all.codes = ((values / scale).round() + zero).clamp(0.0, most);
  all.values = (all.codes - zero) * scale;
  return all;
}

QuantizedMatrix quantize_gptq(const Tensor& values, const GptqKind& kind) {
  const int64_t columns = values.size(1);
  const int64_t group = kind.group == 0 ? columns : kind.group;
  const int64_t groups = columns / group;
  const Tensor inputs = at::arange(columns, at::kLong);
  const Tensor order =
      kind.is_ordered ? inputs.remainder(groups) : inputs.div(group, "floor").to(at::kLong);
  const GroupCodes codes = quantize_groups(values, order, kind.bits, kind.symmetric);
  Tensor zeros = packed(codes.zeros.t().contiguous(), 1, kind.bits);
  if (!kind.second) {  // 1 is taken from each, of whole words: a zero point of 0 borrows
    zeros = zeros - (kind.bits == 2 ? 0x55555555 : kind.bits == 4 ? 0x11111111 : 0x01010101);
  }
  return {{{".qweight", {DType::kI32, packed(codes.codes.t().contiguous(), 0, kind.bits)}},
           {".qzeros", {DType::kI32, zeros}},
           {".scales", {DType::kF16, codes.scales.t().contiguous()}},
           {".g_idx", {DType::kI32, order.to(at::kInt)}}},
          codes.values};
}

/// Outputs in the order of AWQ's words.
Tensor awq_words(const Tensor& codes) {
  const Tensor order = at::tensor({0, 2, 4, 6, 1, 3, 5, 7}, at::kLong);
  return packed(codes.t().contiguous().unflatten(1, {-1, 8}).index_select(2, order).flatten(1), 1);
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
      json::parse(read_file(test_data("compressed") / "int8/config.json"))["quantization_config"],
      "AFFINE8_64"};
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

Quantizer float4(Float4 kind) {
  const char* name = kind == Float4::kMxfp4      ? "mxfp4"
                     : kind == Float4::kModelopt ? "modelopt_nvfp4"
                                                 : "nvfp4";
  return {name, [kind](const Tensor& values) { return quantize_float4(values, kind); },
          float4_config(kind), kind == Float4::kMxfp4 ? "FP4_32" : "FP4_16"};
}

Quantizer gptq(const std::string& name, const GptqKind& kind, const std::string& format) {
  return {name,
          [kind](const Tensor& values) { return quantize_gptq(values, kind); },
          {{"quant_method", "gptq"},
           {"bits", kind.bits},
           {"group_size", kind.group == 0 ? -1 : kind.group},
           {"desc_act", kind.is_ordered},
           {"sym", kind.symmetric},
           {"checkpoint_format", kind.second ? "gptq_v2" : "gptq"}},
          format};
}

Quantizer awq() {
  const auto quantize = [](const Tensor& values) {
    const Tensor order = at::arange(values.size(1), at::kLong).div(32, "floor").to(at::kLong);
    const GroupCodes codes = quantize_groups(values, order, 4, false);
    return QuantizedMatrix{{{".qweight", {DType::kI32, awq_words(codes.codes)}},
                            {".qzeros", {DType::kI32, awq_words(codes.zeros)}},
                            {".scales", {DType::kF16, codes.scales.t().contiguous()}}},
                           codes.values};
  };
  return {"awq",
          quantize,
          {{"quant_method", "awq"},
           {"bits", 4},
           {"group_size", 32},
           {"zero_point", true},
           {"version", "gemm"}}};
}

Quantizer mlx(int64_t bits) {
  const auto quantize = [bits](const Tensor& values) {
    const Tensor groups = values.unflatten(1, {-1, 32});
    const double most = static_cast<double>((int64_t{1} << bits) - 1);
    const Tensor biases = groups.amin(2).to(at::kBFloat16);
    const Tensor scales = ((groups.amax(2) - groups.amin(2)) / most).to(at::kBFloat16);
    const Tensor scale = scales.to(at::kFloat).unsqueeze(2);
    const Tensor bias = biases.to(at::kFloat).unsqueeze(2);
    const Tensor codes = ((groups - bias) / scale).round().clamp(0.0, most);
    return QuantizedMatrix{{{"", {DType::kI32, packed(codes.flatten(1), 1, bits)}},
                            {".scales", {DType::kBF16, scales}},
                            {".biases", {DType::kBF16, biases}}},
                           (codes * scale + bias).flatten(1)};
  };
  return {bits == 4 ? "mlx_4" : "mlx_8",
          quantize,
          {{"group_size", 32}, {"bits", bits}, {"mode", "affine"}},
          bits == 4 ? "Q4_1" : "float32"};
}

Quantizer bitsandbytes_nf4() {
  return {"bitsandbytes_nf4",
          quantize_nf4,
          {{"quant_method", "bitsandbytes"},
           {"load_in_4bit", true},
           {"bnb_4bit_quant_type", "nf4"},
           {"llm_int8_skip_modules", {"lm_head"}}},
          "NF4_32"};
}

Quantizer w2a16_rows() {
  return {"w2a16", quantize_int2,
          compressed_tensors("pack-quantized",
                             {{"num_bits", 2}, {"type", "int"}, {"strategy", "channel"}}),
          "INT4_32"};
}

}  // namespace specdec
