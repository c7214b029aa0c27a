#include "core/families/loading.h"

#include <ATen/ATen.h>
#include <c10/util/BFloat16.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <type_traits>

namespace specdec {
namespace {

std::string fingerprint(uint64_t hash, const std::string& text) {
  return fmt::format("{:016x}", hash_bytes(hash, text.data(), text.size()));
}

/// What a description says beside the tokens that begin and end texts and the length of those.
std::string text_of_weights(const std::string& text) {
  nlohmann::json description = nlohmann::json::parse(text);
  for (const char* key : {"bos_token_id", "eos_token_id", "max_position_embeddings"}) {
    description.erase(key);
  }
  return description.dump();
}

/// What Gemma 3n and 4 have beside embedding and layers.
template <class Matrix>
void load_family(TensorSource& source, const MatrixFormat& format, TransformerOf<Matrix>& weights) {
  const LayerPlan& first = weights.plan.front();
  const int64_t hidden = weights.config.hidden_size;
  if (first.per_layer_size > 0) {
    const int64_t width = weights.config.per_layer_count * first.per_layer_size;
    weights.per_layer_table = source.row_table("model.embed_tokens_per_layer.weight",
                                               {weights.config.per_layer_vocab, width});
    weights.per_layer_projection = load_matrix<Matrix>(
        source, "model.per_layer_model_projection.weight", {width, hidden}, format);
    weights.per_layer_norm = source.load("model.per_layer_projection_norm.weight",
                                         {first.per_layer_size}, weights.compute_dtype());
  }
  for (int64_t i = 0; i + 1 < first.altup.streams; ++i) {
    const auto matrix = [&](const char* name) {
      return load_matrix<Matrix>(source, fmt::format("model.{}.{}.weight", name, i),
                                 {hidden, hidden}, format);
    };
    weights.altup_projections.push_back(matrix("altup_projections"));
    weights.altup_unembeddings.push_back(matrix("altup_unembed_projections"));
  }
}

}  // namespace

double embedding_scale(const ModelDescription& model, at::ScalarType compute_dtype) {
  if (!model.scaled_embedding) {
    return 1.0;
  }
  const double root = std::sqrt(static_cast<double>(model.config.hidden_size));
  if (model.bfloat16_scale) {
    return static_cast<float>(c10::BFloat16(static_cast<float>(root)));
  }
  return compute_dtype == at::kDouble ? root : static_cast<float>(root);
}

template <class Matrix>
std::shared_ptr<TransformerOf<Matrix>> load_from(TensorSource& source,
                                                 const ModelDescription& model,
                                                 const LoadOptions& options,
                                                 const MakeLayer<Matrix>& make_layer) {
  auto weights = std::make_shared<TransformerOf<Matrix>>();
  weights->config = model.config;
  weights->plan = model.plan;
  const std::string embedding = "model.embed_tokens.weight";
  source.find_prefix(embedding);
  const int64_t hidden = model.config.hidden_size;
  const std::vector<int64_t> table = {model.config.vocab_size, hidden};
  const at::ScalarType dtype = options.dtype.value_or(source.common_dtype());
  // With one matrix in float64 all are: a forward has activations of one type.
  const MatrixFormat format(dtype, !options.dtype && dtype != at::kDouble);
  weights->weight_dtype = dtype;
  weights->place = options.place;
  weights->embedding = load_matrix<Matrix>(source, embedding, table, format);
  weights->embedding_scale = embedding_scale(model, weights->compute_dtype());
  weights->head = weights->embedding;
  if (!model.config.tie_word_embeddings) {
    weights->head = load_matrix<Matrix>(source, "lm_head.weight", table, format);
  } else if (source.has("lm_head.weight") &&
             !source.skip_copy("lm_head.weight", embedding, table)) {
    // A head in the file counts more than tie_word_embeddings in config.json, as in the reference.
    weights->head = load_matrix<Matrix>(source, "lm_head.weight", table, format);
    weights->config.tie_word_embeddings = false;
  }
  load_family<Matrix>(source, format, *weights);
  for (size_t i = 0; i < weights->plan.size(); ++i) {
    const LayerToLoad layer{.source = source,
                            .format = {.prefix = fmt::format("model.layers.{}.", i),
                                       .norm_offset = model.norm_offset,
                                       .mlp_norm = model.mlp_norm},
                            .plan = weights->plan[i],
                            .hidden_size = hidden,
                            .matrices = format};
    weights->layers.push_back(make_layer ? make_layer(layer) : layer.load<Matrix>());
  }
  weights->final_norm =
      source.load("model.norm.weight", {hidden}, weights->compute_dtype()) + model.norm_offset;
  source.check_all_taken();
  weights->fingerprint = fingerprint(source.hash(), model.text);
  weights->weights_fingerprint = fingerprint(source.hash(), text_of_weights(model.text));
  if constexpr (std::is_same_v<Matrix, Linear>) {
    set_activations(*weights, options.activations);
  }
  return weights;
}

template std::shared_ptr<TransformerTensors> load_from<Tensor>(TensorSource&,
                                                               const ModelDescription&,
                                                               const LoadOptions&,
                                                               const MakeLayer<Tensor>&);
template std::shared_ptr<TransformerWeights> load_from<Linear>(TensorSource&,
                                                               const ModelDescription&,
                                                               const LoadOptions&,
                                                               const MakeLayer<Linear>&);
template std::shared_ptr<TransformerOf<MatrixSize>> load_from<MatrixSize>(
    TensorSource&, const ModelDescription&, const LoadOptions&, const MakeLayer<MatrixSize>&);

}  // namespace specdec
