#include "core/kernels/sparse_gate.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "core/kernels/checks.h"
#include "core/kernels/team.h"

namespace specdec {
namespace {

constexpr double kNanosecondsPerNumber = 2.0;

/// Sums in float64, so that their order hardly matters.
template <class T>
void cut_row(T* gate, int64_t size, double deviations) {
  double sum = 0.0;
  for (int64_t i = 0; i < size; ++i) {
    sum += static_cast<double>(gate[i]);
  }
  const double mean = sum / static_cast<double>(size);
  double squares = 0.0;
  for (int64_t i = 0; i < size; ++i) {
    const double distance = static_cast<double>(gate[i]) - mean;
    squares += distance * distance;
  }
  const auto cut =
      static_cast<T>(mean + deviations * std::sqrt(squares / static_cast<double>(size)));
  for (int64_t i = 0; i < size; ++i) {
    gate[i] = std::max(gate[i] - cut, T{0});
  }
}

template <class T>
void cut_rows(const Tensor& gate_up, double deviations) {
  T* values = gate_up.mutable_data_ptr<T>();
  const int64_t width = gate_up.size(1);
  const int64_t grain =
      tile_grain(gate_up.size(0), kNanosecondsPerNumber * static_cast<double>(width));
  parallel_tiles(gate_up.size(0), grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      cut_row(values + row * width, width / 2, deviations);
    }
  });
}

}  // namespace

void cut_gate(Tensor& gate_up, double deviations) {
  check_cpu(gate_up);
  SPECDEC_CHECK(is_float_or_double(gate_up) && is_plain(gate_up, gate_up.scalar_type()) &&
                    gate_up.dim() == 2 && gate_up.size(1) % 2 == 0,
                "cut_gate: gate_up should be [n, 2 * size], contiguous, float32 or float64");
  if (gate_up.scalar_type() == at::kDouble) {
    cut_rows<double>(gate_up, deviations);
  } else {
    cut_rows<float>(gate_up, deviations);
  }
}

}  // namespace specdec
