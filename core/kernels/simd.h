#pragma once
#include <cstdint>
#include <string_view>

namespace specdec {

/// Instruction sets that the kernels are compiled for, each with all before it; which one runs is
/// decided at run time.
enum class SimdLevel {
  kBaseline,
  kAvx2,
  kAvx512,
  kAvx512Vnni,  ///< AVX-512 with dot products of bytes, which some kernels are compiled for instead
};

/// The best level that this processor has, decided once. The environment variable SPECDEC_SIMD
/// (baseline, avx2, avx512, avx512vnni) lowers it, which makes results comparable between machines:
/// each level sums in its own order. Throws Error for an unknown value.
SimdLevel simd_level();

/// Which products ask for their weights long before they multiply them. The processor's own
/// prefetching is too slow where vectors have fewer than 512 bits, and for a few rows on Intel's
/// with AVX-512; AMD's with AVX-512 are slower when they are asked too early.
struct ReadAhead {
  bool numbers = false;    ///< products of weights that are numbers
  int64_t block_rows = 1;  ///< products of weights in blocks with int8 activations, from so many
                           ///< rows on
};

/// What suits this processor, decided once. Results do not depend on it.
const ReadAhead& read_ahead_choice();

/// The lower of `best` and the level named `wanted`; empty = `best`. Throws Error for an unknown
/// name.
SimdLevel lowered_simd_level(SimdLevel best, std::string_view wanted);

const char* simd_level_name(SimdLevel level);

}  // namespace specdec

#if defined(__x86_64__)
/// Calls function(arguments...) of the namespace compiled for the level that runs; of `widest` from
/// the level `from` on.
#define SPECDEC_SIMD_CALL_FROM(from, widest, function, ...)               \
  do {                                                                    \
    const ::specdec::SimdLevel level_that_runs = ::specdec::simd_level(); \
    if (level_that_runs >= ::specdec::SimdLevel::from) {                  \
      ::specdec::widest::function(__VA_ARGS__);                           \
    } else if (level_that_runs >= ::specdec::SimdLevel::kAvx2) {          \
      ::specdec::simd_avx2::function(__VA_ARGS__);                        \
    } else {                                                              \
      ::specdec::simd_base::function(__VA_ARGS__);                        \
    }                                                                     \
  } while (false)
/// Calls a function whose body is compiled without SPECDEC_SIMD_DOT_PRODUCTS.
#define SPECDEC_SIMD_CALL(function, ...) \
  SPECDEC_SIMD_CALL_FROM(kAvx512, simd_avx512, function, __VA_ARGS__)
/// Calls a function whose body is compiled with SPECDEC_SIMD_DOT_PRODUCTS.
#define SPECDEC_SIMD_DOT_CALL(function, ...) \
  SPECDEC_SIMD_CALL_FROM(kAvx512Vnni, simd_avx512vnni, function, __VA_ARGS__)
#else
#define SPECDEC_SIMD_CALL(function, ...) ::specdec::simd_base::function(__VA_ARGS__)
#define SPECDEC_SIMD_DOT_CALL(function, ...) ::specdec::simd_base::function(__VA_ARGS__)
#endif
