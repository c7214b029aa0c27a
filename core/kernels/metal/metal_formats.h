#pragma once
#include "core/kernels/kv_format.h"
#include "core/kernels/metal/sizes.h"
#include "core/kernels/panels.h"

namespace specdec::mps {

/// What the kernels that read a format are called: "q8_0" in linear_q8_0; all formats with a
/// codebook share two. Throws Error for a format that none reads.
const char* metal_format(WeightFormat format);
/// What these kernels get beside the weights.
CodebookNumbers codebook_numbers(WeightFormat format);

/// Whether kernels read and write pages of a format.
bool metal_has(KvFormat format);

}  // namespace specdec::mps
