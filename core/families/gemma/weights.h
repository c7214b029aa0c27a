#pragma once
#include <filesystem>
#include <memory>

#include "core/families/gemma/config.h"
#include "core/families/gemma/plan.h"
#include "core/transformer/random_weights.h"
#include "core/transformer/weights.h"

namespace specdec {

/// Loads a Hugging Face checkpoint folder, checking every tensor's name, shape and dtype. Matrices
/// are laid out for the forward as they are read (q/k/v and gate/up fused), mapped pages are given
/// back at once: memory never holds much more than the weights. Throws WeightsError naming file and
/// tensor; tensors that a text model does not know are an error, but those of a vision tower are
/// skipped.
std::shared_ptr<const TransformerWeights> load_gemma(const std::filesystem::path& folder,
                                                     const LoadOptions& options = {});
/// The same as plain tensors.
std::shared_ptr<TransformerTensors> load_gemma_tensors(const std::filesystem::path& folder,
                                                       const LoadOptions& options = {});

/// Writes config.json and model.safetensors (dtype float32 or bfloat16) under the names of the hub.
void save_gemma(const TransformerTensors& weights, const std::filesystem::path& folder,
                at::ScalarType dtype);

/// Random weights (normal, sd 1/sqrt(fan in)): for tests and benchmarks, and where training starts.
std::shared_ptr<TransformerTensors> random_gemma(const GemmaConfig& config,
                                                 const RandomWeightsOptions& options = {});

}  // namespace specdec
