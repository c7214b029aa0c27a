// The calls of CUDA's runtime that bench/cuda/ makes, on ordinary memory: so the benchmark of the
// kernels runs in the emulation, where its times mean nothing.
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>

namespace {

int handle;                     // what streams, events and graphs point to
bool copies_on_device = false;  // nobody has waited for those of the default stream

template <class T>
cudaError_t make_handle(T* out) {
  *out = reinterpret_cast<T>(&handle);
  return cudaSuccess;
}

}  // namespace

extern "C" {

const char* cudaGetErrorString(cudaError_t /*error*/) { return "an error"; }
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int /*device*/) {
  *properties = {};
  std::strcpy(properties->name, "emulation");
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = 0;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  copies_on_device = false;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** memory, size_t bytes) {
  *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return *memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  copies_on_device = copies_on_device || kind == cudaMemcpyDeviceToDevice;
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* /*to*/, const void* /*from*/, size_t /*bytes*/,
                            cudaMemcpyKind /*kind*/, cudaStream_t /*stream*/) {
  return cudaSuccess;  // only its time is asked for
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) { return make_handle(stream); }
/// A stream that waits for no other would overtake the copies.
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return flags == cudaStreamNonBlocking && copies_on_device ? cudaErrorNotReady
                                                            : make_handle(stream);
}
cudaError_t cudaStreamDestroy(cudaStream_t /*stream*/) { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t /*stream*/) { return cudaSuccess; }
cudaError_t cudaStreamBeginCapture(cudaStream_t /*stream*/, cudaStreamCaptureMode /*mode*/) {
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t /*stream*/, cudaGraph_t* graph) {
  return make_handle(graph);
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* runnable, cudaGraph_t /*graph*/,
                                 unsigned long long /*flags*/) {
  return make_handle(runnable);
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t /*runnable*/, cudaStream_t /*stream*/) {
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t /*runnable*/) { return cudaSuccess; }
cudaError_t cudaGraphDestroy(cudaGraph_t /*graph*/) { return cudaSuccess; }
cudaError_t cudaEventCreate(cudaEvent_t* event) { return make_handle(event); }
cudaError_t cudaEventRecord(cudaEvent_t /*event*/, cudaStream_t /*stream*/) { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t /*event*/) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t /*begin*/, cudaEvent_t /*end*/) {
  *milliseconds = 8.0F;  // so that a graph holds few calls
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t /*event*/) { return cudaSuccess; }

}  // extern "C"
