#pragma once
// What a launch needs of the runtime beside its shape: shared memory, and whether it may begin
// early. Host code alone, so that tests run it with a runtime of their own.
#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <utility>

namespace specdec::cuda {

/// Lets a kernel have so many bytes of shared memory on the current device. The limit is the
/// kernel's, graphs that were recorded with more may be launched again: it is never lowered, by
/// other threads neither.
inline cudaError_t allow_shared_bytes(const void* kernel, unsigned bytes) {
  constexpr unsigned kDefaultSharedBytes = 48U << 10U;
  if (bytes <= kDefaultSharedBytes) {
    return cudaSuccess;
  }
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  cudaFuncAttributes attributes = {};
  const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
  const auto wanted = static_cast<int>(bytes);
  if (error != cudaSuccess || attributes.maxDynamicSharedSizeBytes >= wanted) {
    return error;
  }
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, wanted);
}

/// Whether a device runs the code for compute capability 9. Newer ones compile that for 8.0, which
/// neither waits for earlier kernels nor has clusters. Asked once a device.
inline bool runs_code_for_9(int device) {
  constexpr int kKnownDevices = 64;
  enum : signed char { kUnknown, kNo, kYes };
  static std::array<std::atomic<signed char>, kKnownDevices> known = {};
  if (device < 0 || device >= kKnownDevices) {
    return false;
  }
  std::atomic<signed char>& answer = known[static_cast<size_t>(device)];
  if (answer == kUnknown) {
    int major = 0;
    if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess) {
      return false;
    }
    answer = major == 9 ? kYes : kNo;
  }
  return answer == kYes;
}

/// What SPECDEC_CUDA_CLUSTERS says of clusters: 0 = there are to be none.
inline bool wants_clusters(const char* value) {
  return value == nullptr || std::strcmp(value, "0") != 0;
}

/// Whether blocks can be launched in clusters on the current device.
inline bool has_clusters() {
  static const bool kWanted = wants_clusters(std::getenv("SPECDEC_CUDA_CLUSTERS"));
  int device = 0;
  return kWanted && cudaGetDevice(&device) == cudaSuccess && runs_code_for_9(device);
}

/// Whether kernels on the current device begin while those before them end: where
/// SPECDEC_CUDA_OVERLAP is 1 and they wait themselves. Sets `device`.
inline bool overlaps(int& device) {
  static const bool kWanted = [] {
    const char* wanted = std::getenv("SPECDEC_CUDA_OVERLAP");
    return wanted != nullptr && std::strcmp(wanted, "1") == 0;
  }();
  return kWanted && cudaGetDevice(&device) == cudaSuccess && runs_code_for_9(device);
}

/// Streams (with their devices) on which no kernel was launched since they were told to wait for an
/// event. What comes in the meantime, such as a copy of weights, a kernel may read before it waits
/// for the kernel before it. Of any thread.
class WaitingStreams {
 public:
  void add(int device, void* stream) {
    const std::lock_guard<std::mutex> lock(mutex_);
    streams_.insert({device, stream});
  }
  /// Whether the stream was among them; it is not any more.
  bool take(int device, void* stream) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return streams_.erase({device, stream}) > 0;
  }

 private:
  std::mutex mutex_;
  std::set<std::pair<int, void*>> streams_;
};

/// Those of the process.
inline WaitingStreams& waiting_streams() {
  static WaitingStreams streams;
  return streams;
}

/// Notes that a stream was told to wait for an event.
inline void note_wait(void* stream) {
  if (int device = 0; overlaps(device)) {
    waiting_streams().add(device, stream);
  }
}

/// Whether the kernel that is launched next on a stream of the current device may begin while the
/// one before it ends. The first one after a wait for an event may not.
inline bool may_begin_early(void* stream) {
  int device = 0;
  return overlaps(device) && !waiting_streams().take(device, stream);
}

}  // namespace specdec::cuda
