#include "core/families/gemma/weights.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/families/gemma/config.h"
#include "core/families/recurrent_gemma/config.h"
#include "core/families/recurrent_gemma/tensors.h"
#include "core/formats/atomic_file.h"
#include "core/transformer/layer_writer.h"

namespace specdec {
namespace {

const char* stored_name(at::ScalarType dtype) {
  SPECDEC_CHECK(dtype == at::kFloat || dtype == at::kBFloat16,
                "Gemmas are stored in float32 or bfloat16");
  return dtype == at::kBFloat16 ? "bfloat16" : "float32";
}

bool is_one_of(const std::string& family, const std::vector<std::string>& types) {
  return std::find(types.begin(), types.end(), family) != types.end();
}

void write_tensors(const TransformerTensors& weights, const std::filesystem::path& folder,
                   at::ScalarType dtype) {
  std::filesystem::create_directories(folder);
  const std::string& family = weights.config.family;
  const bool recurrent = is_one_of(family, recurrent_gemma_model_types());
  const double norm_offset =
      recurrent || is_one_of(family, gemma_model_types()) ? kGemmaNormOffset : 0.0;
  TensorWriter writer = recurrent ? TensorWriter(dtype, recurrent_gemma_name) : TensorWriter(dtype);
  writer.add("model.embed_tokens.weight", weights.embedding);
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    const LayerFormat format{.prefix = fmt::format("model.layers.{}.", i),
                             .norm_offset = norm_offset,
                             .mlp_norm = gemma_mlp_norm(family)};
    const LayerTensors& layer = weights.layers[i];
    write_layer(writer, format, weights.plan[i],
                recurrent ? in_stored_order(weights.plan[i], layer) : layer);
  }
  writer.add("model.norm.weight", weights.final_norm - norm_offset);
  if (!weights.config.tie_word_embeddings) {
    writer.add("lm_head.weight", weights.head);
  }
  writer.write(folder / "model.safetensors");
}

}  // namespace

void save_gemma(const TransformerTensors& weights, const std::string& config_json,
                const std::filesystem::path& folder, at::ScalarType dtype) {
  nlohmann::json config = nlohmann::json::parse(config_json);
  config["dtype"] = stored_name(dtype);
  write_tensors(weights, folder, dtype);
  write_file(folder / "config.json", config.dump(2) + "\n");
}

}  // namespace specdec
