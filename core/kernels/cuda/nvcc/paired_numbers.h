#pragma once
// Numbers of 16 bits, two of them a word, by the instructions that a GPU has for them; and loads of
// what is read once. See core/kernels/cuda/emulation/paired_numbers.h.
#include <cstdint>

namespace specdec::cuda {

/// IEEE half precision to float32, exactly.
__device__ inline float widen_half(uint32_t half) {
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(static_cast<uint16_t>(half)));
  return wide;
}

/// Two numbers rounded to bfloat16, ties to even, the first one in the lower half.
__device__ inline uint32_t pair_of_bfloat16(float first, float second) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}

/// a * b + c of bfloat16 pairs, where these are bfloat16 numbers.
__device__ inline uint32_t fused_pairs(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t sum;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
  return sum;
}

/// What lies at an address, which is aligned as a T has to be.
template <class T>
__device__ inline T load_aligned(const void* from) {
  return *static_cast<const T*>(from);
}

/// Loads of what no other block reads: it leaves the first cache to what all of them do.
__device__ inline void load_once(const void* from, uint32_t (&words)[4]) {
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "l"(from));
}

}  // namespace specdec::cuda
