#pragma once
#include <optional>
#include <string>

#include "core/families/description.h"

namespace specdec {

/// A part of two models' plans that is not the same, so that their logits are not either.
struct PlanDifference {
  std::string key;  ///< of a config.json, and the layer: "attn_logit_softcapping of layer 0"
  std::string wanted;
  std::string found;
};

/// The first one. Numbers are the same that differ by no more than their rounding to float32; how
/// norms are stored is not compared.
std::optional<PlanDifference> plan_difference(const ModelDescription& wanted,
                                              const ModelDescription& found);

}  // namespace specdec
