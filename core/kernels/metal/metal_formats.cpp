#include "core/kernels/metal/metal_formats.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/formats/quantised/codebook_blocks.h"
#include "core/kernels/linear.h"
#include "core/kernels/stored_rows.h"

namespace specdec::mps {

const char* metal_format(WeightFormat format) {
  if (has_codebook(format)) {
    return codebook_scale_inputs(stored_dtype(format)) == 16 ? "codebook_16" : "codebook_32";
  }
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
    case WeightFormat::kQ2K:
      return "q2_k";
    case WeightFormat::kQ3K:
      return "q3_k";
    case WeightFormat::kQ4K:
      return "q4_k";
    case WeightFormat::kQ5K:
      return "q5_k";
    case WeightFormat::kQ6K:
      return "q6_k";
    case WeightFormat::kFp8x128:
      return "fp8_128";
    case WeightFormat::kFp8x32:
      return "fp8_32";
    case WeightFormat::kInt4x128:
      return "int4_128";
    case WeightFormat::kInt4x32:
      return "int4_32";
    case WeightFormat::kAffine8x64:
      return "affine8_64";
    case WeightFormat::kAffine4x32:
      return "affine4_32";
    default:
      break;
  }
  throw Error(fmt::format("Metal: no kernel reads {} weights; use device: cpu, or dtype: float32",
                          format_name(format)));
}

CodebookNumbers codebook_numbers(WeightFormat format) {
  CodebookNumbers found{};
  if (has_codebook(format)) {
    const Codebook& numbers = codebook_of(stored_dtype(format));
    std::copy(numbers.begin(), numbers.end(), found.numbers);
  }
  return found;
}

bool metal_has(KvFormat format) {
  return format < KvFormat::kQ3 || format == KvFormat::kHierarchical;
}

}  // namespace specdec::mps
