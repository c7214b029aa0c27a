#include "core/gemma/weights.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstring>
#include <set>

#include "core/error.h"

namespace specdec {
namespace {

at::ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return at::kDouble;
    case DType::kF32:
      return at::kFloat;
    case DType::kF16:
      return at::kHalf;
    case DType::kBF16:
      return at::kBFloat16;
    default:
      break;
  }
  return at::kLong;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

/// FNV-1a over the bytes of a tensor, eight at a time: fast enough to run at every load.
uint64_t hash_bytes(uint64_t hash, const void* data, size_t size) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  constexpr uint64_t kPrime = 1099511628211U;
  size_t i = 0;
  for (; i + 8 <= size; i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + i, 8);
    hash = (hash ^ word) * kPrime;
    hash ^= hash >> 32;
  }
  for (; i < size; ++i) {
    hash = (hash ^ bytes[i]) * kPrime;
  }
  return hash;
}

/// Takes tensors by their checkpoint names, checks them, and remembers which were taken.
class TensorSource {
 public:
  explicit TensorSource(const std::filesystem::path& folder, const GemmaLoadOptions& options)
      : checkpoint_(folder), options_(options) {
    for (const char* prefix : {"", "language_model.", "model.language_model."}) {
      if (checkpoint_.find(full_name(prefix, "model.embed_tokens.weight")) != nullptr) {
        prefix_ = prefix;
      }
    }
  }

  bool has(const std::string& name) const {
    return checkpoint_.find(full_name(prefix_, name)) != nullptr;
  }

  /// Copies a tensor into `target` (converting), a slice of a laid-out matrix.
  void copy_into(at::Tensor target, const std::string& name, const std::vector<int64_t>& shape) {
    const TensorEntry& entry = take(name, shape);
    target.copy_(mapped(entry));
    checkpoint_.release(entry);
  }

  at::Tensor load(const std::string& name, const std::vector<int64_t>& shape,
                  at::ScalarType dtype) {
    const TensorEntry& entry = take(name, shape);
    at::Tensor copy = mapped(entry).to(options_.device, dtype, /*non_blocking=*/false,
                                       /*copy=*/true);
    checkpoint_.release(entry);
    return copy;
  }

  /// The dtype of the embedding as stored.
  at::ScalarType stored_dtype(const std::vector<int64_t>& shape) {
    return scalar_type(take("model.embed_tokens.weight", shape).dtype);
  }

  /// Complains about tensors that no text model has; vision parts are skipped.
  void check_all_taken() const {
    std::vector<std::string> left;
    for (const TensorEntry* entry : checkpoint_.tensors()) {
      if (taken_.count(entry->name) == 0 && !is_skipped(entry->name)) {
        left.push_back(entry->name);
      }
    }
    if (!left.empty()) {
      throw WeightsError(
          fmt::format("{}: tensor '{}' (and {} more) belongs to no layer that config.json "
                      "describes. Check that "
                      "config.json and the weights are of the same model.",
                      checkpoint_.folder().string(), left.front(), left.size() - 1));
    }
  }

  uint64_t hash() const { return hash_; }

 private:
  /// "model.x" lies at "language_model.model.x" or "model.language_model.x" in wrapped checkpoints.
  static std::string full_name(const std::string& prefix, const std::string& name) {
    if (prefix == "model.language_model.") {
      return name.rfind("model.", 0) == 0 ? prefix + name.substr(6) : name;
    }
    return prefix + name;
  }

  static bool is_skipped(const std::string& name) {
    for (const char* part : {"vision_tower.", "multi_modal_projector.", "vision_model."}) {
      if (name.find(part) != std::string::npos) {
        return true;
      }
    }
    return name.find("rotary_emb.inv_freq") != std::string::npos;
  }

  const TensorEntry& take(const std::string& name, const std::vector<int64_t>& shape) {
    const std::string full = full_name(prefix_, name);
    const TensorEntry* entry = checkpoint_.find(full);
    if (entry == nullptr) {
      throw WeightsError(
          fmt::format("{}: tensor '{}' is missing; config.json asks for it with shape "
                      "{}.",
                      checkpoint_.folder().string(), full, shape_text(shape)));
    }
    if (entry->shape != shape) {
      throw WeightsError(fmt::format("{}: tensor '{}' has shape {}, but config.json asks for {}.",
                                     checkpoint_.folder().string(), full, shape_text(entry->shape),
                                     shape_text(shape)));
    }
    if (scalar_type(entry->dtype) == at::kLong) {
      throw WeightsError(
          fmt::format("{}: tensor '{}' has dtype {}; weights should be F32, BF16, F16 "
                      "or F64.",
                      checkpoint_.folder().string(), full, dtype_name(entry->dtype)));
    }
    if (taken_.insert(full).second) {
      hash_ = hash_bytes(hash_, full.data(), full.size());
      hash_ = hash_bytes(hash_, entry->bytes.data(), entry->bytes.size());
    }
    return *entry;
  }

  static at::Tensor mapped(const TensorEntry& entry) {
    // ATen has no read-only tensors; this one is only ever copied from.
    auto* data = const_cast<std::byte*>(entry.bytes.data());
    return at::from_blob(data, entry.shape, at::TensorOptions(scalar_type(entry.dtype)));
  }

