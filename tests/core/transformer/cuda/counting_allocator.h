#pragma once
#include <c10/core/CPUAllocator.h>

#include <cstddef>
#include <cstdint>

namespace specdec {

/// Counts the memory that tensors of the CPU take while it lives.
class CountingAllocator final : public c10::Allocator {
 public:
  CountingAllocator() : own_(c10::GetCPUAllocator()) { c10::SetCPUAllocator(this, kPriority); }
  ~CountingAllocator() override { c10::SetCPUAllocator(own_, kPriority); }
  CountingAllocator(const CountingAllocator&) = delete;
  CountingAllocator& operator=(const CountingAllocator&) = delete;

  c10::DataPtr allocate(size_t bytes) override {
    ++count_;
    return own_->allocate(bytes);
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    own_->copy_data(to, from, bytes);
  }
  int64_t count() const { return count_; }

 private:
  static constexpr uint8_t kPriority = 200;  // above that of memory that a GPU reads
  c10::Allocator* own_;
  int64_t count_ = 0;
};

}  // namespace specdec
