#pragma once
#include <cstdint>

namespace specdec {

/// What a piece of work took of the system, and what LibTorch copied for it.
struct AllocationCounts {
  int64_t news = 0;         ///< calls of operator new, on all threads
  int64_t tensors = 0;      ///< allocations of LibTorch's allocator of the CPU
  int64_t page_faults = 0;  ///< of the calling thread, that read nothing from a disk
  /// Calls of ATen operators that copy a tensor or read a number of one back, on this thread.
  int64_t copies = 0;
};

/// Counts while it lives. One at a time.
class AllocationCounter {
 public:
  AllocationCounter();
  ~AllocationCounter();
  AllocationCounter(const AllocationCounter&) = delete;
  AllocationCounter& operator=(const AllocationCounter&) = delete;

  /// Counts since the object was made.
  AllocationCounts counts() const;
  /// Whether operator new is counted: not under AddressSanitizer, which replaces it itself.
  static bool counts_news();

 private:
  AllocationCounts before_;
  uint64_t callback_;
};

}  // namespace specdec
