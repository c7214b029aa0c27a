#include "core/kernels/simd.h"

#include <algorithm>
#include <cstdlib>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "core/error.h"

namespace specdec {
namespace {

#if defined(__x86_64__)
/// Conversions of halves to float32; clang 14's __builtin_cpu_supports does not know them.
bool has_f16c() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

SimdLevel best_level() {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !has_f16c()) {
    return SimdLevel::kBaseline;
  }
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512vl") ||
      !__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512dq")) {
    return SimdLevel::kAvx2;
  }
  return __builtin_cpu_supports("avx512vnni") ? SimdLevel::kAvx512Vnni : SimdLevel::kAvx512;
#else
  return SimdLevel::kBaseline;
#endif
}

SimdLevel level_from_environment() {
  const char* wanted = std::getenv("SPECDEC_SIMD");
  return lowered_simd_level(best_level(), wanted == nullptr ? "" : wanted);
}

ReadAhead choose_read_ahead() {
#if defined(__x86_64__)
  if (simd_level() >= SimdLevel::kAvx512) {
    return __builtin_cpu_is("intel") != 0 ? ReadAhead{.numbers = true, .block_rows = 1}
                                          : ReadAhead{.numbers = false, .block_rows = 4};
  }
#endif
  return {};
}

}  // namespace

SimdLevel simd_level() {
  static const SimdLevel level = level_from_environment();
  return level;
}

const ReadAhead& read_ahead_choice() {
  static const ReadAhead choice = choose_read_ahead();
  return choice;
}

SimdLevel lowered_simd_level(SimdLevel best, std::string_view wanted) {
  if (wanted.empty()) {
    return best;
  }
  for (const SimdLevel level :
       {SimdLevel::kBaseline, SimdLevel::kAvx2, SimdLevel::kAvx512, SimdLevel::kAvx512Vnni}) {
    if (wanted == simd_level_name(level)) {
      return std::min(level, best);
    }
  }
  throw Error(fmt::format(
      "SPECDEC_SIMD: unknown level '{}'; known: baseline, avx2, avx512, avx512vnni", wanted));
}

const char* simd_level_name(SimdLevel level) {
  switch (level) {
    case SimdLevel::kAvx512Vnni:
      return "avx512vnni";
    case SimdLevel::kAvx512:
      return "avx512";
    case SimdLevel::kAvx2:
      return "avx2";
    case SimdLevel::kBaseline:
      break;
  }
  return "baseline";
}

}  // namespace specdec
