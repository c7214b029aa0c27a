#include "core/families/gemma/weights.h"

#include <ATen/ATen.h>

#include <cmath>
#include <type_traits>

#include "core/error.h"
#include "core/formats/atomic_file.h"
#include "core/transformer/layer_tensors.h"
#include "core/transformer/tensor_source.h"

namespace specdec {
namespace {

std::string fingerprint(uint64_t hash, const GemmaConfig& config) {
  const std::string text = gemma_config_json(config);
  return fmt::format("{:016x}", hash_bytes(hash, text.data(), text.size()));
}

/// What token embeddings are multiplied with: sqrt(hidden), rounded to the weights' dtype.
double embedding_scale(const GemmaConfig& config, at::ScalarType dtype) {
  // The reference keeps sqrt(hidden) as a buffer of the weights' dtype, so it is rounded.
  const auto rounded = at::scalar_tensor(std::sqrt(static_cast<double>(config.hidden_size)),
                                         at::TensorOptions(dtype));
  return rounded.to(at::kDouble).item<double>();
}

template <class Matrix>
std::shared_ptr<TransformerOf<Matrix>> load(const std::filesystem::path& folder,
                                            const LoadOptions& options) {
  auto weights = std::make_shared<TransformerOf<Matrix>>();
  const GemmaConfig config = load_gemma_config(folder);
  weights->config = transformer_config(config);
  weights->plan = make_layer_plan(config);
  TensorSource source(CheckpointTensors(folder), options.device);
  source.find_prefix("model.embed_tokens.weight");
  const std::vector<int64_t> table = {config.vocab_size, config.hidden_size};
  const at::ScalarType stored = source.stored_dtype("model.embed_tokens.weight", table);
  const at::ScalarType dtype = options.dtype.value_or(stored);
  weights->weight_dtype = dtype;
  weights->device = options.device;
  weights->embedding = load_matrix<Matrix>(source, "model.embed_tokens.weight", table, dtype);
  weights->embedding_scale = embedding_scale(config, dtype == at::kChar ? stored : dtype);
  weights->head = weights->embedding;
  if (!config.tie_word_embeddings) {
    weights->head = load_matrix<Matrix>(source, "lm_head.weight", table, dtype);
  } else if (source.has("lm_head.weight")) {
    source.skip("lm_head.weight", table);  // some files carry the tied matrix twice
  }
  for (size_t i = 0; i < weights->plan.size(); ++i) {
    const LayerFormat format{.prefix = fmt::format("model.layers.{}.", i)};
    weights->layers.push_back(
        load_layer<Matrix>(source, format, weights->plan[i], config.hidden_size, dtype));
  }
  weights->final_norm =
      source.load("model.norm.weight", {config.hidden_size}, weights->compute_dtype()) + 1.0;
  source.check_all_taken();
  weights->fingerprint = fingerprint(source.hash(), config);
  if constexpr (std::is_same_v<Matrix, Linear>) {
    set_activations(*weights, options.activations);
  }
  return weights;
}

}  // namespace

std::shared_ptr<const TransformerWeights> load_gemma(const std::filesystem::path& folder,
                                                     const LoadOptions& options) {
  return load<Linear>(folder, options);
}

std::shared_ptr<TransformerTensors> load_gemma_tensors(const std::filesystem::path& folder,
                                                       const LoadOptions& options) {
  SPECDEC_CHECK(options.dtype != at::kChar, "load_gemma_tensors: int8 is a format of Linear");
  return load<Tensor>(folder, options);
}

void save_gemma(const TransformerTensors& weights, const std::filesystem::path& folder,
                at::ScalarType dtype) {
  SPECDEC_CHECK(dtype == at::kFloat || dtype == at::kBFloat16, "save_gemma: float32 or bfloat16");
  std::filesystem::create_directories(folder);
  TensorWriter writer(dtype);
  writer.add("model.embed_tokens.weight", weights.embedding);
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    const LayerFormat format{.prefix = fmt::format("model.layers.{}.", i)};
    write_layer(writer, format, weights.plan[i], weights.layers[i]);
  }
  writer.add("model.norm.weight", weights.final_norm - 1.0);
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
  auto weights = std::make_shared<TransformerTensors>();
  weights->weight_dtype = options.dtype;
  weights->config = transformer_config(config);
  weights->plan = make_layer_plan(config);
  RandomTensors random(options);
  const int64_t hidden = config.hidden_size;
  weights->embedding = random.matrix(config.vocab_size, hidden);
  weights->embedding_scale = embedding_scale(config, options.dtype);
  weights->head =
      config.tie_word_embeddings ? weights->embedding : random.matrix(config.vocab_size, hidden);
  for (const LayerPlan& plan : weights->plan) {
    weights->layers.push_back(random_layer(random, plan, hidden));
  }
  weights->final_norm = random.norm(hidden);
  weights->fingerprint = fmt::format("random-{}", options.seed);
  return weights;
}

}  // namespace specdec
