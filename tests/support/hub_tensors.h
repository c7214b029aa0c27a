#pragma once
#include <map>
#include <string>

#include "core/transformer/weights.h"

namespace specdec {

using HubTensors = std::map<std::string, at::Tensor>;

/// The tensors of a Gemma 3n or 4 as the hub's files name them, the text model's under `root`.
HubTensors hub_tensors(const TransformerTensors& model, const std::string& root);

}  // namespace specdec
