#include "core/kernels/linear_product.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "core/kernels/block_product.h"
#include "core/kernels/checks.h"
#include "core/kernels/elementwise.h"
#include "core/kernels/team.h"

namespace specdec {
namespace {

template <class T, class Weight>
struct LinearTask {
  const T* input;
  const Weight* weight;  ///< [panels, in, kPanel]
  T* out;
  int64_t nodes;
  int64_t in;
  int64_t out_size;
  int64_t out_stride;
  bool reads_ahead;
};

}  // namespace
}  // namespace specdec

#define SPECDEC_SIMD_BODY "core/kernels/simd/linear_simd.h"
#include "core/kernels/simd/for_each_simd.h"

namespace specdec {
namespace {

/// Estimates of what a core does: bytes of weights read, multiplications.
constexpr double kBytesPerNanosecond = 24.0;
constexpr double kProductsPerNanosecond = 50.0;

/// Calls run(begin, end) for all panels of `packed`, where it pays on several threads.
template <class T, class Run>
void for_panels(const Tensor& packed, const ProductRows<T>& rows, const Run& run) {
  const int64_t panels = packed.size(0);
  // A single row wants panels in pairs (see linear_columns).
  const int64_t panels_a_tile = rows.nodes == 1 ? 2 : 1;
  const int64_t tiles = (panels + panels_a_tile - 1) / panels_a_tile;
  const double bytes = static_cast<double>(packed.nbytes()) / static_cast<double>(panels);
  const auto products = static_cast<double>(rows.nodes * rows.in * kPanel);
  const double nanoseconds = static_cast<double>(panels_a_tile) *
                             (bytes / kBytesPerNanosecond + products / kProductsPerNanosecond);
  parallel_tiles(tiles, tile_grain(tiles, nanoseconds), [&](int64_t begin, int64_t end) {
    run(begin * panels_a_tile, std::min(end * panels_a_tile, panels));
  });
}

template <class Weight, class T>
void multiply(const ProductRows<T>& rows, const Tensor& packed) {
  const LinearTask<T, Weight> task{
      rows.input,      static_cast<const Weight*>(packed.const_data_ptr()),
      rows.out,        rows.nodes,
      rows.in,         rows.out_size,
      rows.out_stride, read_ahead_choice().numbers};
  for_panels(packed, rows, [&](int64_t begin, int64_t end) {
    SPECDEC_SIMD_CALL(linear_columns, task, begin, end);
  });
}

void multiply_blocks(const ProductRows<float>& rows, const Linear::Part& part,
                     ActivationFormat activations) {
  const BlockProduct product(
      rows, part.packed, part.format,
      has_integer_blocks(part.format) ? activations : ActivationFormat::kFloat32);
  for_panels(part.packed, rows, [&](int64_t begin, int64_t end) { product.run(begin, end); });
}

/// What a part reads and writes.
template <class T>
ProductRows<T> rows_of(const Linear::Part& part, const Tensor& input, const RowRange& rows,
                       Tensor& out) {
  return {.input = input.const_data_ptr<T>() + rows.begin * input.size(1),
          .out = out.mutable_data_ptr<T>() + rows.begin * out.size(1) + part.first,
          .nodes = rows.count(),
          .in = input.size(1),
          .out_size = part.out,
          .out_stride = out.size(1)};
}

void multiply_part(const Linear::Part& part, ActivationFormat activations, const Tensor& input,
                   const RowRange& rows, Tensor& out) {
  if (part.format == WeightFormat::kFloat64) {
    return multiply<double>(rows_of<double>(part, input, rows, out), part.packed);
  }
  const ProductRows<float> operands = rows_of<float>(part, input, rows, out);
  switch (part.format) {
    case WeightFormat::kFloat32:
      return multiply<float>(operands, part.packed);
    case WeightFormat::kBFloat16:
      return multiply<Bf16>(operands, part.packed);
    case WeightFormat::kFloat16:
      return multiply<Fp16>(operands, part.packed);
    default:
      return multiply_blocks(operands, part, activations);
  }
}

void check(const Linear& weight, const Tensor& input, const RowRange& rows, const Tensor& out) {
  SPECDEC_CHECK(weight.defined(), "linear: no weight");
  check_cpu(weight.parts().front().packed);
  SPECDEC_CHECK(weight.layout() == WeightLayout::kPanels, "linear: a weight that is not in panels");
  const at::ScalarType dtype = weight.compute_dtype();
  SPECDEC_CHECK(is_plain(input, dtype) && is_plain(out, dtype),
                "linear: input and out should be contiguous, of dtype {}", c10::toString(dtype));
  SPECDEC_CHECK(input.dim() == 2 && out.dim() == 2 && input.size(1) == weight.in() &&
                    out.size(0) == input.size(0) && out.size(1) == weight.out(),
                "linear: input [{}, {}] and out [{}, {}] do not fit a weight [{}, {}]",
                input.size(0), input.size(-1), out.size(0), out.size(-1), weight.out(),
                weight.in());
  SPECDEC_CHECK(rows.begin >= 0 && rows.begin <= rows.end && rows.end <= input.size(0),
                "linear: rows {} to {} of {}", rows.begin, rows.end, input.size(0));
}

}  // namespace

void linear_product(const Linear& weight, const Tensor& input, const RowRange& rows, Tensor& out) {
  check(weight, input, rows, out);
  if (rows.count() == 0) {
    return;
  }
  for (const Linear::Part& part : weight.parts()) {
    multiply_part(part, weight.activations(), input, rows, out);
  }
  if (weight.bias().defined()) {
    add_to_rows(out, rows, weight.bias());
  }
}

void linear_product(const Linear& weight, const Tensor& input, Tensor& out) {
  linear_product(weight, input, {0, out.size(0)}, out);
}

Tensor linear_product(const Linear& weight, const Tensor& input) {
  Tensor out = at::empty({input.size(0), weight.out()}, input.options());
  linear_product(weight, input, out);
  return out;
}

}  // namespace specdec
