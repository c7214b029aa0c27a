#pragma once
// Graphs of launches by CUDA's runtime; see core/kernels/cuda/graphs.h for what each function does.
// Static: a program with the emulation beside the library has functions of the same names.
#include <cuda_runtime.h>

namespace specdec::cuda {

/// The error, which the next launch would else report as its own (cudaGetLastError).
static inline int cleared(cudaError_t error) {
  if (error != cudaSuccess) {
    cudaGetLastError();
  }
  return error;
}

static inline int begin_capture(void** stream) {
  // The default stream cannot be captured. This one does not wait for it: nothing runs here.
  cudaStream_t made = nullptr;
  cudaError_t error = cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking);
  if (error != cudaSuccess) {
    return cleared(error);
  }
  // Other threads may go on allocating.
  error = cudaStreamBeginCapture(made, cudaStreamCaptureModeThreadLocal);
  if (error != cudaSuccess) {
    cudaStreamDestroy(made);
    return cleared(error);
  }
  *stream = made;
  return 0;
}

static inline int end_capture(void* stream, void** graph) {
  auto* captured = static_cast<cudaStream_t>(stream);
  cudaGraph_t launches = nullptr;
  cudaGraphExec_t runnable = nullptr;
  cudaError_t error = cudaStreamEndCapture(captured, &launches);
  if (error == cudaSuccess && graph != nullptr) {
    error = cudaGraphInstantiate(&runnable, launches, 0);
  }
  if (launches != nullptr) {
    cudaGraphDestroy(launches);
  }
  cudaStreamDestroy(captured);
  if (graph != nullptr) {
    *graph = error == cudaSuccess ? runnable : nullptr;
  }
  return cleared(error);
}

static inline int launch_graph(void* graph, void* stream) {
  return cleared(
      cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), static_cast<cudaStream_t>(stream)));
}

/// Destroys a graph; one that still runs is freed when it ends.
static inline int destroy_graph(void* graph) {
  return cleared(cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph)));
}

static inline int synchronize(void* stream) {
  return cleared(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)));
}

static inline const char* error_name(int error) {
  return cudaGetErrorName(static_cast<cudaError_t>(error));
}

}  // namespace specdec::cuda
