#pragma once
#include <map>
#include <string>

#include "core/formats/quantised/compressed_matrix.h"

namespace specdec {

class JsonKeys;

// Matrices as torchao quantises them: tensors of several tensors (quantization_config with the
// method "torchao"), in safetensors with a JSON text each in the header, MODULE.weight -> {"_type":
// "Int4Tensor", "_data": {"block_size": [1, 128], ...}, "_tensor_data_names": ["qdata", "scale",
// ...]}, of which the parts are MODULE._weight_qdata, MODULE._weight_scale, ...
// (torchao.prototype.safetensors); in pickled files the same (core/formats/pickle/pickle_object.h),
// also of older classes: AffineQuantizedTensor, whose layout is the class of its tensor_impl, and
// LinearActivationQuantizedTensor around it. Values are those of torchao's dequantize() in float32:
// (code - zero point) * scale; of Int4Tensor and of tiles (code - 8) * scale + zero point; of a
// matrix whose inputs are scaled (act_pre_scale, AWQ) these times the input's scale.

/// Whether codes are stored so, or the schemes are those of the files.
bool is_torchao(const CompressionScheme& scheme);
/// What a quantization_config of torchao says, which is that its files say the rest.
CompressionSchemes read_torchao(const JsonKeys& keys);
/// Whether the config's own runs round activations.
bool rounds_torchao_activations(const JsonKeys& keys);

/// The matrices that the files' metadata speaks of, by name.
struct TorchaoMatrices {
  std::map<std::string, CompressedMatrix> read;
  /// Why others are not read, naming folder and tensor: classes and layouts that are not supported,
  /// missing parts and unknown ones, shapes and types that do not fit, zero points that are no
  /// codes.
  std::map<std::string, std::string> refused;
  bool rounds_activations = false;  ///< runs of one of them do
};
TorchaoMatrices describe_torchao(const TensorFiles& files);
/// The matrix that a tensor is a part of; "" = of none.
std::string torchao_matrix_of(const std::string& part, const TorchaoMatrices& matrices);

}  // namespace specdec
