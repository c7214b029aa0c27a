#pragma once
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <cstdint>

namespace specdec {

/// Counts the bytes of tensors that this thread allocates.
class LiveBytes final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void* /*place*/, int64_t size, size_t /*allocated*/, size_t /*reserved*/,
                         c10::Device /*device*/) override {
    live_ += size;
    most_ = std::max(most_, live_);
  }
  bool memoryProfilingEnabled() const override { return true; }

  int64_t live() const { return live_; }
  int64_t most() const { return most_; }
  void forget_most() { most_ = live_; }

 private:
  int64_t live_ = 0;
  int64_t most_ = 0;
};

}  // namespace specdec
