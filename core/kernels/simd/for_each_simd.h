// Compiles SPECDEC_SIMD_BODY (a header without include guard or includes) once for each instruction
// set, each in a namespace of its own: the vectors of core/kernels/simd/vector_simd.h are as wide
// as its registers. Function attributes cannot do this: GCC splits a vector that is wider than the
// function's registers before it inlines. Nor can ifunc dispatch, which runs before
// AddressSanitizer is ready. Clang ignores GCC's pragmas and says so only as an unknown pragma,
// hence its own.
// With SPECDEC_SIMD_DOT_PRODUCTS AVX-512 has dot products of bytes (VNNI): processors without them
// take AVX2's, since these bodies are large and such processors few.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "core/kernels/simd.h"

// Vectors are passed only between inlined functions of one namespace, so no ABI is at stake.
#pragma GCC diagnostic ignored "-Wpsabi"

#if defined(__x86_64__)
#if defined(SPECDEC_SIMD_DOT_PRODUCTS)
#if defined(__clang__)
#pragma clang attribute push(                                                          \
    __attribute__((target("avx2,fma,avx512f,avx512vl,avx512bw,avx512dq,avx512vnni"))), \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,avx512f,avx512vl,avx512bw,avx512dq,avx512vnni")
#endif
namespace specdec::simd_avx512vnni {
constexpr int kVectorBytes = 64;
constexpr bool kDotProducts = true;
#include "core/kernels/simd/vector_simd.h"
#include SPECDEC_SIMD_BODY
}  // namespace specdec::simd_avx512vnni
#else
#if defined(__clang__)
#pragma clang attribute push( \
    __attribute__((target("avx2,fma,avx512f,avx512vl,avx512bw,avx512dq"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,avx512f,avx512vl,avx512bw,avx512dq")
#endif
namespace specdec::simd_avx512 {
constexpr int kVectorBytes = 64;
constexpr bool kDotProducts = false;
#include "core/kernels/simd/vector_simd.h"
#include SPECDEC_SIMD_BODY
}  // namespace specdec::simd_avx512
#endif
#if defined(__clang__)
#pragma clang attribute pop
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif
namespace specdec::simd_avx2 {
constexpr int kVectorBytes = 32;
constexpr bool kDotProducts = false;
#include "core/kernels/simd/vector_simd.h"
#include SPECDEC_SIMD_BODY
}  // namespace specdec::simd_avx2
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

namespace specdec::simd_base {
constexpr int kVectorBytes = 16;
constexpr bool kDotProducts = false;
#include "core/kernels/simd/vector_simd.h"
#include SPECDEC_SIMD_BODY
}  // namespace specdec::simd_base
