#include "core/families/gemma/weights.h"

#include <ATen/ATen.h>

#include "core/error.h"
#include "core/formats/atomic_file.h"
#include "core/transformer/layer_tensors.h"
#include "core/transformer/tensor_writer.h"

namespace specdec {
void save_gemma(const TransformerTensors& weights, const std::filesystem::path& folder,
                at::ScalarType dtype) {
  SPECDEC_CHECK(dtype == at::kFloat || dtype == at::kBFloat16, "save_gemma: float32 or bfloat16");
  std::filesystem::create_directories(folder);
  TensorWriter writer(dtype);
  writer.add("model.embed_tokens.weight", weights.embedding);
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    const LayerFormat format{.prefix = fmt::format("model.layers.{}.", i),
                             .norm_offset = kGemmaNormOffset};
    write_layer(writer, format, weights.plan[i], weights.layers[i]);
  }
  writer.add("model.norm.weight", weights.final_norm - kGemmaNormOffset);
  if (!weights.config.tie_word_embeddings) {
    writer.add("lm_head.weight", weights.head);
  }
  writer.write(folder / "model.safetensors");
  GemmaConfig config = gemma_config(weights.config, weights.plan);
  config.dtype = dtype == at::kBFloat16 ? "bfloat16" : "float32";
  write_file(folder / "config.json", gemma_config_json(config));
}

std::shared_ptr<TransformerTensors> random_gemma(const GemmaConfig& config,
                                                 const RandomWeightsOptions& options) {
  return random_model(describe_gemma(config), options);
}

}  // namespace specdec
