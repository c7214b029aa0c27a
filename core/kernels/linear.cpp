#include "core/kernels/linear.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <utility>

#include "core/kernels/checks.h"

namespace specdec {
namespace {

/// Outputs of a panel. In memory a panel holds for each input the weights of its outputs: float64
/// and float32 in their order, 16-bit types as 0, 16, 1, 17, ..., so that a word holds one of each
/// half. What lies behind the last output is zero.
constexpr int64_t kPanel = 32;

/// Bits of a bfloat16 or float16 weight.
struct Bf16 {
  uint16_t bits;
};
struct Fp16 {
  uint16_t bits;
};

template <class T, class Weight>
struct LinearTask {
  const T* input;
  const Weight* weight;  ///< [panels, in, kPanel]
  T* out;
  int64_t nodes;
  int64_t in;
  int64_t out_size;
};

}  // namespace
}  // namespace specdec

#define SPECDEC_SIMD_BODY "core/kernels/linear_simd.h"
#include "core/kernels/for_each_simd.h"

namespace specdec {
namespace {

/// Multiplications that are worth a second thread.
constexpr int64_t kParallelWork = 200'000;

template <class T, class Weight>
void run_panels(const LinearTask<T, Weight>& task, int64_t begin, int64_t end) {
  SPECDEC_SIMD_CALL(linear_columns, task, begin, end);
}

template <class T, class Weight>
void run(const Tensor& input, const Tensor& packed, Tensor& out) {
  const LinearTask<T, Weight> task{input.const_data_ptr<T>(),
                                   static_cast<const Weight*>(packed.const_data_ptr()),
                                   out.mutable_data_ptr<T>(),
                                   input.size(0),
                                   input.size(1),
                                   out.size(1)};
  const int64_t panels = packed.size(0);
  const int64_t work_per_panel = std::max<int64_t>(1, task.nodes * task.in * kPanel);
  if (work_per_panel * panels < kParallelWork || at::get_num_threads() == 1) {
    run_panels(task, 0, panels);
    return;
  }
  const int64_t grain = std::max<int64_t>(1, kParallelWork / 2 / work_per_panel);
  at::parallel_for(0, panels, grain,
                   [&](int64_t begin, int64_t end) { run_panels(task, begin, end); });
}

/// Where an output's weight lies among those of its panel for one input.
template <class Weight>
int64_t place_in_panel(int64_t output) {
  const int64_t column = output % kPanel;
  return sizeof(Weight) == 2 ? column % (kPanel / 2) * 2 + column / (kPanel / 2) : column;
}

/// Outputs first .. of packed [panels, in, kPanel] from rows [n, in] of its dtype. Row by row: what
/// is written to stays in the cache for all rows of a panel.
template <class Weight>
void pack_rows(const Tensor& rows, int64_t first, const Tensor& packed) {
  const auto* values = static_cast<const Weight*>(rows.const_data_ptr());
  auto* weights = static_cast<Weight*>(packed.mutable_data_ptr());
  const int64_t in = rows.size(1);
  for (int64_t n = 0; n < rows.size(0); ++n) {
    const int64_t output = first + n;
    Weight* to = weights + output / kPanel * in * kPanel + place_in_panel<Weight>(output);
    for (int64_t k = 0; k < in; ++k) {
      to[k * kPanel] = values[n * in + k];
    }
  }
}

/// packed [panels, in, kPanel], ids [n] int64 -> out [n, in]. A loop, since a step looks up few.
template <class T, class Weight>
void copy_rows(const Tensor& packed, const Tensor& ids, Tensor& out) {
  const auto* weights = packed.const_data_ptr<Weight>();
  const auto* id = ids.const_data_ptr<int64_t>();
  T* values = out.mutable_data_ptr<T>();
  const int64_t in = out.size(1);
  for (int64_t n = 0; n < ids.size(0); ++n) {
    const Weight* row = weights + id[n] / kPanel * in * kPanel + place_in_panel<Weight>(id[n]);
    for (int64_t k = 0; k < in; ++k) {
      values[n * in + k] = static_cast<T>(row[k * kPanel]);
    }
  }
}

}  // namespace

WeightFormat weight_format(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return WeightFormat::kFloat64;
    case at::kFloat:
      return WeightFormat::kFloat32;
    case at::kBFloat16:
      return WeightFormat::kBFloat16;
    case at::kHalf:
      return WeightFormat::kFloat16;
    default:
      SPECDEC_CHECK(false, "weight_format: dtype {}", c10::toString(dtype));
  }
}

at::ScalarType scalar_type(WeightFormat format) {
  switch (format) {
    case WeightFormat::kFloat64:
      return at::kDouble;
    case WeightFormat::kFloat32:
      return at::kFloat;
    case WeightFormat::kBFloat16:
      return at::kBFloat16;
    case WeightFormat::kFloat16:
      break;
  }
  return at::kHalf;
}

