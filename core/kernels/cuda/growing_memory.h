#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace specdec::cuda {

/// Memory of a device for float32 numbers that grows, to at least twice its size, and then loses
/// what it held.
class GrowingMemory {
 public:
  explicit GrowingMemory(at::Device device) : device_(device) {}

  /// Undefined before anything was reserved.
  const at::Tensor& tensor() const { return tensor_; }
  /// Whether reserve() of so many numbers leaves it where it is.
  bool has_room(int64_t numbers) const { return tensor_.defined() && tensor_.numel() >= numbers; }
  float* reserve(int64_t numbers);

 private:
  at::Device device_;
  at::Tensor tensor_;
};

}  // namespace specdec::cuda
