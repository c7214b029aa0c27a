#pragma once
// What C++17, CUDA and Metal spell differently. The headers of this folder are compiled as all
// three: no exceptions, no standard library but integers, numbers passed by value, and pointers as
// template parameters, since Metal gives each an address space.
#if defined(__METAL_VERSION__)
#include <metal_stdlib>
#define SPECDEC_DEVICE inline
#define SPECDEC_CONSTANT constant constexpr
#else
#define SPECDEC_CONSTANT constexpr
#include <math.h>
#include <stdint.h>
#include <string.h>
#if defined(__CUDACC__)
#define SPECDEC_DEVICE __host__ __device__ inline
#else
#define SPECDEC_DEVICE inline
#endif
#endif

#if !defined(__METAL_VERSION__)
namespace specdec {
namespace portable {}
/// What C++ and CUDA call these functions' namespace: in Metal, `device` is a keyword.
namespace device = portable;
}  // namespace specdec
#endif

namespace specdec::portable {

#if defined(__METAL_VERSION__)
SPECDEC_DEVICE float fused(float a, float b, float c) { return metal::fma(a, b, c); }
SPECDEC_DEVICE float exponential(float x) { return metal::precise::exp(x); }
SPECDEC_DEVICE float hyperbolic_tangent(float x) { return metal::precise::tanh(x); }
SPECDEC_DEVICE float square_root(float x) { return metal::precise::sqrt(x); }
SPECDEC_DEVICE float nearest_integer(float x) { return metal::rint(x); }
SPECDEC_DEVICE float float_of(uint32_t bits) { return as_type<float>(bits); }
SPECDEC_DEVICE uint32_t bits_of(float number) { return as_type<uint32_t>(number); }
#else
/// a * b + c, rounded once.
SPECDEC_DEVICE float fused(float a, float b, float c) { return fmaf(a, b, c); }
SPECDEC_DEVICE float exponential(float x) { return expf(x); }
SPECDEC_DEVICE float hyperbolic_tangent(float x) { return tanhf(x); }
SPECDEC_DEVICE float square_root(float x) { return sqrtf(x); }
/// Ties to even.
SPECDEC_DEVICE float nearest_integer(float x) { return rintf(x); }
/// The float32 of these bits.
SPECDEC_DEVICE float float_of(uint32_t bits) {
  float number = 0.0F;
  memcpy(&number, &bits, sizeof(number));
  return number;
}
SPECDEC_DEVICE uint32_t bits_of(float number) {
  uint32_t bits = 0;
  memcpy(&bits, &number, sizeof(bits));
  return bits;
}
#endif

/// a * b, rounded before anything is added to it: compilers contract a * b + c otherwise. Metal's
/// are told not to, where they know how.
SPECDEC_DEVICE float rounded_product(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

SPECDEC_DEVICE float magnitude_of(float number) { return float_of(bits_of(number) & 0x7FFFFFFFU); }
SPECDEC_DEVICE float infinity() { return float_of(0x7F800000U); }
SPECDEC_DEVICE float minus_infinity() { return float_of(0xFF800000U); }

}  // namespace specdec::portable