Linear::Linear(int64_t out, int64_t in, WeightFormat format, at::Device device)
    : in_(in), out_(out), format_(format) {
  SPECDEC_CHECK(in > 0 && out > 0, "Linear: {} outputs of {} inputs", out, in);
  const auto options = at::TensorOptions(scalar_type(format)).device(device);
  packed_ = device.is_cpu() ? at::zeros({(out + kPanel - 1) / kPanel, in, kPanel}, options)
                            : at::zeros({out, in}, options);
}

Linear::Linear(const Tensor& weight, WeightFormat format, const Tensor& bias)
    : Linear(weight.size(0), weight.size(1), format, weight.device()) {
  set_rows(0, weight);
  if (bias.defined()) {
    SPECDEC_CHECK(bias.dim() == 1 && bias.size(0) == out_, "Linear: a bias for {} outputs", out_);
    bias_ = bias.to(compute_dtype()).contiguous();
  }
}

void Linear::set_rows(int64_t first, const Tensor& weight) {
  SPECDEC_CHECK(
      weight.dim() == 2 && weight.size(1) == in_ && first >= 0 && first + weight.size(0) <= out_,
      "Linear [{}, {}]: rows from {} on", out_, in_, first);
  if (!device().is_cpu()) {
    packed_.narrow(0, first, weight.size(0)).copy_(weight);
    return;
  }
  constexpr int64_t kAtOnce = 8 * kPanel;  // converting takes little memory beside it
  for (int64_t row = 0; row < weight.size(0); row += kAtOnce) {
    const int64_t count = std::min(kAtOnce, weight.size(0) - row);
    const Tensor rows =
        weight.detach().narrow(0, row, count).to(packed_.scalar_type()).contiguous();
    switch (packed_.element_size()) {
      case 2:
        pack_rows<uint16_t>(rows, first + row, packed_);
        break;
      case 4:
        pack_rows<uint32_t>(rows, first + row, packed_);
        break;
      default:
        pack_rows<uint64_t>(rows, first + row, packed_);
    }
  }
}

at::ScalarType Linear::compute_dtype() const {
  return format_ == WeightFormat::kFloat64 ? at::kDouble : at::kFloat;
}

void Linear::apply(const Tensor& input, Tensor& out) const {
  SPECDEC_CHECK(defined(), "linear: no weight");
  check_cpu(packed_);
  const at::ScalarType dtype = compute_dtype();
  SPECDEC_CHECK(is_plain(input, dtype) && is_plain(out, dtype),
                "linear: input and out should be contiguous, of dtype {}", c10::toString(dtype));
  SPECDEC_CHECK(input.dim() == 2 && out.dim() == 2 && input.size(1) == in_ &&
                    out.size(0) == input.size(0) && out.size(1) == out_,
                "linear: input [{}, {}] and out [{}, {}] do not fit a weight [{}, {}]",
                input.size(0), input.size(-1), out.size(0), out.size(-1), out_, in_);
  switch (format_) {
    case WeightFormat::kFloat64:
      run<double, double>(input, packed_, out);
      break;
    case WeightFormat::kFloat32:
      run<float, float>(input, packed_, out);
      break;
    case WeightFormat::kBFloat16:
      run<float, Bf16>(input, packed_, out);
      break;
    case WeightFormat::kFloat16:
      run<float, Fp16>(input, packed_, out);
      break;
  }
  if (bias_.defined()) {
    out.add_(bias_);
  }
}

Tensor Linear::apply(const Tensor& input) const {
  Tensor out = at::empty({input.size(0), out_}, input.options());
  apply(input, out);
  return out;
}

Tensor Linear::rows(const Tensor& ids) const {
  if (!device().is_cpu()) {
    return packed_.index_select(0, ids.to(at::kLong)).to(compute_dtype());
  }
  const Tensor index = ids.to(at::kCPU, at::kLong).contiguous();
  Tensor out = at::empty({index.size(0), in_}, compute_dtype());
  switch (format_) {
    case WeightFormat::kFloat64:
      copy_rows<double, double>(packed_, index, out);
      break;
    case WeightFormat::kFloat32:
      copy_rows<float, float>(packed_, index, out);
      break;
    case WeightFormat::kBFloat16:
      copy_rows<float, c10::BFloat16>(packed_, index, out);
      break;
    case WeightFormat::kFloat16:
      copy_rows<float, c10::Half>(packed_, index, out);
      break;
  }
  return out;
}

Tensor Linear::unpack() const {
  if (!device().is_cpu()) {
    return packed_;
  }
  return rows(at::arange(out_)).to(scalar_type(format_));  // narrowing is exact
}

}  // namespace specdec
