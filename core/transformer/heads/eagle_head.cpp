#include "core/transformer/heads/eagle_head.h"

#include <ATen/ATen.h>

#include <cmath>

#include "core/error.h"
#include "core/formats/atomic_file.h"
#include "core/transformer/heads/draft_rows.h"
#include "core/transformer/layer_tensors.h"
#include "core/transformer/layer_writer.h"

namespace specdec {
namespace {

/// Columns of fc.
int64_t fc_width(const EagleConfig& config, const TransformerConfig& target) {
  const auto streams = static_cast<int64_t>(eagle_capture_layers(config, target).size());
  return config.hidden_size * (captures_streams(config.version) ? streams : 2);
}

/// The norm may also lie before the residual stream branches off: EagleHead::feature_norm.
bool has_attention_norm(const EagleConfig& config) {
  return captures_streams(config.version) && !config.norm_before_residual;
}

LayerFormat layer_format(const EagleConfig& config, const std::string& prefix) {
  return {.prefix = prefix,
          .norm_offset = config.style == LayerStyle::kGemma ? 1.0 : 0.0,
          .attention_norm = has_attention_norm(config) ? "hidden_norm" : ""};
}

/// A layer after the first reads the residual stream alone.
LayerPlan later_plan(const EagleConfig& config) {
  LayerPlan plan = config.plan;
  plan.joined_inputs = false;
  return plan;
}

LayerFormat later_format(const EagleConfig& config, int64_t layer) {
  return {.prefix = fmt::format("layers.{}.", layer),
          .norm_offset = config.style == LayerStyle::kGemma ? 1.0 : 0.0};
}

class EagleLoader {
 public:
  EagleLoader(const std::filesystem::path& folder, EagleHead& head, const TransformerInfo& target,
              std::optional<at::ScalarType> dtype)
      : head_(head),
        config_(head.config),
        target_(target),
        source_(CheckpointTensors(folder), target.place) {
    const std::vector<int64_t> shape = {config_.hidden_size, fc_width(config_, target.config)};
    matrix_dtype_ = plain_dtype(dtype, source_.stored_dtype("fc.weight", shape), target);
  }

  void load() {
    const int64_t hidden = config_.hidden_size;
    const bool third = captures_streams(config_.version);
    head_.fc = matrix("fc.weight", hidden, fc_width(config_, target_.config));
    if (config_.fc_bias) {
      head_.fc_bias = source_.load("fc.bias", {hidden}, target_.compute_dtype());
    }
    // speculators calls EAGLE-3's layer what EAGLE-1's is called.
    const bool midlayer = third && source_.has("midlayer.self_attn.q_proj.weight");
    const LayerFormat format = layer_format(config_, midlayer ? "midlayer." : "layers.0.");
    head_.layer.plan = config_.plan;
    head_.layer.rms_norm_eps = config_.rms_norm_eps;
    head_.layer.weights = load_layer<Tensor>(source_, format, config_.plan, hidden, matrix_dtype_);
    if (third) {
      head_.embedding_norm = norm(format.prefix + "input_layernorm.weight");
      head_.norm = norm("norm.weight");
      head_.lm_head = matrix("lm_head.weight", config_.draft_vocab_size, hidden);
      load_norms(format.prefix);
    }
    load_later_layers();
    if (config_.version == EagleVersion::kPEagle) {
      const int64_t width = fc_width(config_, target_.config);
      head_.mask_features =
          source_.load("mask_hidden", {1, 1, width}, target_.compute_dtype()).view({1, width});
    }
    head_.target_ids = load_draft_ids(source_, config_.draft_vocab_size, config_.vocab_size);
    if (config_.own_embedding) {
      head_.embedding = matrix("embed_tokens.weight", config_.vocab_size, hidden);
    } else {
      // A frozen copy of the target's embedding, as published heads carry it.
      source_.skip("embed_tokens.weight", {config_.vocab_size, hidden});
    }
    source_.check_all_taken();
    const std::string text = eagle_config_json(config_);
    head_.fingerprint =
        fmt::format("{:016x}", hash_bytes(source_.hash(), text.data(), text.size()));
  }

 private:
  Tensor matrix(const std::string& name, int64_t rows, int64_t columns) {
    return source_.load(name, {rows, columns}, matrix_dtype_);
  }

  Tensor norm(const std::string& name, int64_t streams = 1) {
    const double offset = config_.style == LayerStyle::kGemma ? 1.0 : 0.0;
    return source_.load(name, {streams * config_.hidden_size}, target_.compute_dtype()) + offset;
  }

  void load_later_layers() {
    for (int64_t layer = 1; layer < config_.layers; ++layer) {
      HeadLayer later;
      later.plan = later_plan(config_);
      later.rms_norm_eps = config_.rms_norm_eps;
      later.weights = load_layer<Tensor>(source_, later_format(config_, layer), later.plan,
                                         config_.hidden_size, matrix_dtype_);
      head_.later_layers.push_back(std::move(later));
    }
  }

  void load_norms(const std::string& prefix) {
    const auto streams = static_cast<int64_t>(config_.capture_layers.size());
    if (config_.norm_before_residual) {
      head_.feature_norm = norm(prefix + "hidden_norm.weight");
    }
    if (config_.norm_before_fc) {
      head_.input_norm = norm("input_norm.weight", streams);
    }
    if (config_.fc_norm) {
      std::vector<Tensor> norms;
      for (int64_t i = 0; i < streams; ++i) {
        norms.push_back(norm(fmt::format("fc_norm.{}.weight", i)));
      }
      head_.stream_norms = at::stack(norms);
    }
  }

