#pragma once
#include <vector>

#include "core/families/description.h"
#include "core/families/gemma/config.h"
#include "core/transformer/plan.h"

namespace specdec {

/// What a Gemma's config says to those who do not know the family.
TransformerConfig transformer_config(const GemmaConfig& config);
/// How the forward runs its layers.
std::vector<LayerPlan> make_layer_plan(const GemmaConfig& config);
/// What loading its weights needs.
ModelDescription describe_gemma(const GemmaConfig& config);
/// A stored norm scale w means kGemmaNormOffset + w.
inline constexpr double kGemmaNormOffset = 1.0;
/// The inverse of transformer_config and make_layer_plan; what no layer needs has its default.
GemmaConfig gemma_config(const TransformerConfig& model, const std::vector<LayerPlan>& plan);

}  // namespace specdec
