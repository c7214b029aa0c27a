#include "core/kernels/cuda/cuda_copy_queue.h"

#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <deque>
#include <mutex>
#include <new>
#include <utility>

#include "core/error.h"
#include "core/kernels/cuda/copies.h"
#include "core/kernels/cuda/graphs.h"

namespace specdec {
namespace {

constexpr int64_t kPinnedAlignment = 4096;
constexpr int64_t kDeviceAlignment = 256;

template <class What>
void check_copies(int error, const What& what) {
  if (error != 0) {
    throw Error(fmt::format("CUDA: {} failed with {} ({})", what(),
                            cuda::specdec_cuda_error_name(error), error));
  }
}

void check_copies(int error, const char* what) {
  check_copies(error, [what] { return what; });
}

/// What is made by one function and destroyed by another, on a device.
class Handle {
 public:
  Handle(at::Device device, int (*create)(void**), int (*destroy)(void*), const char* what)
      : device_(device), destroy_(destroy) {
    const c10::OptionalDeviceGuard guard(device_);
    check_copies(create(&handle_), what);
  }
  ~Handle() {
    const c10::OptionalDeviceGuard guard(device_);
    destroy_(handle_);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  void* get() const { return handle_; }

 private:
  at::Device device_;
  int (*destroy_)(void*);
  void* handle_ = nullptr;
};

std::shared_ptr<Handle> make_event(at::Device device) {
  return std::make_shared<Handle>(device, cuda::specdec_cuda_create_event,
                                  cuda::specdec_cuda_destroy_event, "the making of an event");
}

at::Tensor empty_bytes(int64_t bytes, const at::TensorOptions& options, const char* what) {
  try {
    return at::empty({bytes}, options);
  } catch (const c10::Error& error) {
    throw Error(fmt::format("CUDA: there are no {} bytes of {}: {}", bytes, what,
                            error.what_without_backtrace()));
  } catch (const std::bad_alloc&) {  // of another allocator than LibTorch's
    throw Error(fmt::format("CUDA: there are no {} bytes of {}", bytes, what));
  }
}

/// Bytes from the beginning of some memory to the first aligned one.
uintptr_t gap_of(const at::Tensor& memory, int64_t alignment) {
  const auto step = static_cast<uintptr_t>(alignment);
  return (step - reinterpret_cast<uintptr_t>(memory.const_data_ptr()) % step) % step;
}

class CudaCopyQueue final : public CopyQueue {
 public:
  explicit CudaCopyQueue(at::Device device)
      : device_(device),
        stream_(std::make_shared<Handle>(device, cuda::specdec_cuda_create_stream,
                                         cuda::specdec_cuda_destroy_stream,
                                         "the making of a stream")),
        barrier_(make_event(device)) {}

  std::shared_ptr<std::byte> pinned(int64_t bytes) override {
    const auto options = at::TensorOptions(at::kByte).pinned_memory(!device_.is_cpu());
    return allocate(bytes, kPinnedAlignment, options, "pinned memory of the host");
  }
  std::shared_ptr<std::byte> on_device(int64_t bytes) override {
    const auto options = at::TensorOptions(at::kByte).device(device_);
    return allocate(bytes, kDeviceAlignment, options, "memory of the device");
  }

  void copy(void* to, const void* from, int64_t bytes) override {
    const c10::OptionalDeviceGuard guard(device_);
    check_copies(cuda::specdec_cuda_copy(to, from, bytes, stream_->get()),
                 [bytes] { return fmt::format("a copy of {} bytes", bytes); });
  }

  void wait_for_ops() override { order(nullptr, stream_->get()); }
  void let_ops_wait() override { order(stream_->get(), nullptr); }

  int64_t mark() override {
    const c10::OptionalDeviceGuard guard(device_);
    auto event = make_event(device_);
    const std::lock_guard lock(mutex_);
    check_copies(cuda::specdec_cuda_record_event(event->get(), stream_->get()),
                 "a mark between copies");
    marks_.push_back(std::move(event));
    return first_mark_ + std::ssize(marks_) - 1;
  }

  void wait(int64_t mark) override {
    const std::shared_ptr<Handle> event = event_of(mark);
    if (event == nullptr) {
      return;
    }
    const c10::OptionalDeviceGuard guard(device_);
    check_copies(cuda::specdec_cuda_synchronize_event(event->get()), "a copy");
    const std::lock_guard lock(mutex_);
    for (; first_mark_ <= mark; ++first_mark_) {
      marks_.pop_front();
    }
  }

 private:
  /// Event of a mark; nullptr where somebody has waited for it, or for a later one.
  std::shared_ptr<Handle> event_of(int64_t mark) {
    const std::lock_guard lock(mutex_);
    SPECDEC_CHECK(mark >= 0 && mark < first_mark_ + std::ssize(marks_), "CopyQueue: mark {} of {}",
                  mark, first_mark_ + std::ssize(marks_));
    return mark < first_mark_ ? nullptr : marks_[static_cast<size_t>(mark - first_mark_)];
  }

  /// What is queued on `second` from now on waits for what is on `first`.
  void order(void* first, void* second) {
    const c10::OptionalDeviceGuard guard(device_);
    const std::lock_guard lock(mutex_);
    check_copies(cuda::specdec_cuda_record_event(barrier_->get(), first), "an event");
    check_copies(cuda::specdec_cuda_wait_for_event(second, barrier_->get()),
                 "the wait of a stream");
  }

  std::shared_ptr<std::byte> allocate(int64_t bytes, int64_t alignment,
                                      const at::TensorOptions& options, const char* what) {
    SPECDEC_CHECK(bytes >= 0, "CopyQueue: {} bytes of {}", bytes, what);
    at::Tensor memory = empty_bytes(bytes, options, what);
    if (gap_of(memory, alignment) > 0) {  // LibTorch's on a GPU begin at a page, or at 512 bytes
      memory = empty_bytes(bytes + alignment, options, what);
    }
    wait_for_ops();  // they may still use what they gave back
    auto* first = memory.mutable_data_ptr<uint8_t>() + gap_of(memory, alignment);
    const auto give_back = [memory, stream = stream_, device = device_](std::byte*) mutable {
      const c10::OptionalDeviceGuard guard(device);
      cuda::specdec_cuda_synchronize(stream->get());
      memory.reset();
    };
    return {reinterpret_cast<std::byte*>(first), give_back};
  }

  const at::Device device_;
  const std::shared_ptr<Handle> stream_;
  const std::shared_ptr<Handle> barrier_;
  std::mutex mutex_;                           // of all below, and the barrier
  std::deque<std::shared_ptr<Handle>> marks_;  ///< from first_mark_ on
  int64_t first_mark_ = 0;                     ///< that nobody has waited for
};

}  // namespace

std::shared_ptr<CopyQueue> cuda_copy_queue(at::Device device) {
  return std::make_shared<CudaCopyQueue>(device);
}

}  // namespace specdec
