#pragma once
#include <string>

namespace specdec {

class JsonKeys;

/// PyTorch's name of the type that a config.json says its tensors have, by `dtype`, else by
/// `torch_dtype`, as it was called before; "" = not said, empty, or said for each part of the
/// model. What the tensors have counts, not this. Throws WeightsError naming the key for a name
/// that PyTorch does not have, which transformers does not load either.
std::string torch_dtype(const JsonKeys& keys);

}  // namespace specdec
