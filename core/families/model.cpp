#include "core/families/model.h"

#include <ATen/ATen.h>

#include <cmath>
#include <type_traits>

#include "core/error.h"
#include "core/families/gemma/plan.h"
#include "core/transformer/layer_tensors.h"
#include "core/transformer/tensor_source.h"

namespace specdec {
namespace {

std::string fingerprint(uint64_t hash, const std::string& text) {
  return fmt::format("{:016x}", hash_bytes(hash, text.data(), text.size()));
}

double embedding_scale(const ModelDescription& model, at::ScalarType dtype) {
  if (!model.scaled_embedding) {
    return 1.0;
  }
  // The reference keeps sqrt(hidden) as a buffer of the weights' dtype, so it is rounded.
  const auto rounded = at::scalar_tensor(std::sqrt(static_cast<double>(model.config.hidden_size)),
                                         at::TensorOptions(dtype));
  return rounded.to(at::kDouble).item<double>();
}

template <class Matrix>
std::shared_ptr<TransformerOf<Matrix>> load(TensorSource& source, const ModelDescription& model,
                                            const LoadOptions& options) {
  auto weights = std::make_shared<TransformerOf<Matrix>>();
  weights->config = model.config;
  weights->plan = model.plan;
  source.find_prefix("model.embed_tokens.weight");
  const int64_t hidden = model.config.hidden_size;
  const std::vector<int64_t> table = {model.config.vocab_size, hidden};
  const at::ScalarType stored = source.stored_dtype("model.embed_tokens.weight", table);
  const at::ScalarType dtype = options.dtype.value_or(stored);
  weights->weight_dtype = dtype;
  weights->device = options.device;
  weights->embedding = load_matrix<Matrix>(source, "model.embed_tokens.weight", table, dtype);
  weights->embedding_scale = embedding_scale(model, dtype == at::kChar ? stored : dtype);
  weights->head = weights->embedding;
  if (!model.config.tie_word_embeddings) {
    weights->head = load_matrix<Matrix>(source, "lm_head.weight", table, dtype);
  } else if (source.has("lm_head.weight")) {
    source.skip("lm_head.weight", table);  // some files carry the tied matrix twice
  }
  for (size_t i = 0; i < weights->plan.size(); ++i) {
    const LayerFormat format{.prefix = fmt::format("model.layers.{}.", i),
                             .norm_offset = model.norm_offset};
    weights->layers.push_back(load_layer<Matrix>(source, format, weights->plan[i], hidden, dtype));
  }
  weights->final_norm =
      source.load("model.norm.weight", {hidden}, weights->compute_dtype()) + model.norm_offset;
  source.check_all_taken();
  weights->fingerprint = fingerprint(source.hash(), model.text);
  if constexpr (std::is_same_v<Matrix, Linear>) {
    set_activations(*weights, options.activations);
  }
  return weights;
}

template <class Matrix>
std::shared_ptr<TransformerOf<Matrix>> load(const std::filesystem::path& folder,
                                            const LoadOptions& options) {
  const ModelDescription model = describe_model(folder);
  TensorSource source(CheckpointTensors(folder), options.device);
  return load<Matrix>(source, model, options);
}

}  // namespace

ModelDescription describe_model(const std::filesystem::path& folder) {
  return describe_gemma(load_gemma_config(folder));
}

std::shared_ptr<const TransformerWeights> load_model(const std::filesystem::path& folder,
                                                     const LoadOptions& options) {
  return load<Linear>(folder, options);
}

std::shared_ptr<TransformerTensors> load_model_tensors(const std::filesystem::path& folder,
                                                       const LoadOptions& options) {
  SPECDEC_CHECK(options.dtype != at::kChar, "load_model_tensors: int8 is a format of Linear");
  return load<Tensor>(folder, options);
}

std::shared_ptr<TransformerTensors> random_model(const ModelDescription& description,
                                                 const RandomWeightsOptions& options) {
  auto weights = std::make_shared<TransformerTensors>();
  weights->weight_dtype = options.dtype;
  weights->config = description.config;
  weights->plan = description.plan;
  RandomTensors random(options);
  const int64_t vocab = description.config.vocab_size;
  const int64_t hidden = description.config.hidden_size;
  weights->embedding = random.matrix(vocab, hidden);
  weights->embedding_scale = embedding_scale(description, options.dtype);
  weights->head =
      description.config.tie_word_embeddings ? weights->embedding : random.matrix(vocab, hidden);
  for (const LayerPlan& plan : weights->plan) {
    weights->layers.push_back(random_layer(random, plan, hidden));
  }
  weights->final_norm = random.norm(hidden);
  weights->fingerprint = fmt::format("random-{}", options.seed);
  return weights;
}

}  // namespace specdec