  CheckpointTensors checkpoint_;
  GemmaLoadOptions options_;
  std::string prefix_;
  std::set<std::string> taken_;
  uint64_t hash_ = 14695981039346656037U;
};

/// Names and shapes of one layer's tensors.
class LayerLoader {
 public:
  LayerLoader(TensorSource& source, const GemmaWeights& model, const LayerPlan& plan, size_t index)
      : source_(source),
        model_(model),
        plan_(plan),
        name_(fmt::format("model.layers.{}.", index)) {}

  GemmaLayerWeights load(const at::TensorOptions& matrix) {
    GemmaLayerWeights layer;
    const int64_t hidden = model_.config.hidden_size;
    const int64_t q_rows = plan_.heads * plan_.head_dim;
    const int64_t kv_rows = plan_.kv_heads * plan_.head_dim;
    layer.qkv = fused({{"self_attn.q_proj", q_rows},
                       {"self_attn.k_proj", kv_rows},
                       {"self_attn.v_proj", kv_rows}},
                      matrix);
    layer.output = source_.load(name_ + "self_attn.o_proj.weight", {hidden, q_rows},
                                at::typeMetaToScalarType(matrix.dtype()));
    layer.gate_up = fused(
        {{"mlp.gate_proj", plan_.intermediate_size}, {"mlp.up_proj", plan_.intermediate_size}},
        matrix);
    layer.down = source_.load(name_ + "mlp.down_proj.weight", {hidden, plan_.intermediate_size},
                              at::typeMetaToScalarType(matrix.dtype()));
    layer.attention_norm = norm("input_layernorm", hidden);
    if (plan_.post_norms) {
      layer.attention_post_norm = norm("post_attention_layernorm", hidden);
      layer.mlp_norm = norm("pre_feedforward_layernorm", hidden);
      layer.mlp_post_norm = norm("post_feedforward_layernorm", hidden);
    } else {
      // In Gemma 1 this name is the norm BEFORE the MLP.
      layer.mlp_norm = norm("post_attention_layernorm", hidden);
    }
    if (plan_.qk_norm) {
      layer.q_norm = norm("self_attn.q_norm", plan_.head_dim);
      layer.k_norm = norm("self_attn.k_norm", plan_.head_dim);
    }
    return layer;
  }

 private:
  using Part = std::pair<const char*, int64_t>;

  at::Tensor fused(const std::vector<Part>& parts, const at::TensorOptions& matrix) {
    int64_t rows = 0;
    for (const Part& part : parts) {
      rows += part.second;
    }
    at::Tensor whole = at::empty({rows, model_.config.hidden_size}, matrix);
    int64_t begin = 0;
    for (const auto& [part, count] : parts) {
      source_.copy_into(whole.narrow(0, begin, count), name_ + part + ".weight",
                        {count, model_.config.hidden_size});
      begin += count;
    }
    return whole;
  }

  at::Tensor norm(const char* part, int64_t size) {
    return source_.load(name_ + part + ".weight", {size}, model_.compute_dtype()) + 1.0;
  }

  TensorSource& source_;
  const GemmaWeights& model_;
  const LayerPlan& plan_;
  std::string name_;
};

std::string fingerprint(uint64_t hash, const GemmaConfig& config) {
  const std::string text = gemma_config_json(config);
  return fmt::format("{:016x}", hash_bytes(hash, text.data(), text.size()));
}

}  // namespace

double embedding_scale(const GemmaConfig& config, at::ScalarType dtype) {
  // The reference keeps sqrt(hidden) as a buffer of the weights' dtype, so it is rounded.
  const auto rounded = at::scalar_tensor(std::sqrt(static_cast<double>(config.hidden_size)),
                                         at::TensorOptions(dtype));
  return rounded.to(at::kDouble).item<double>();
}

at::ScalarType GemmaWeights::compute_dtype() const {
  return weight_dtype() == at::kDouble ? at::kDouble : at::kFloat;
}

std::shared_ptr<const GemmaWeights> load_gemma(const std::filesystem::path& folder,
                                               const GemmaLoadOptions& options) {
  auto weights = std::make_shared<GemmaWeights>();
  weights->config = load_gemma_config(folder);
  weights->plan = make_layer_plan(weights->config);
  const GemmaConfig& config = weights->config;
  TensorSource source(folder, options);
  const std::vector<int64_t> table = {config.vocab_size, config.hidden_size};
  const at::ScalarType dtype = options.dtype ? *options.dtype : source.stored_dtype(table);
  weights->embedding = source.load("model.embed_tokens.weight", table, dtype);
  weights->embedding_scale = embedding_scale(config, dtype);
  weights->head = weights->embedding;
  if (!config.tie_word_embeddings) {
    weights->head = source.load("lm_head.weight", table, dtype);
  } else if (source.has("lm_head.weight")) {
    source.load("lm_head.weight", table, dtype);  // some files carry the tied matrix twice
  }
  const auto matrix = at::TensorOptions(dtype).device(options.device);
  for (size_t i = 0; i < weights->plan.size(); ++i) {
    weights->layers.push_back(LayerLoader(source, *weights, weights->plan[i], i).load(matrix));
  }
  weights->final_norm =
      source.load("model.norm.weight", {config.hidden_size}, weights->compute_dtype()) + 1.0;
  source.check_all_taken();
  weights->fingerprint = fingerprint(source.hash(), config);
  return weights;
}

}  // namespace specdec
