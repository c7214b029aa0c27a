#pragma once
// A SIMD group is a warp of the emulation.

namespace metal {

/// What the lane whose index differs in the bits of `mask` passes.
template <class T>
T simd_shuffle_xor(T number, ushort mask) {
  const auto lane = static_cast<int>(specdec::cuda::emulation::threadIdx.x % 32U);
  return as_type<T>(static_cast<uint32_t>(specdec::cuda::emulation::exchange(
      "simd_shuffle_xor", as_type<uint32_t>(number), lane ^ mask)));
}

inline float simd_max(float number) {
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    const float other = simd_shuffle_xor(number, static_cast<ushort>(lanes));
    number = other > number ? other : number;
  }
  return number;
}

}  // namespace metal
