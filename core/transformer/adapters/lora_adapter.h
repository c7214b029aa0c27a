#pragma once
#include <ATen/core/Tensor.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/transformer/weights.h"

namespace specdec {

/// What an adapter adds to some outputs of a matrix: b(a x).
struct LoraPair {
  const Linear* matrix;  ///< of the base
  int64_t first;         ///< output of the matrix that b's first row adds to
  Tensor a;              ///< [rank, in]
  Tensor b;              ///< [rows, rank], times the config's factor (LoraConfig::factor_of)
};

/// A LoRA adapter (Hu et al., 2021, arXiv:2106.09685) for one base model, as PEFT saves it.
/// Immutable, shared by all models that it is pushed on. Matrices lie on the host, in the base's
/// compute dtype.
struct LoraAdapter {
  std::string name;         ///< its folder, as it was given
  std::string fingerprint;  ///< of matrices and factors, 16 hex digits
  std::shared_ptr<const TransformerWeights> base;
  std::vector<LoraPair> pairs;
};

/// Reads adapter_config.json and adapter_model.safetensors or .bin of a folder. Modules of vision
/// and audio parts, and keys and values that nothing reads, are left out. Throws WeightsError
/// naming file and tensor: what LoraConfig refuses, a module that the base does not have, a matrix
/// of another shape, one that is missing or that the config does not name.
std::shared_ptr<const LoraAdapter> load_lora(const std::filesystem::path& folder,
                                             std::shared_ptr<const TransformerWeights> base);

}  // namespace specdec
