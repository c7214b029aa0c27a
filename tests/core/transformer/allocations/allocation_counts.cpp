#include "tests/core/transformer/allocations/allocation_counts.h"

#include <ATen/record_function.h>
#include <c10/core/CPUAllocator.h>
#include <sys/resource.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <string_view>

#if !defined(__SANITIZE_ADDRESS__)
#define SPECDEC_COUNTS_NEWS
#endif

namespace specdec {
namespace {

constinit std::atomic<int64_t> news = 0;
constinit std::atomic<int64_t> tensors = 0;
constinit thread_local int64_t copies = 0;

/// LibTorch's allocator of the CPU, counted. The process's from its first use on.
class CountedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    ++tensors;
    return own_->allocate(bytes);
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    own_->copy_data(to, from, bytes);
  }

 private:
  c10::Allocator* own_ = c10::GetCPUAllocator();
};

void count_tensors() {
  static CountedAllocator& counted = *new CountedAllocator;
  c10::SetCPUAllocator(&counted, 200);
}

std::unique_ptr<at::ObserverContext> count_copies(const at::RecordFunction& function) {
  const std::string_view name = function.name();
  for (const char* copying : {"aten::copy_", "aten::_to_copy", "aten::_local_scalar_dense"}) {
    copies += name == copying ? 1 : 0;
  }
  return nullptr;
}

AllocationCounts counts_so_far() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return {.news = news, .tensors = tensors, .page_faults = usage.ru_minflt, .copies = copies};
}

#if defined(SPECDEC_COUNTS_NEWS)
void* counted_memory(std::size_t bytes, std::size_t alignment) {
  ++news;
  const std::size_t size = (bytes + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, size == 0 ? alignment : size);
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return memory;
}
#endif

}  // namespace

AllocationCounter::AllocationCounter() {
  count_tensors();
  callback_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(count_copies).scopes({at::RecordScope::FUNCTION}));
  before_ = counts_so_far();
}

AllocationCounter::~AllocationCounter() { at::removeCallback(callback_); }

AllocationCounts AllocationCounter::counts() const {
  const AllocationCounts now = counts_so_far();
  return {.news = now.news - before_.news,
          .tensors = now.tensors - before_.tensors,
          .page_faults = now.page_faults - before_.page_faults,
          .copies = now.copies - before_.copies};
}

bool AllocationCounter::counts_news() {
#if defined(SPECDEC_COUNTS_NEWS)
  return true;
#else
  return false;
#endif
}

}  // namespace specdec

#if defined(SPECDEC_COUNTS_NEWS)
// The operators for arrays and those without exceptions call these.
void* operator new(std::size_t bytes) {
  return specdec::counted_memory(bytes, alignof(std::max_align_t));
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return specdec::counted_memory(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*bytes*/) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t /*alignment*/) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*bytes*/, std::align_val_t /*alignment*/) noexcept {
  std::free(memory);
}
#endif
