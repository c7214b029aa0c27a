#include "core/kernels/weight_rows.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <array>
#include <vector>

#include "core/error.h"
#include "core/formats/gguf/gguf_blocks.h"
#include "core/formats/gguf/gguf_quantize.h"
#include "core/formats/quantised/codebook_blocks.h"
#include "core/kernels/linear.h"
#include "core/kernels/stored_rows.h"
#include "core/kernels/weight_fragments.h"

namespace specdec {
namespace {

std::byte* bytes_of(const at::Tensor& tensor) {
  return reinterpret_cast<std::byte*>(tensor.mutable_data_ptr<uint8_t>());
}

at::Tensor quantized_rows(const at::Tensor& rows, WeightFormat format) {
  SPECDEC_CHECK(format == WeightFormat::kInt8, "weights of {} are stored, not made",
                format_name(format));
  const at::Tensor values = rows.to(at::kCPU, at::kFloat).contiguous();
  at::Tensor blocks = at::empty({rows.size(0), weight_row_bytes(rows.size(1), format)}, at::kByte);
  quantize_q8_0(values.const_data_ptr<float>(), values.numel(), bytes_of(blocks));
  return blocks;
}

/// The type of blocks that rows of a format lie in.
DType row_dtype(WeightFormat format) {
  const DType stored = stored_dtype(format);
  if (!has_codebook(format)) {
    return stored;
  }
  return codebook_scale_inputs(stored) == 16 ? DType::kFp4x16 : DType::kFp4x32;
}

/// Blocks of a file with a codebook, as rows have them.
at::Tensor codebook_row(const std::byte* blocks, int64_t in, WeightFormat format) {
  const DType stored = stored_dtype(format);
  const DType held = row_dtype(format);
  at::Tensor row = at::empty({weight_row_bytes(in, format)}, at::kByte);
  std::byte* out = bytes_of(row);
  std::vector<uint8_t> codes(static_cast<size_t>(block_values(stored)));
  std::vector<float> scales(codes.size() / static_cast<size_t>(block_values(held)));
  for (int64_t done = 0; done < in; done += block_values(stored)) {
    read_codebook_block(stored, blocks, codes.data(), scales.data());
    const uint8_t* some = codes.data();
    for (const float scale : scales) {
      write_codebook_block(held, some, scale, out);
      some += block_values(held);
      out += dtype_bytes(held);
    }
    blocks += dtype_bytes(stored);
  }
  return row;
}

/// The values of such blocks.
void read_codebook_rows(const std::byte* blocks, int64_t values, WeightFormat format, float* out) {
  const DType held = row_dtype(format);
  const Codebook& numbers = codebook_of(stored_dtype(format));
  std::array<uint8_t, 32> codes{};
  float scale = 0;
  for (int64_t done = 0; done < values; done += block_values(held)) {
    read_codebook_block(held, blocks, codes.data(), &scale);
    for (int64_t k = 0; k < block_values(held); ++k) {
      *out++ = scale * numbers[codes[static_cast<size_t>(k)]];
    }
    blocks += dtype_bytes(held);
  }
}

/// Sizes and dtype of the rows of a weight [out, in].
struct RowShape {
  std::array<int64_t, 2> sizes;
  at::ScalarType dtype;
};

RowShape row_shape(int64_t out, int64_t in, WeightFormat format) {
  if (!is_in_blocks(format)) {
    return {{out, in}, scalar_type(format)};
  }
  if (const int64_t block = block_values(row_dtype(format)); in % block != 0) {
    throw Error(fmt::format(
        "a matrix of {} inputs has no whole blocks of {} for {}, which kernels of GPUs need; "
        "use another dtype, or device: cpu",
        in, block, format_name(format)));
  }
  return {{out, weight_row_bytes(in, format)}, at::kByte};
}

}  // namespace

Placement placement_on(at::Device device) {
  return {device, device.is_cpu() ? WeightLayout::kPanels : WeightLayout::kRows};
}

int64_t weight_row_bytes(int64_t in, WeightFormat format) {
  const DType type = row_dtype(format);
  return in / block_values(type) * dtype_bytes(type);
}

at::Tensor empty_weight_rows(int64_t out, int64_t in, WeightFormat format, at::Device device) {
  const RowShape shape = row_shape(out, in, format);
  return at::zeros(shape.sizes, at::TensorOptions(shape.dtype).device(device));
}

at::Tensor weight_rows_in(const std::shared_ptr<std::byte>& memory, int64_t out, int64_t in,
                          WeightFormat format, at::Device device) {
  const RowShape shape = row_shape(out, in, format);
  return at::from_blob(
      memory.get(), shape.sizes, [memory](void* /*data*/) {},
      at::TensorOptions(shape.dtype).device(device));
}

void write_weight_rows(const at::Tensor& rows, int64_t first, WeightFormat format,
                       at::Tensor& weight) {
  const at::Tensor plain = rows.detach();
  weight.narrow(0, first, rows.size(0))
      .copy_(is_in_blocks(format) ? quantized_rows(plain, format) : plain);
}

void write_stored_row(const std::byte* blocks, int64_t in, int64_t output, WeightFormat format,
                      at::Tensor& weight) {
  at::Tensor row = weight.select(0, output);
  if (has_codebook(format)) {
    row.copy_(codebook_row(blocks, in, format));
    return;
  }
  auto* bytes = const_cast<std::byte*>(blocks);  // only copied from
  row.copy_(at::from_blob(bytes, row.sizes(), at::kByte));
}

at::Tensor read_weight_rows(const at::Tensor& weight, WeightFormat format, const at::Tensor& ids,
                            int64_t in) {
  const at::Tensor rows = weight.index_select(0, ids);
  if (!is_in_blocks(format)) {
    return rows.to(format == WeightFormat::kFloat64 ? at::kDouble : at::kFloat);
  }
  const at::Tensor blocks = rows.cpu().contiguous();
  at::Tensor values = at::empty({ids.size(0), in}, at::kFloat);
  auto* out = values.mutable_data_ptr<float>();
  if (has_codebook(format)) {
    read_codebook_rows(bytes_of(blocks), values.numel(), format, out);
  } else {
    dequantize(stored_dtype(format), bytes_of(blocks), values.numel(), out);
  }
  return values.to(weight.device());
}

}  // namespace specdec
