#pragma once
// A SIMD group is a warp of the emulation.

namespace metal {

/// What a lane passes.
template <class T>
T simd_shuffle(T number, ushort lane) {
  return as_type<T>(static_cast<uint32_t>(
      specdec::cuda::emulation::exchange("simd_shuffle", as_type<uint32_t>(number), lane)));
}

/// What the lane whose index differs in the bits of `mask` passes.
template <class T>
T simd_shuffle_xor(T number, ushort mask) {
  const auto lane = static_cast<ushort>(specdec::cuda::emulation::threadIdx.x % 32U);
  return simd_shuffle(number, static_cast<ushort>(lane ^ mask));
}

template <class T>
T simd_max(T number) {
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    const T other = simd_shuffle_xor(number, static_cast<ushort>(lanes));
    number = other > number ? other : number;
  }
  return number;
}

template <class T>
T simd_min(T number) {
  return -simd_max(-number);
}

inline bool simd_any(bool predicate) { return specdec::cuda::emulation::ballot(predicate) != 0; }

}  // namespace metal
