#include "core/kernels/kept_results.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "core/error.h"

namespace specdec {

Tensor KeptResults::result(int64_t rows, int64_t width, const at::TensorOptions& options) {
  if (next_ == results_.size()) {
    results_.push_back(ForwardingOps::result(std::max(rows, most_rows_), width, options));
  }
  const Tensor& kept = results_[next_++];
  const bool has_rows = kept.size(0) == rows || (kept.size(0) == most_rows_ && rows <= most_rows_);
  SPECDEC_CHECK(has_rows && kept.size(1) == width,
                "a kept result of [{}, {}] is asked for as [{}, {}]", kept.size(0), kept.size(1),
                rows, width);
  return kept.size(0) == rows ? kept : kept.narrow(0, 0, rows);
}

}  // namespace specdec
