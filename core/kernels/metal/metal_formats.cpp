#include "core/kernels/metal/metal_formats.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/kernels/linear.h"

namespace specdec::mps {

const char* metal_format(WeightFormat format) {
  switch (format) {
    case WeightFormat::kFloat32:
      return "float32";
    case WeightFormat::kBFloat16:
      return "bfloat16";
    case WeightFormat::kFloat16:
      return "float16";
    case WeightFormat::kInt8:
      return "q8_0";
    case WeightFormat::kQ40:
      return "q4_0";
    case WeightFormat::kQ41:
      return "q4_1";
    case WeightFormat::kQ50:
      return "q5_0";
    case WeightFormat::kQ51:
      return "q5_1";
    case WeightFormat::kQ4K:
      return "q4_k";
    case WeightFormat::kQ5K:
      return "q5_k";
    case WeightFormat::kQ6K:
      return "q6_k";
    default:
      break;
  }
  throw Error(fmt::format("Metal: no kernel reads {} weights; use device: cpu, or dtype: float32",
                          format_name(format)));
}

bool metal_has(KvFormat format) {
  return format < KvFormat::kQ3 || format == KvFormat::kHierarchical;
}

}  // namespace specdec::mps
