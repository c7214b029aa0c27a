#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/families/description.h"

namespace specdec {

/// A tensor that a model of some description has.
struct ModelTensor {
  std::string name;  ///< of the hub
  std::vector<int64_t> shape;
  bool is_norm = false;
  int64_t head_dim = 0;  ///< of the rows of q and k, which rotate; 0 = others
};

/// All tensors of a model, in the order of the forward; "lm_head.weight" last where the head is not
/// tied.
std::vector<ModelTensor> model_tensors(const ModelDescription& model);

}  // namespace specdec
