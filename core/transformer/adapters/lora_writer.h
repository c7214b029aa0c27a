#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/transformer/adapters/lora_modules.h"

namespace specdec {

/// What an adapter of a model's first layers changes.
struct LoraShape {
  int64_t rank = 8;
  double alpha = 16.0;  ///< the sum B(A x) is multiplied by alpha / rank
  int64_t layers = 0;   ///< the first so many
  /// Linear modules by the last part of their names ("q_proj"); empty = all of these layers.
  std::vector<std::string> modules = {};
};

/// The modules of a shape, in the order of lora_modules; borrows the model's matrices. Throws
/// ConfigError for a name that none of these layers has.
std::vector<LoraModule> lora_modules(const TransformerWeights& weights, const LoraShape& shape);

/// An adapter that can be written.
struct LoraTensors {
  LoraShape shape;
  std::string base;  ///< name of the model that it was trained on
  struct Module {
    std::string name;  ///< "model.layers.3.self_attn.q_proj"
    Tensor a;          ///< [rank, in]
    Tensor b;          ///< [out, rank]
  };
  std::vector<Module> modules;  ///< the same ones in each of the layers
};

/// Writes adapter_config.json and adapter_model.safetensors as PEFT does, in float32, float64 or
/// bfloat16: load_lora reads them. Throws Error where the folder cannot be written.
void save_lora(const LoraTensors& adapter, const std::filesystem::path& folder,
               at::ScalarType dtype);

/// Random matrices that change a model's outputs, the same on every platform.
LoraTensors random_lora(const TransformerWeights& weights, const LoraShape& shape, uint64_t seed);

}  // namespace specdec
