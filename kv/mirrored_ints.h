#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace specdec {

using at::Tensor;

/// int32 numbers that the host writes, in host(), and kernels read, in device(). Where kernels run
/// elsewhere the two are blocks of the same size, and upload copies one to the other at once; else
/// they are the same tensor and nothing is copied.
class MirroredInts {
 public:
  /// `twice`: two blocks on the CPU too.
  explicit MirroredInts(at::Device device, bool twice = false) : place_(device), twice_(twice) {}

  /// New blocks [numbers] of zeros.
  void allocate(int64_t numbers);
  /// Lets the device see so many numbers from `begin` on. The host may write at once.
  void upload(int64_t numbers, int64_t begin = 0) const;

  bool is_twice() const { return twice_ || !place_.is_cpu(); }
  int64_t size() const { return host_.defined() ? host_.size(0) : 0; }
  /// Undefined before the first allocate.
  const Tensor& host() const { return host_; }
  const Tensor& device() const { return device_; }

 private:
  at::Device place_;
  bool twice_;
  Tensor host_;
  Tensor device_;
};

}  // namespace specdec
