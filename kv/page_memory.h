#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace specdec {

using at::Tensor;

/// Address space of a fixed size at a fixed place, whose first bytes may be used. What was never
/// used takes no memory.
class ReservedMemory {
 public:
  /// Throws Error where the system gives no such address space.
  explicit ReservedMemory(int64_t bytes);
  ~ReservedMemory();
  ReservedMemory(const ReservedMemory&) = delete;
  ReservedMemory& operator=(const ReservedMemory&) = delete;

  void* data() const { return data_; }
  /// Lets the first `bytes` be read and written. They begin as zeros and become resident page by
  /// page, when they are first written. Throws std::bad_alloc where the system refuses.
  void use(int64_t bytes);
  /// Makes the first `bytes` of these resident.
  void touch(int64_t bytes);

 private:
  void* data_;
  int64_t bytes_;
};

/// Numbers of a fixed number of pages at most, which never move. On the CPU address space is
/// reserved, so that growing copies nothing; elsewhere, and where the program has given LibTorch
/// another allocator of the CPU's memory, all pages are allocated at once.
class PageMemory {
 public:
  PageMemory() = default;
  PageMemory(std::vector<int64_t> page_sizes, const at::TensorOptions& numbers, int64_t capacity);
  /// Pages [pages, *page_sizes] that another owner has allocated.
  explicit PageMemory(Tensor pages) : sizes_(pages.sizes().vec()), pages_(std::move(pages)) {}

  /// Lets pages below `pages` be used; at most the capacity.
  void reserve(int64_t pages);
  /// Makes the memory of the pages below `pages`, which may be used, resident; changes none.
  void touch(int64_t pages);
  /// The pages that may be used, [pages, *page_sizes]. What lay in them stays in place.
  const Tensor& pages() const { return pages_; }

 private:
  std::vector<int64_t> sizes_;  ///< [pages, *page_sizes]
  at::TensorOptions numbers_;
  std::shared_ptr<ReservedMemory> reserved_;  ///< nullptr: allocated at once
  Tensor pages_;
};

/// Whether PageMemory allocates its whole capacity on a device, rather than reserving addresses.
bool allocates_at_once(at::Device device);

}  // namespace specdec
