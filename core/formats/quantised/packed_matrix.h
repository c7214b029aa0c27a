#pragma once
#include <string>

#include "core/formats/quantised/compressed_matrix.h"

namespace specdec {

/// The matrix NAME of compressed-tensors, fp8 or modelopt whose codes are in a tensor, or the stack
/// of them, with what stands beside them: NAME_scale or NAME_scale_inv, and, as the scheme says,
/// NAME_zero_point, NAME_shape and the scale of the whole matrix. Throws WeightsError naming folder
/// and tensor: missing ones, shapes and types that do not fit, groups that do not follow one
/// another (NAME_g_idx).
CompressedMatrix describe_packed(const TensorFiles& files, const TensorEntry& codes,
                                 const std::string& name, const CompressionScheme& scheme);

}  // namespace specdec
