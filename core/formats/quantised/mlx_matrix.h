#pragma once
#include <string>

#include "core/formats/quantised/compressed_matrix.h"

namespace specdec {

class JsonKeys;

// Matrices as MLX quantises them (mlx-lm, mlx-vlm): NAME.weight are the codes of a row's inputs,
// one after the other in the bits of 32-bit words, the first one lowest; NAME.scales [rows, groups]
// and NAME.biases belong to groups of inputs, and a weight is code * scale + bias. In the modes
// mxfp4, nvfp4 and mxfp8 codes are floats of 4 or 8 bits (E2M1, E4M3), in mxfp4 and mxfp8 scales
// are powers of two, in nvfp4 E4M3 numbers of 16 inputs, without biases. config.json says groups
// and bits, of single modules too, under "quantization" (and again under "quantization_config",
// which has no quant_method then).

/// Whether a config.json speaks of such matrices.
bool is_mlx_config(const JsonKeys& top);
/// What MLX's object `quantization` says. Throws WeightsError naming the key: modes, bits and sizes
/// of groups that are not supported.
CompressionSchemes read_mlx(const JsonKeys& keys);

/// Whether codes are stored so.
bool is_mlx(const CompressionScheme& scheme);

/// The matrix of a module, or the stack of them, whose codes are in a tensor, with what stands
/// beside them. Throws WeightsError naming folder and tensor: missing ones, shapes and types that
/// do not fit.
CompressedMatrix describe_mlx(const TensorFiles& files, const TensorEntry& codes,
                              const std::string& module, const CompressionScheme& scheme);

}  // namespace specdec
