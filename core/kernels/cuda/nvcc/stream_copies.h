#pragma once
// Copies beside kernels by CUDA's runtime; see core/kernels/cuda/copies.h for what each function
// does.
#include <launch_rules.h>
#include <stream_capture.h>

#include <cstdint>

namespace specdec::cuda {

static inline int create_stream(void** stream) {
  cudaStream_t made = nullptr;
  const cudaError_t error = cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking);
  *stream = error == cudaSuccess ? made : nullptr;
  return cleared(error);
}

static inline int destroy_stream(void* stream) {
  return cleared(cudaStreamDestroy(static_cast<cudaStream_t>(stream)));
}

static inline int create_event(void** event) {
  cudaEvent_t made = nullptr;
  const cudaError_t error = cudaEventCreateWithFlags(&made, cudaEventDisableTiming);
  *event = error == cudaSuccess ? made : nullptr;
  return cleared(error);
}

static inline int destroy_event(void* event) {
  return cleared(cudaEventDestroy(static_cast<cudaEvent_t>(event)));
}

static inline int record_event(void* event, void* stream) {
  return cleared(
      cudaEventRecord(static_cast<cudaEvent_t>(event), static_cast<cudaStream_t>(stream)));
}

static inline int wait_for_event(void* stream, void* event) {
  const cudaError_t error =
      cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), static_cast<cudaEvent_t>(event), 0);
  note_wait(stream);  // after it: a launch in between is before the wait
  return cleared(error);
}

static inline int synchronize_event(void* event) {
  return cleared(cudaEventSynchronize(static_cast<cudaEvent_t>(event)));
}

static inline int queue_copy(void* to, const void* from, int64_t bytes, void* stream) {
  return cleared(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault,
                                 static_cast<cudaStream_t>(stream)));
}

}  // namespace specdec::cuda
