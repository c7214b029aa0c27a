#pragma once
#include <filesystem>
#include <memory>

#include "core/families/gemma/config.h"
#include "core/families/gemma/plan.h"
#include "core/transformer/random_weights.h"
#include "core/transformer/weights.h"

namespace specdec {

/// Loads a Hugging Face checkpoint folder, checking every tensor's name, shape and dtype. Matrices
/// are laid out once (q/k/v and gate/up fused), mapped pages are given back as they are copied.
/// Throws WeightsError naming file and tensor; tensors that a text model does not know are an
/// error, but those of a vision tower are skipped.
std::shared_ptr<const TransformerWeights> load_gemma(const std::filesystem::path& folder,
                                                     const LoadOptions& options = {});

/// Writes config.json and model.safetensors (dtype float32 or bfloat16) under the names of the hub.
void save_gemma(const TransformerWeights& weights, const std::filesystem::path& folder,
                at::ScalarType dtype);

/// Random weights (normal, sd 1/sqrt(fan in)): for tests and benchmarks, and where training starts.
std::shared_ptr<TransformerWeights> random_gemma(const GemmaConfig& config,
                                                 const RandomWeightsOptions& options = {});

}  // namespace specdec
