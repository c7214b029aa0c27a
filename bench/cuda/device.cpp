#include "bench/cuda/device.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace specdec::cuda {
namespace {

constexpr int kRepetitions = 7;
constexpr double kGraphSeconds = 2e-3;
constexpr int kMaxCalls = 512;

/// Runs `enqueue` between two events; its seconds.
double seconds_of(cudaStream_t stream, const std::function<void()>& enqueue) {
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  check(cudaEventRecord(begin, stream), "event");
  enqueue();
  check(cudaEventRecord(end, stream), "event");
  check(cudaEventSynchronize(end), "work");
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, begin, end), "event");
  check(cudaEventDestroy(begin), "event");
  check(cudaEventDestroy(end), "event");
  return static_cast<double>(milliseconds) / 1e3;
}

double median_of(std::vector<double>& numbers) {
  std::sort(numbers.begin(), numbers.end());
  return numbers[numbers.size() / 2];
}

double measure_copy() {
  constexpr size_t kBytes = size_t{1} << 30U;
  const DeviceArray from(kBytes);
  const DeviceArray to(kBytes);
  from.tile(std::vector<std::byte>(4096, std::byte{0x5B}));
  cudaStream_t stream = nullptr;
  check(cudaStreamCreate(&stream), "stream");
  std::vector<double> seconds;
  for (int i = 0; i < 13; ++i) {
    seconds.push_back(seconds_of(stream, [&] {
      check(cudaMemcpyAsync(to.data(), from.data(), kBytes, cudaMemcpyDeviceToDevice, stream),
            "copy");
    }));
  }
  seconds.erase(seconds.begin(), seconds.begin() + 3);
  check(cudaStreamDestroy(stream), "stream");
  return 2.0 * static_cast<double>(kBytes) / median_of(seconds);
}

}  // namespace

void check(int error, const char* what) {
  if (error != 0) {
    std::fprintf(stderr, "cuda_kernels_bench: %s: %s\n", what,
                 cudaGetErrorString(static_cast<cudaError_t>(error)));
    std::exit(1);
  }
}

DeviceArray::DeviceArray(size_t bytes) : bytes_(bytes) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, std::max<size_t>(bytes, 1)), "allocation");
  memory_ = {memory, [](void* pointer) { cudaFree(pointer); }};
}

void DeviceArray::upload(const void* from, size_t bytes) const {
  check(cudaMemcpy(data(), from, bytes, cudaMemcpyHostToDevice), "upload");
}

std::vector<float> DeviceArray::floats(size_t count) const {
  std::vector<float> numbers(count);
  check(cudaMemcpy(numbers.data(), data(), count * sizeof(float), cudaMemcpyDeviceToHost),
        "read-back");
  return numbers;
}

void DeviceArray::tile(const std::vector<std::byte>& pattern) const {
  const size_t first = std::min(pattern.size(), bytes_);
  upload(pattern.data(), first);
  for (size_t done = first; done < bytes_;) {  // what is there is a multiple of the pattern
    const size_t more = std::min(done, bytes_ - done);
    check(cudaMemcpy(data() + done, data(), more, cudaMemcpyDeviceToDevice), "copy");
    done += more;
  }
}

std::unique_ptr<Device> find_device(std::string& reason) {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess || devices == 0) {
    reason = error != cudaSuccess ? cudaGetErrorString(error) : "no device";
    return nullptr;
  }
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0), "properties");
  auto device = std::make_unique<Device>();
  device->name = properties.name;
  device->processors = properties.multiProcessorCount;
  device->memory_bytes = properties.totalGlobalMem;
  device->l2_bytes = static_cast<size_t>(properties.l2CacheSize);
  check(cudaDriverGetVersion(&device->driver), "version");
  check(cudaRuntimeGetVersion(&device->runtime), "version");
  device->copy_bytes_per_second = measure_copy();
  return device;
}

Timing time_calls(int cycle, const std::function<void(int index, void* stream)>& call) {
  check(cudaDeviceSynchronize(), "copies");  // of tile(): this stream does not wait for them
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  call(0, stream);  // loads the kernel
  check(cudaStreamSynchronize(stream), "kernel");
  const int probes = std::min(cycle, 4);
  const double guess = seconds_of(stream,
                                  [&] {
                                    for (int i = 0; i < probes; ++i) {
                                      call(i, stream);
                                    }
                                  }) /
                       probes;
  const int wanted = std::min(kMaxCalls, static_cast<int>(kGraphSeconds / guess) + 1);
  const int calls = (wanted + cycle - 1) / cycle * cycle;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t runnable = nullptr;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), "capture");
  for (int i = 0; i < calls; ++i) {
    call(i % cycle, stream);
  }
  check(cudaStreamEndCapture(stream, &graph), "capture");
  check(cudaGraphInstantiate(&runnable, graph, 0), "graph");
  std::vector<double> seconds;
  for (int i = 0; i < kRepetitions + 1; ++i) {
    seconds.push_back(
        seconds_of(stream, [&] { check(cudaGraphLaunch(runnable, stream), "graph"); }) / calls);
  }
  seconds.erase(seconds.begin());
  check(cudaGraphExecDestroy(runnable), "graph");
  check(cudaGraphDestroy(graph), "graph");
  check(cudaStreamDestroy(stream), "stream");
  const double median = median_of(seconds);
  return {median, (seconds.back() - seconds.front()) / median};
}

int cold_copies(const Device& device, size_t bytes) {
  return static_cast<int>(
      std::min<size_t>(4 * device.l2_bytes / std::max<size_t>(bytes, 1) + 1, 512));
}

}  // namespace specdec::cuda
