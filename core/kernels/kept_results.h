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
  explicit KeptResults(std::shared_ptr<Ops> ops) : ForwardingOps(std::move(ops)) {}

  /// The next call has the first one's result. InternalError where a call asks for other sizes than
  /// the one of its turn did.
  void begin() { next_ = 0; }
  Tensor result(int64_t rows, int64_t width, const at::TensorOptions& options) override;

 private:
  std::vector<Tensor> results_;
  size_t next_ = 0;
};

}  // namespace specdec
