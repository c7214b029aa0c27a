#pragma once
#include <optional>
#include <string>

#include "core/formats/safetensors.h"

namespace specdec {

/// Where a checkpoint has the tensors that the hub calls "model.x", and the others.
struct TensorNames {
  const char* model = "model.";
  const char* other = "";
};

/// The name in a checkpoint of the tensor that a model's own files call so.
std::string full_name(const TensorNames& names, const std::string& name);
/// The names by which a checkpoint has a tensor; nothing where it has none of them.
std::optional<TensorNames> find_names(const TensorFiles& checkpoint, const std::string& name);
/// Whether a name in a checkpoint is that of another part than the decoder: of other inputs, of
/// multi-token-prediction modules, or a buffer.
bool is_of_another_part(const std::string& name);
/// The name of the scales of a matrix of int8 codes.
std::string scales_name(const std::string& name);

}  // namespace specdec
