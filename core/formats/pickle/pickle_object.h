#pragma once
#include <cstddef>
#include <functional>
#include <string>

#include "core/formats/pickle/pickle_value.h"

namespace specdec::pickle {

/// How many bytes of names and descriptions a pickle may make for each of its own: more than torch
/// does by far.
inline constexpr size_t kMostFlattened = 32;

/// What the tensors of a pickle are flattened into.
struct Flattening {
  std::function<void(const PickledTensor&, const std::string&)> add;
  const std::string& where;
  size_t bytes;  ///< that all names and descriptions together may still take
};

/// Calls add(tensor, name) for the tensors that a tensor of torchao is made of and returns a JSON
/// text of its other attributes, both as torchao.prototype.safetensors writes them: those of
/// MODULE.weight are MODULE._weight_qdata, MODULE._weight_scale, ...; the text is {"_type": class,
/// "_data": {attribute: value, ...}, "_tensor_data_names": ["qdata", "scale", ...]}. Where one of
/// them is again such a tensor, its text is that attribute and its parts have its name in theirs
/// (_weight_tensor_impl_scale). "shape" is always there. What is no number, text, list of these,
/// type or enum is left out, as are texts of more than 256 bytes. Throws WeightsError naming
/// `where`: objects within one another more deeply than torchao makes them, longer names, and more
/// bytes than there are.
std::string flatten(const std::string& name, const Object& object, Flattening& into);

}  // namespace specdec::pickle
