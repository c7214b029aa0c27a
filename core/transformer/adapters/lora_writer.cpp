#include "core/transformer/adapters/lora_writer.h"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "core/error.h"
#include "core/formats/atomic_file.h"
#include "core/transformer/random_weights.h"
#include "core/transformer/tensor_writer.h"

namespace specdec {
namespace {

/// "q_proj" of "model.layers.3.self_attn.q_proj".
std::string last_part(const std::string& name) { return name.substr(name.rfind('.') + 1); }

nlohmann::json peft_config(const LoraTensors& adapter) {
  std::vector<int64_t> layers(static_cast<size_t>(adapter.shape.layers));
  std::iota(layers.begin(), layers.end(), 0);
  std::set<std::string> modules;
  for (const LoraTensors::Module& module : adapter.modules) {
    modules.insert(last_part(module.name));
  }
  return {{"peft_type", "LORA"},
          {"task_type", "CAUSAL_LM"},
          {"base_model_name_or_path", adapter.base},
          {"r", adapter.shape.rank},
          {"lora_alpha", adapter.shape.alpha},
          {"lora_dropout", 0.0},
          {"bias", "none"},
          {"inference_mode", true},
          {"target_modules", modules},
          {"layers_to_transform", layers},
          {"layers_pattern", "layers"}};
}

}  // namespace

std::vector<LoraModule> lora_modules(const TransformerWeights& weights, const LoraShape& shape) {
  std::vector<LoraModule> modules = lora_modules(weights);
  std::erase_if(modules, [&](const LoraModule& module) {
    return module.matrix == nullptr || module.layer < 0 || module.layer >= shape.layers;
  });
  std::set<std::string> known;
  for (const LoraModule& module : modules) {
    known.insert(last_part(module.name));
  }
  for (const std::string& name : shape.modules) {
    if (!known.contains(name)) {
      throw ConfigError(
          fmt::format("the first {} layers of this {} have no module '{}' that an adapter can be "
                      "applied to, but {}",
                      shape.layers, weights.config.family, name, fmt::join(known, ", ")));
    }
  }
  const std::set<std::string> wanted(shape.modules.begin(), shape.modules.end());
  std::erase_if(modules, [&wanted](const LoraModule& module) {
    return !wanted.empty() && !wanted.contains(last_part(module.name));
  });
  return modules;
}

void save_lora(const LoraTensors& adapter, const std::filesystem::path& folder,
               at::ScalarType dtype) {
  std::filesystem::create_directories(folder);
  TensorWriter writer(dtype);
  for (const LoraTensors::Module& module : adapter.modules) {
    const std::string path = "base_model.model." + module.name;
    writer.add(path + ".lora_A.weight", module.a);
    writer.add(path + ".lora_B.weight", module.b);
  }
  write_file(folder / "adapter_config.json", peft_config(adapter).dump(2) + "\n");
  writer.write(folder / "adapter_model.safetensors");
}

LoraTensors random_lora(const TransformerWeights& weights, const LoraShape& shape, uint64_t seed) {
  RandomTensors random({.seed = seed, .dtype = weights.compute_dtype()});
  LoraTensors adapter{.shape = shape, .base = {}, .modules = {}};
  for (const LoraModule& module : lora_modules(weights, shape)) {
    adapter.modules.push_back({module.name, random.matrix(shape.rank, module.matrix->in()),
                               random.matrix(module.rows, shape.rank)});
  }
  return adapter;
}

}  // namespace specdec
