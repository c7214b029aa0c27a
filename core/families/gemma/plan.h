#pragma once
#include <vector>

#include "core/families/gemma/config.h"
#include "core/transformer/plan.h"

namespace specdec {

/// What a Gemma's config says to those who do not know the family.
TransformerConfig transformer_config(const GemmaConfig& config);
/// How the forward runs its layers.
std::vector<LayerPlan> make_layer_plan(const GemmaConfig& config);
/// The inverse of both; what no layer needs has its default.
GemmaConfig gemma_config(const TransformerConfig& model, const std::vector<LayerPlan>& plan);

}  // namespace specdec
