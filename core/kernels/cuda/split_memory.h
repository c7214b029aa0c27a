#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "core/kernels/cuda/growing_memory.h"

namespace specdec::cuda {

/// Rows that memory for split inputs holds. The tensor is kept, so that its memory becomes no other
/// one's; undefined = the memory holds nothing.
struct SplitRows {
  at::Tensor tensor;
  int64_t rows = 0, in = 0;
};

/// Memory for inputs that are split for tensor cores, by the op that makes them or by the product.
/// What it holds means nothing but to the product that comes next.
class SplitMemory {
 public:
  explicit SplitMemory(at::Device device) : memory_(device) {}

  /// Whether reserve() leaves it where it is.
  bool has_room(int32_t rows, int32_t in) const;
  /// Memory for [rows, in], split, at a multiple of 16.
  float* reserve(int32_t rows, int32_t in);
  /// Whether it holds those of `input` [rows, in].
  bool holds(const at::Tensor& input, int64_t rows, int64_t in) const;
  /// Says that it holds those of `input` now.
  void keep(const at::Tensor& input, int64_t rows, int64_t in) { *held_ = {input, rows, in}; }
  /// Says that it holds nothing.
  void forget() { *held_ = {}; }

  /// What it holds, for graphs, which empty it.
  const std::shared_ptr<SplitRows>& held() const { return held_; }
  const at::Tensor& tensor() const { return memory_.tensor(); }

 private:
  GrowingMemory memory_;
  std::shared_ptr<SplitRows> held_ = std::make_shared<SplitRows>();
};

}  // namespace specdec::cuda