  EagleHead& head_;
  const EagleConfig& config_;
  const TransformerInfo& target_;
  TensorSource source_;
  at::ScalarType matrix_dtype_ = at::kFloat;
};

void write_norms(TensorWriter& writer, const EagleHead& head, const LayerFormat& format) {
  if (head.embedding.defined()) {
    writer.add("embed_tokens.weight", head.embedding);
  }
  if (head.feature_norm.defined()) {
    writer.add(format.prefix + "hidden_norm.weight", head.feature_norm - format.norm_offset);
  }
  if (head.input_norm.defined()) {
    writer.add("input_norm.weight", head.input_norm - format.norm_offset);
  }
  const int64_t streams = head.stream_norms.defined() ? head.stream_norms.size(0) : 0;
  for (int64_t i = 0; i < streams; ++i) {
    writer.add(fmt::format("fc_norm.{}.weight", i), head.stream_norms[i] - format.norm_offset);
  }
}

/// The norms that only some heads of EAGLE-3 have.
void add_random_norms(RandomTensors& random, EagleHead& head) {
  const EagleConfig& config = head.config;
  const int64_t hidden = config.hidden_size;
  const auto streams = static_cast<int64_t>(config.capture_layers.size());
  if (config.norm_before_residual) {
    head.feature_norm = random.norm(hidden);
    head.layer.weights.attention_norm = Tensor();
  }
  if (config.norm_before_fc) {
    head.input_norm = random.norm(streams * hidden);
  }
  if (config.fc_norm) {
    head.stream_norms = random.norm(streams * hidden).view({streams, hidden});
  }
  if (config.own_embedding) {
    head.embedding = random.matrix(config.vocab_size, hidden);
  }
}

}  // namespace

std::shared_ptr<EagleHead> load_eagle_head(const std::filesystem::path& folder,
                                           EagleVersion version, const TransformerInfo& target,
                                           std::optional<at::ScalarType> dtype) {
  auto head = std::make_shared<EagleHead>();
  head->config = load_eagle_config(folder, version);
  check_eagle_config(head->config, target.config, folder);
  head->note = check_head_target(head->config.trained_for, target, folder);
  head->config.capture_layers = captures_streams(version)
                                    ? eagle_capture_layers(head->config, target.config)
                                    : std::vector<int64_t>();
  EagleLoader(folder, *head, target, dtype).load();
  return head;
}

void save_eagle_head(const EagleHead& head, const std::filesystem::path& folder,
                     at::ScalarType dtype) {
  const EagleConfig& config = head.config;
  const bool third = captures_streams(config.version);
  const LayerFormat format = layer_format(config, third ? "midlayer." : "layers.0.");
  std::filesystem::create_directories(folder);
  TensorWriter writer(dtype);
  writer.add("fc.weight", head.fc);
  if (head.fc_bias.defined()) {
    writer.add("fc.bias", head.fc_bias);
  }
  write_layer(writer, format, config.plan, head.layer.weights);
  if (third) {
    writer.add("midlayer.input_layernorm.weight", head.embedding_norm - format.norm_offset);
    writer.add("norm.weight", head.norm - format.norm_offset);
    writer.add("lm_head.weight", head.lm_head);
    write_norms(writer, head, format);
  }
  for (size_t layer = 0; layer < head.later_layers.size(); ++layer) {
    write_layer(writer, later_format(config, static_cast<int64_t>(layer) + 1), later_plan(config),
                head.later_layers[layer].weights);
  }
  if (head.mask_features.defined()) {
    writer.add("mask_hidden", head.mask_features.unsqueeze(0));
  }
  write_draft_ids(writer, head.target_ids, config.vocab_size);
  writer.write(folder / "model.safetensors");
  write_file(folder / "config.json", eagle_config_json(config));
}

std::shared_ptr<EagleHead> random_eagle_head(const EagleConfig& config,
                                             const RandomWeightsOptions& options) {
  auto head = std::make_shared<EagleHead>();
  RandomTensors random(options);
  const bool third = captures_streams(config.version);
  const int64_t hidden = config.hidden_size;
  const auto streams = static_cast<int64_t>(config.capture_layers.size());
  SPECDEC_CHECK(!third || streams > 0, "random_eagle_head: which layers does the head capture?");
  head->config = config;
  head->fc = random.matrix(hidden, hidden * (third ? streams : 2));
  if (config.fc_bias) {
    head->fc_bias = random.norm(hidden) - 1.0;
  }
  head->layer.plan = config.plan;
  head->layer.rms_norm_eps = config.rms_norm_eps;
  head->layer.weights = random_layer(random, config.plan, hidden);
  if (config.draft_vocab_size < config.vocab_size) {
    head->target_ids = at::arange(config.draft_vocab_size);
  }
  if (!third) {
    head->layer.weights.attention_norm = Tensor();
    return head;
  }
  head->embedding_norm = random.norm(hidden);
  head->norm = random.norm(hidden);
  head->lm_head = random.matrix(config.draft_vocab_size, hidden);
  add_random_norms(random, *head);
  for (int64_t layer = 1; layer < config.layers; ++layer) {
    const LayerPlan plan = later_plan(config);
    head->later_layers.push_back({plan, random_layer(random, plan, hidden), config.rms_norm_eps});
  }
  if (config.version == EagleVersion::kPEagle) {
    head->mask_features = random.matrix(1, head->fc.size(1)).to(head->norm.dtype());
  }
  return head;
}

std::vector<Tensor*> parameters(EagleHead& head) {
  std::vector<Tensor*> all = parameters(head.layer);
  for (Tensor* tensor :
       {&head.fc, &head.fc_bias, &head.embedding_norm, &head.norm, &head.lm_head, &head.embedding,
        &head.input_norm, &head.stream_norms, &head.feature_norm}) {
    if (tensor->defined()) {
      all.push_back(tensor);
    }
  }
  return all;
}

}  // namespace specdec
