#pragma once
#include <memory>
#include <utility>
#include <vector>

#include "core/kernels/forwarding_ops.h"

namespace specdec {

/// A device's ops whose results lie where those of the same calls lay before, so that a graph may
/// hold the calls (Ops::record). They are overwritten by the next ones.
class KeptResults final : public ForwardingOps {
 public:
  /// `most_rows`: of results that have some of their memory's rows, the first; 0 = all.
  explicit KeptResults(std::shared_ptr<Ops> ops, int64_t most_rows = 0)
      : ForwardingOps(std::move(ops)), most_rows_(most_rows) {}

  /// The next call has the first one's result. InternalError where a call asks for other sizes than
  /// the one of its turn did, or for more than `most_rows`.
  void begin() { next_ = 0; }
  Tensor result(int64_t rows, int64_t width, const at::TensorOptions& options) override;

 private:
  int64_t most_rows_;
  std::vector<Tensor> results_;
  size_t next_ = 0;
};

}  // namespace specdec
