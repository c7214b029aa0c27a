#pragma once
// The same functions as core/kernels/cuda/nvcc/paired_numbers.h, compiled as C++.
#include <cstdint>
#include <cstring>

#include "core/kernels/cuda/emulation/emulation.h"
#include "core/kernels/device/numbers.h"

namespace specdec::cuda {

inline float widen_half(uint32_t half) { return device::widen_half(half); }

inline uint32_t pair_of_bfloat16(float first, float second) {
  const uint32_t low = device::narrow(first, device::Bfloat16Bits{}).bits;
  const uint32_t high = device::narrow(second, device::Bfloat16Bits{}).bits;
  return low | high << 16U;
}

inline uint32_t fused_pairs(uint32_t a, uint32_t b, uint32_t c) {
  const auto sum = [&](uint32_t of_a, uint32_t of_b, uint32_t of_c) {
    return static_cast<float>(double{device::float_of(of_a)} * device::float_of(of_b) +
                              device::float_of(of_c));
  };
  return pair_of_bfloat16(sum(a << 16U, b << 16U, c << 16U),
                          sum(a & 0xFFFF0000U, b & 0xFFFF0000U, c & 0xFFFF0000U));
}

template <class T>
T load_aligned(const void* from) {
  emulation::check_aligned(from, alignof(T));
  return *static_cast<const T*>(from);
}

inline void load_once(const void* from, uint32_t (&words)[4]) {
  emulation::check_aligned(from, sizeof words);
  std::memcpy(words, from, sizeof words);
}

}  // namespace specdec::cuda
