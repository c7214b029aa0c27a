#include "core/kernels/gated_activation.h"

#include <ATen/ATen.h>

#include "core/kernels/checks.h"
#include "core/kernels/team.h"

namespace specdec {
namespace {

constexpr int64_t kTileNumbers = 1024;
constexpr double kTileNanoseconds = 0.8 * kTileNumbers;

template <class T>
struct GatedTask {
  const T* gate_up;
  T* out;
  int64_t size;
  int64_t parts;  ///< tiles of a row
};

}  // namespace
}  // namespace specdec

#define SPECDEC_SIMD_BODY "core/kernels/simd/gated_activation_simd.h"
#include "core/kernels/simd/for_each_simd.h"

namespace specdec {
namespace {

template <class T>
void run(const Tensor& gate_up, Activation activation, const RowRange& rows, const Tensor& out) {
  const int64_t size = out.size(1);
  const GatedTask<T> task{gate_up.const_data_ptr<T>() + rows.begin * 2 * size,
                          out.mutable_data_ptr<T>() + rows.begin * size, size,
                          (size + kTileNumbers - 1) / kTileNumbers};
  const int64_t tiles = rows.count() * task.parts;
  const int64_t grain = tile_grain(tiles, kTileNanoseconds);
  parallel_tiles(tiles, grain, [&](int64_t begin, int64_t end) {
    if (activation == Activation::kSilu) {
      SPECDEC_SIMD_CALL(swiglu_tiles, task, begin, end);
    } else {
      SPECDEC_SIMD_CALL(geglu_tiles, task, begin, end);
    }
  });
}

}  // namespace

void gated_activation(const Tensor& gate_up, Activation activation, Tensor& out) {
  gated_activation(gate_up, activation, {0, out.size(0)}, out);
}

void gated_activation(const Tensor& gate_up, Activation activation, const RowRange& rows,
                      Tensor& out) {
  check_cpu(gate_up);
  SPECDEC_CHECK(is_float_or_double(gate_up) && is_plain(gate_up, gate_up.scalar_type()) &&
                    is_plain(out, gate_up.scalar_type()),
                "gated_activation: operands should be contiguous, both float32 or both float64");
  SPECDEC_CHECK(gate_up.dim() == 2 && out.dim() == 2 && gate_up.size(0) == out.size(0) &&
                    gate_up.size(1) == 2 * out.size(1) && rows.begin >= 0 &&
                    rows.begin <= rows.end && rows.end <= out.size(0),
                "gated_activation: gate_up should be [n, 2 * size], out [n, size], rows {} to {} "
                "some of n",
                rows.begin, rows.end);
  if (gate_up.scalar_type() == at::kDouble) {
    run<double>(gate_up, activation, rows, out);
  } else {
    run<float>(gate_up, activation, rows, out);
  }
}

}  // namespace specdec
