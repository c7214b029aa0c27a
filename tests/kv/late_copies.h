#pragma once
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <mutex>
#include <new>

#include "core/kernels/copy_queue.h"

namespace specdec {

/// Copies within the host's memory, which stands for a device's too, each made as late as it may
/// be: when somebody waits for it. One that could overtake ops fails the test.
class LateCopies final : public CopyQueue {
 public:
  bool ops_wait = true;  ///< false: let_ops_wait() is forgotten

  std::shared_ptr<std::byte> pinned(int64_t bytes) override { return on_device(bytes); }
  std::shared_ptr<std::byte> on_device(int64_t bytes) override {
    constexpr std::align_val_t kAlignment{4096};
    auto* memory = static_cast<std::byte*>(::operator new(static_cast<size_t>(bytes), kAlignment));
    std::memset(memory, 0xFF, static_cast<size_t>(bytes));
    return {memory, [=](std::byte* all) { ::operator delete(all, kAlignment); }};
  }

  void copy(void* to, const void* from, int64_t bytes) override {
    const std::lock_guard lock(mutex_);
    EXPECT_TRUE(waits_for_ops_);
    queued_.push_back({to, from, static_cast<size_t>(bytes)});
  }
  void wait_for_ops() override { waits_for_ops_ = true; }
  void let_ops_wait() override {
    waits_for_ops_ = false;  // some may be called now
    if (ops_wait) {
      wait(mark());
    }
  }
  int64_t mark() override {
    const std::lock_guard lock(mutex_);
    return done_ + std::ssize(queued_);
  }
  void wait(int64_t mark) override {
    const std::lock_guard lock(mutex_);
    for (; done_ < mark; ++done_) {
      std::memcpy(queued_.front().to, queued_.front().from, queued_.front().bytes);
      queued_.pop_front();
    }
  }

 private:
  struct Copy {
    void* to;
    const void* from;
    size_t bytes;
  };

  std::atomic<bool> waits_for_ops_ = false;
  std::mutex mutex_;
  std::deque<Copy> queued_;
  int64_t done_ = 0;
};

}  // namespace specdec
