#include "core/kernels/panels.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/error.h"
#include "core/kernels/block_formats.h"
#include "core/kernels/team.h"

namespace specdec {
namespace {

/// Where an output's weight lies among those of its panel for one input.
template <class Weight>
int64_t place_in_panel(int64_t output) {
  const int64_t column = output % kPanel;
  return sizeof(Weight) == 2 ? column % (kPanel / 2) * 2 + column / (kPanel / 2) : column;
}

/// Row by row: what is written to stays in the cache for all rows of a panel.
template <class Weight>
void pack(const at::Tensor& rows, int64_t first, at::Tensor& panels) {
  const auto* values = rows.const_data_ptr<Weight>();
  auto* weights = panels.mutable_data_ptr<Weight>();
  const int64_t in = rows.size(1);
  for (int64_t n = 0; n < rows.size(0); ++n) {
    const int64_t output = first + n;
    Weight* to = weights + output / kPanel * in * kPanel + place_in_panel<Weight>(output);
    for (int64_t k = 0; k < in; ++k) {
      to[k * kPanel] = values[n * in + k];
    }
  }
}

/// The numbers of a row lie far from each other.
constexpr double kUnpackNanoseconds = 2.0;

/// The weights of `outputs`, from `values` on.
template <class T, class Weight>
void unpack(const at::Tensor& panels, std::span<const int32_t> outputs, T* values) {
  const auto* weights = panels.const_data_ptr<Weight>();
  const int64_t in = panels.size(1);
  for (const int64_t output : outputs) {
    const Weight* row = weights + output / kPanel * in * kPanel + place_in_panel<Weight>(output);
    for (int64_t k = 0; k < in; ++k) {
      *values++ = static_cast<T>(row[k * kPanel]);
    }
  }
}

/// Unpacks the weights of `outputs` from any format; `first` is the row of `out` that the first
/// output's weights go to.
void unpack_some(const at::Tensor& panels, WeightFormat format, std::span<const int32_t> outputs,
                 int64_t first, at::Tensor& out) {
  const int64_t in = out.size(1);
  if (format == WeightFormat::kFloat64) {
    return unpack<double, double>(panels, outputs, out.mutable_data_ptr<double>() + first * in);
  }
  float* values = out.mutable_data_ptr<float>() + first * in;
  switch (format) {
    case WeightFormat::kFloat32:
      return unpack<float, float>(panels, outputs, values);
    case WeightFormat::kBFloat16:
      return unpack<float, c10::BFloat16>(panels, outputs, values);
    case WeightFormat::kFloat16:
      return unpack<float, c10::Half>(panels, outputs, values);
    default:
      return unpack_block_rows(panels, format, outputs, values, in);
  }
}

/// Sizes and dtype of the panels of a weight [out, in].
struct PanelShape {
  std::array<int64_t, 3> sizes;
  at::ScalarType dtype;
};

PanelShape panel_shape(int64_t out, int64_t in, WeightFormat format) {
  const int64_t panels = (out + kPanel - 1) / kPanel;
  switch (format) {
    case WeightFormat::kFloat64:
      return {{panels, in, kPanel}, at::kDouble};
    case WeightFormat::kFloat32:
      return {{panels, in, kPanel}, at::kFloat};
    case WeightFormat::kBFloat16:
      return {{panels, in, kPanel}, at::kBFloat16};
    case WeightFormat::kFloat16:
      return {{panels, in, kPanel}, at::kHalf};
    default:
      break;
  }
  return with_block_type(format, [&]<class Block>(Block* /*type*/) -> PanelShape {
    const int64_t blocks = (in + Block::kInputs - 1) / Block::kInputs;
    return {{panels, blocks, static_cast<int64_t>(sizeof(Block))}, at::kByte};
  });
}

}  // namespace

at::Tensor empty_panels(int64_t out, int64_t in, WeightFormat format) {
  const PanelShape shape = panel_shape(out, in, format);
  return at::zeros(shape.sizes, shape.dtype);
}

at::Tensor panels_in(const std::shared_ptr<std::byte>& memory, int64_t out, int64_t in,
                     WeightFormat format) {
  const PanelShape shape = panel_shape(out, in, format);
  return at::from_blob(
      memory.get(), shape.sizes, [memory](void* /*data*/) {}, at::TensorOptions(shape.dtype));
}

void pack_rows(const at::Tensor& rows, int64_t first, WeightFormat format, at::Tensor& panels) {
  const at::ScalarType dtype = format == WeightFormat::kInt8 ? at::kFloat : panels.scalar_type();
  constexpr int64_t kAtOnce = 8 * kPanel;  // converting takes little memory beside it
  for (int64_t row = 0; row < rows.size(0); row += kAtOnce) {
    const int64_t count = std::min(kAtOnce, rows.size(0) - row);
    const at::Tensor some = rows.detach().narrow(0, row, count).to(dtype).contiguous();
    switch (format) {
      case WeightFormat::kFloat64:
        pack<double>(some, first + row, panels);
        break;
      case WeightFormat::kFloat32:
        pack<float>(some, first + row, panels);
        break;
      case WeightFormat::kBFloat16:
        pack<c10::BFloat16>(some, first + row, panels);
        break;
      case WeightFormat::kFloat16:
        pack<c10::Half>(some, first + row, panels);
        break;
      case WeightFormat::kInt8:
        quantize_rows_int8(some, first + row, panels);
        break;
      default:
        SPECDEC_CHECK(false, "pack_rows: weights of a GGUF format are packed as stored");
    }
  }
}

void unpack_rows(const at::Tensor& panels, WeightFormat format, std::span<const int32_t> outputs,
                 at::Tensor& out) {
  const int64_t count = std::ssize(outputs);
  const int64_t grain = tile_grain(count, kUnpackNanoseconds * static_cast<double>(out.size(1)));
  parallel_tiles(count, grain, [&](int64_t begin, int64_t end) {
    const auto some = outputs.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    unpack_some(panels, format, some, begin, out);
  });
}

}  // namespace specdec
