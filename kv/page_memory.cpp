#include "kv/page_memory.h"

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <new>
#include <numeric>
#include <span>
#include <utility>

#include "core/error.h"

namespace specdec {
namespace {

int64_t number_bytes(std::span<const int64_t> sizes, const at::TensorOptions& numbers) {
  return std::accumulate(sizes.begin(), sizes.end(),
                         static_cast<int64_t>(numbers.dtype().itemsize()), std::multiplies<>());
}

}  // namespace

ReservedMemory::ReservedMemory(int64_t bytes)
    : data_(nullptr), bytes_(std::max<int64_t>(bytes, 1)) {
  // Without access the system sets no memory aside, whatever it does of memory that is writable.
  data_ = mmap(nullptr, static_cast<size_t>(bytes_), PROT_NONE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data_ == MAP_FAILED) {
    throw Error(
        fmt::format("cannot reserve {} bytes of address space for keys and values, or states: set "
                    "model.cache.max_pages (state_megabytes where layers are recurrent), a smaller "
                    "model.max_length, or raise the limit (ulimit -v)",
                    bytes_));
  }
}

ReservedMemory::~ReservedMemory() { munmap(data_, static_cast<size_t>(bytes_)); }

void ReservedMemory::use(int64_t bytes) {
  SPECDEC_CHECK(bytes >= 0 && bytes <= bytes_, "{} bytes of {} reserved ones", bytes, bytes_);
  if (mprotect(data_, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE) != 0) {
    throw std::bad_alloc();
  }
}

void ReservedMemory::touch(int64_t bytes) {
  SPECDEC_CHECK(bytes >= 0 && bytes <= bytes_, "{} bytes of {} reserved ones", bytes, bytes_);
  volatile auto* data = static_cast<char*>(data_);
  const int64_t step = sysconf(_SC_PAGESIZE);
  for (int64_t at = 0; at < bytes; at += step) {
    data[at] = data[at];  // a page that is only read is the system's shared page of zeros
  }
}

PageMemory::PageMemory(std::vector<int64_t> page_sizes, const at::TensorOptions& numbers,
                       int64_t capacity)
    : sizes_(std::move(page_sizes)), numbers_(numbers) {
  sizes_.insert(sizes_.begin(), capacity);
  if (allocates_at_once(numbers_.device())) {
    pages_ = at::empty(sizes_, numbers_);  // not zeroed: no slot is read before it is written
    return;
  }
  reserved_ = std::make_shared<ReservedMemory>(number_bytes(sizes_, numbers_));
}

void PageMemory::reserve(int64_t pages) {
  SPECDEC_CHECK(pages <= sizes_.front(), "{} pages of {}", pages, sizes_.front());
  if (reserved_ == nullptr || (pages_.defined() && pages <= pages_.size(0))) {
    return;
  }
  std::vector<int64_t> sizes = sizes_;
  sizes.front() = pages;
  reserved_->use(number_bytes(sizes, numbers_));
  // Tensors that were handed out keep the memory alive.
  const auto keep_alive = [memory = reserved_](void* /*data*/) {};
  pages_ = at::from_blob(reserved_->data(), sizes, keep_alive, numbers_);
}

void PageMemory::touch(int64_t pages) {
  SPECDEC_CHECK(pages_.defined() && pages <= pages_.size(0), "{} pages are touched too early",
                pages);
  if (reserved_ != nullptr) {
    std::vector<int64_t> sizes = sizes_;
    sizes.front() = pages;
    reserved_->touch(number_bytes(sizes, numbers_));
  }
}

bool allocates_at_once(at::Device device) {
  return !device.is_cpu() || c10::GetCPUAllocator() != c10::GetDefaultCPUAllocator();
}

}  // namespace specdec
