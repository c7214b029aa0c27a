#pragma once
#include <string>
#include <vector>

#include "core/transformer/weights.h"

namespace specdec {

/// A linear module of the hub's model: outputs of a matrix, which several share where they are
/// fused (q, k and v; gate and up).
struct LoraModule {
  std::string name;                ///< "model.layers.3.self_attn.q_proj", "lm_head"
  int64_t layer = -1;              ///< -1 = of none
  const Linear* matrix = nullptr;  ///< nullptr: nothing reads it (keys of layers that share them)
  int64_t first = 0, rows = 0;     ///< its outputs
};

/// The modules of a model that adapters can be applied to; borrows its matrices. Experts are none,
/// nor are AltUp's small matrices.
std::vector<LoraModule> lora_modules(const TransformerWeights& weights);

/// The name of lora_modules for a path in the hub's model, which may lie in a wrapper for other
/// inputs ("model.language_model.layers.3. ...").
std::string lora_module_name(const std::string& path);

/// Whether a path belongs to parts that a text model does not have (vision, audio).
bool is_other_input(const std::string& path);

}  // namespace specdec
