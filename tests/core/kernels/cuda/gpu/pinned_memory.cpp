#include "tests/core/kernels/cuda/gpu/pinned_memory.h"

#include <c10/core/CPUAllocator.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <new>

namespace specdec::cuda {
namespace {

constexpr size_t kSlabBytes = size_t{64} << 20U;
constexpr size_t kMaxSlabs = 4096;
/// Bytes before each block, which say what list it goes back to. Keeps blocks at multiples of 64
/// bytes, as LibTorch has them.
constexpr size_t kHeaderBytes = 64;

struct FreeBlock {
  FreeBlock* next;
};

/// The block that was released first is taken first: memory that a larger piece replaces does not
/// come back at once, as tests expect that count graphs whose memory has moved.
struct FreeList {
  FreeBlock* first = nullptr;
  FreeBlock* last = nullptr;
};

struct Slab {
  std::byte* begin = nullptr;
  std::byte* end = nullptr;
};

/// Blocks whose sizes are powers of two, cut from slabs of pinned memory and never given back.
class PinnedPool {
 public:
  void* allocate(size_t bytes);
  void release(void* memory);
  bool owns(const void* memory);

 private:
  std::byte* cut(size_t bytes);
  std::byte* new_slab(size_t bytes);

  std::mutex mutex_;
  std::array<FreeList, 64> free_{};
  std::array<Slab, kMaxSlabs> slabs_{};
  size_t count_ = 0;
  std::byte* next_ = nullptr;  ///< of the newest slab
};

constinit PinnedPool pool;
/// Pages for a slab, or nullptr.
using PageSource = void* (*)(size_t bytes);

constinit PageSource page_source = nullptr;  ///< nullptr: memory is malloc's
/// While CUDA allocates: what it allocates itself does not come from the pool.
constinit thread_local bool inside_cuda = false;

void* PinnedPool::allocate(size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto list = static_cast<size_t>(std::bit_width(bytes + kHeaderBytes - 1));
  std::byte* block = nullptr;
  if (FreeBlock*& first = free_[list].first; first != nullptr) {
    block = reinterpret_cast<std::byte*>(first) - kHeaderBytes;
    first = first->next;
  } else {
    block = cut(std::max(size_t{1} << list, 2 * kHeaderBytes));
  }
  if (block == nullptr) {
    return nullptr;
  }
  *reinterpret_cast<size_t*>(block) = list;
  return block + kHeaderBytes;
}

std::byte* PinnedPool::cut(size_t bytes) {
  if (count_ == 0 || static_cast<size_t>(slabs_[count_ - 1].end - next_) < bytes) {
    std::byte* slab = new_slab(std::max(bytes, kSlabBytes));
    if (slab == nullptr) {
      return nullptr;  // the slab before goes on: smaller blocks still come from it
    }
    next_ = slab;
  }
  next_ += bytes;
  return next_ - bytes;
}

std::byte* PinnedPool::new_slab(size_t bytes) {
  inside_cuda = true;
  auto* begin = count_ < kMaxSlabs ? static_cast<std::byte*>(page_source(bytes)) : nullptr;
  inside_cuda = false;
  if (begin == nullptr) {
    return nullptr;
  }
  slabs_[count_++] = {begin, begin + bytes};
  return begin;
}

bool PinnedPool::owns(const void* memory) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::any_of(slabs_.begin(), slabs_.begin() + static_cast<std::ptrdiff_t>(count_),
                     [&](const Slab& slab) { return memory >= slab.begin && memory < slab.end; });
}

void PinnedPool::release(void* memory) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const size_t list = *reinterpret_cast<size_t*>(static_cast<std::byte*>(memory) - kHeaderBytes);
  auto* block = static_cast<FreeBlock*>(memory);
  block->next = nullptr;
  FreeList& blocks = free_[list];
  (blocks.first == nullptr ? blocks.first : blocks.last->next) = block;
  blocks.last = block;
}

void* allocate(size_t bytes) {
  void* memory = page_source != nullptr && !inside_cuda ? pool.allocate(bytes) : std::malloc(bytes);
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return memory;
}

void release(void* memory) {
  if (page_source != nullptr && !inside_cuda && memory != nullptr && pool.owns(memory)) {
    pool.release(memory);
  } else {
    std::free(memory);
  }
}

/// Allocator of LibTorch's tensors on the CPU.
class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* memory = bytes == 0 ? nullptr : cuda::allocate(bytes);
    return {memory, memory, &cuda::release, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &cuda::release; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

void use_pool(PageSource source) {
  static PinnedAllocator tensors;
  page_source = source;
  c10::SetCPUAllocator(&tensors, 100);
}

}  // namespace

std::string use_pinned_memory() {
  setenv("CUDA_LAUNCH_BLOCKING", "1", 1);  // NOLINT(concurrency-mt-unsafe)
  int devices = 0;
  cudaError_t error = cudaGetDeviceCount(&devices);
  if (error == cudaSuccess && devices > 0) {
    error = cudaFree(nullptr);  // makes the context
  }
  if (error != cudaSuccess || devices == 0) {
    return error != cudaSuccess ? cudaGetErrorString(error) : "no device";
  }
  int same_address = 0;
  cudaDeviceGetAttribute(&same_address, cudaDevAttrUnifiedAddressing, 0);
  if (same_address == 0) {
    return "the GPU does not share the host's addresses";
  }
  use_pool([](size_t bytes) {
    void* memory = nullptr;
    // The allocation runs also while this thread records a graph, which has no part in it.
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaThreadExchangeStreamCaptureMode(&mode);
    const cudaError_t error = cudaHostAlloc(&memory, bytes, 0);
    cudaThreadExchangeStreamCaptureMode(&mode);
    if (error != cudaSuccess) {
      cudaGetLastError();  // else a later call reports it
    }
    return error == cudaSuccess ? memory : nullptr;
  });
  return {};
}

void rehearse_pinned_memory() {
  use_pool([](size_t bytes) { return std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096); });
}

std::string device_name() {
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess) {
    return "unknown";
  }
  return std::string(properties.name) + ", " + std::to_string(properties.totalGlobalMem >> 20U) +
         " MiB";
}

}  // namespace specdec::cuda

void* operator new(std::size_t bytes) { return specdec::cuda::allocate(bytes); }
void operator delete(void* memory) noexcept { specdec::cuda::release(memory); }
void operator delete(void* memory, std::size_t /*bytes*/) noexcept {
  specdec::cuda::release(memory);
}
