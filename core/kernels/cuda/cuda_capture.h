#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "core/kernels/cuda/split_memory.h"
#include "core/kernels/ops.h"

namespace specdec::cuda {

/// Launches that are recorded and not run, as long as it lives.
class CudaCapture {
 public:
  /// Sets `stream`, where launches go, to the one that is captured. What is recorded splits nothing
  /// now: `split` is emptied at the beginning and at the end, and whenever the graph has run.
  /// Throws Error where CUDA cannot.
  CudaCapture(void*& stream, at::Device device, std::shared_ptr<SplitRows> split);
  /// Sets `stream` back to the default stream; drops what finish() has not taken.
  ~CudaCapture();
  CudaCapture(const CudaCapture&) = delete;
  CudaCapture& operator=(const CudaCapture&) = delete;

  /// Ends the capture. The graph runs on the default stream of the device, and keeps `workspaces`,
  /// which its launches use. Throws Error where something was done that cannot be captured.
  std::unique_ptr<OpsGraph> finish(std::vector<at::Tensor> workspaces);

 private:
  void*& stream_;
  at::Device device_;
  std::shared_ptr<SplitRows> split_;
  bool capturing_ = true;
};

}  // namespace specdec::cuda
