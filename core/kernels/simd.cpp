#include "core/kernels/simd.h"

#include <cstdlib>
#include <string_view>

#include "core/error.h"

namespace specdec {
namespace {

SimdLevel best_level() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq")) {
    return SimdLevel::kAvx512;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return SimdLevel::kAvx2;
  }
#endif
  return SimdLevel::kBaseline;
}

SimdLevel chosen_level() {
  const SimdLevel best = best_level();
  const char* wanted = std::getenv("SPECDEC_SIMD");
  if (wanted == nullptr || *wanted == '\0') {
    return best;
  }
  for (const SimdLevel level : {SimdLevel::kBaseline, SimdLevel::kAvx2, SimdLevel::kAvx512}) {
    if (std::string_view(wanted) == simd_level_name(level)) {
      if (level > best) {
        throw Error(fmt::format("SPECDEC_SIMD={}: this processor has only {}", wanted,
                                simd_level_name(best)));
      }
      return level;
    }
  }
  throw Error(fmt::format("SPECDEC_SIMD={}: unknown; known: baseline, avx2, avx512", wanted));
}

}  // namespace

SimdLevel simd_level() {
  static const SimdLevel kLevel = chosen_level();
  return kLevel;
}

const char* simd_level_name(SimdLevel level) {
  switch (level) {
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
