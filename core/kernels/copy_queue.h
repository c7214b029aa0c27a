#pragma once
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace specdec {

/// Copies between the host's pinned memory and a device's, in order, beside what the device
/// computes (a stream of its own). A call returns before its copy is done. Calls may come from
/// several threads; each throws Error where the device fails.
class CopyQueue {
 public:
  virtual ~CopyQueue() = default;

  /// Memory of the host that copies go from and to, aligned to 4096 bytes. Throws Error where
  /// there is none left.
  virtual std::shared_ptr<std::byte> pinned(int64_t bytes) = 0;
  /// Memory of the device at a fixed place, aligned to 256 bytes. Throws Error where there is none
  /// left, saying how much was needed.
  virtual std::shared_ptr<std::byte> on_device(int64_t bytes) = 0;

  /// One of both is pinned, the other the device's.
  virtual void copy(void* to, const void* from, int64_t bytes) = 0;
  /// Copies of later calls begin when all ops that were called before are done.
  virtual void wait_for_ops() = 0;
  /// Ops that are called later begin when all copies that were queued before are done.
  virtual void let_ops_wait() = 0;
  /// A point in the queue: all copies so far lie before it.
  virtual int64_t mark() = 0;
  /// Returns when all copies before the mark are done.
  virtual void wait(int64_t mark) = 0;
};

/// The queue of a GPU; nullptr for a device that computes in the host's memory. Throws Error for a
/// device that this build has none for.
std::shared_ptr<CopyQueue> device_copies(at::Device device);

}  // namespace specdec
