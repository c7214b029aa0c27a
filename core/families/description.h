#pragma once
#include <string>
#include <vector>

#include "core/transformer/plan.h"

namespace specdec {

/// What a family makes of a checkpoint's config: all that loading needs beside the tensors.
struct ModelDescription {
  TransformerConfig config = {};
  std::vector<LayerPlan> plan = {};
  double norm_offset = 0.0;  ///< a stored norm w multiplies by norm_offset + w: Gemma 1, Llama 0
  /// The norm before the MLP of layers without post_norms. In Gemma 1 and Llama that of this name.
  std::string mlp_norm = "post_attention_layernorm";
  bool scaled_embedding = false;  ///< Gemma: embeddings are multiplied with sqrt(hidden size)
  bool bfloat16_scale = false;    ///< RecurrentGemma: that is rounded to bfloat16
  std::string text = {};          ///< says the same in one way only: part of the fingerprint
};

/// Says all that a description holds, in one way only: what `text` is, but for Gemma 1 to 3.
std::string description_text(const ModelDescription& description);

}  // namespace specdec
