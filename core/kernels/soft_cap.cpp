#include "core/kernels/soft_cap.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "core/kernels/checks.h"
#include "core/kernels/team.h"

#define SPECDEC_SIMD_BODY "core/kernels/simd/soft_cap_simd.h"
#include "core/kernels/simd/for_each_simd.h"

namespace specdec {
namespace {

constexpr int64_t kTileValues = 1024;
constexpr double kTileNanoseconds = 0.8 * kTileValues;

template <class T>
void run(Tensor& values, double cap) {
  T* data = values.mutable_data_ptr<T>();
  const int64_t count = values.numel();
  const int64_t tiles = (count + kTileValues - 1) / kTileValues;
  parallel_tiles(tiles, tile_grain(tiles, kTileNanoseconds), [&](int64_t begin, int64_t end) {
    const int64_t first = begin * kTileValues;
    const int64_t size = std::min(end * kTileValues, count) - first;
    SPECDEC_SIMD_CALL(cap_values, data + first, size, static_cast<T>(cap));
  });
}

}  // namespace

void soft_cap(Tensor& values, double cap) {
  check_cpu(values);
  SPECDEC_CHECK(is_float_or_double(values) && is_plain(values, values.scalar_type()) && cap > 0.0,
                "soft_cap: values should be contiguous float32 or float64, the cap positive");
  if (values.scalar_type() == at::kDouble) {
    run<double>(values, cap);
  } else {
    run<float>(values, cap);
  }
}

}  // namespace specdec
