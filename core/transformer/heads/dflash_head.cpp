#include "core/transformer/heads/dflash_head.h"

#include <ATen/ATen.h>

#include <utility>

#include "core/error.h"
#include "core/formats/atomic_file.h"
#include "core/transformer/forward_checks.h"
#include "core/transformer/layer_tensors.h"

namespace specdec {
namespace {

LayerFormat block_layer_format(size_t layer) {
  return {.prefix = fmt::format("layers.{}.", layer)};
}

/// What the config says of the layers.
BlockBackbone empty_backbone(const DFlashConfig& config, at::ScalarType dtype,
                             const Placement& place) {
  BlockBackbone backbone{.weights = {}, .causal = config.causal};
  TransformerWeights& weights = backbone.weights;
  weights.config.hidden_size = config.hidden_size;
  weights.config.num_layers = std::ssize(config.plan);
  weights.config.rms_norm_eps = config.rms_norm_eps;
  weights.plan = config.plan;
  weights.weight_dtype = dtype;
  weights.place = place;
  return backbone;
}

std::vector<int64_t> fc_shape(const DFlashConfig& config) {
  return {config.hidden_size, config.hidden_size * std::ssize(config.capture_layers)};
}

}  // namespace

std::shared_ptr<DFlashHead> load_dflash_head(const std::filesystem::path& folder,
                                             const TransformerInfo& target,
                                             std::optional<at::ScalarType> dtype) {
  auto head = std::make_shared<DFlashHead>();
  DFlashConfig& config = head->config;
  config = load_dflash_config(folder);
  check_dflash_config(config, target.config, folder);
  head->note = check_head_target(config.trained_for, target, folder);
  config.capture_layers = dflash_capture_layers(config, target.config);
  const int64_t hidden = config.hidden_size;
  TensorSource source(CheckpointTensors(folder), target.place);
  const MatrixFormat format(
      plain_dtype(dtype, source.stored_dtype("fc.weight", fc_shape(config)), target));
  head->fc = load_matrix<Linear>(source, "fc.weight", fc_shape(config), format);
  head->hidden_norm = source.load("hidden_norm.weight", {hidden}, target.compute_dtype());
  BlockBackbone backbone = empty_backbone(config, format.dtype, target.place);
  for (size_t layer = 0; layer < config.plan.size(); ++layer) {
    backbone.weights.layers.push_back(
        load_layer<Linear>(source, block_layer_format(layer), config.plan[layer], hidden, format));
  }
  backbone.weights.final_norm = source.load("norm.weight", {hidden}, target.compute_dtype());
  for (const char* copy : {"embed_tokens.weight", "lm_head.weight"}) {
    source.skip(copy, {config.vocab_size, hidden});
  }
  source.check_all_taken();
  head->backbone = std::make_shared<const BlockBackbone>(std::move(backbone));
  const std::string text = dflash_config_json(config);
  head->fingerprint = fmt::format("{:016x}", hash_bytes(source.hash(), text.data(), text.size()));
  return head;
}

void save_dflash_head(const DFlashHead& head, const std::filesystem::path& folder,
                      at::ScalarType dtype) {
  std::filesystem::create_directories(folder);
  TensorWriter writer(dtype);
  writer.add("fc.weight", head.fc.unpack());
  writer.add("hidden_norm.weight", head.hidden_norm);
  const TransformerTensors layers = unpack(head.backbone->weights);
  for (size_t layer = 0; layer < layers.layers.size(); ++layer) {
    write_layer(writer, block_layer_format(layer), layers.plan[layer], layers.layers[layer]);
  }
  writer.add("norm.weight", layers.final_norm);
  writer.write(folder / "model.safetensors");
  write_file(folder / "config.json", dflash_config_json(head.config));
}

std::shared_ptr<DFlashHead> random_dflash_head(const DFlashConfig& config,
                                               const RandomWeightsOptions& options) {
  auto head = std::make_shared<DFlashHead>();
  RandomTensors random(options);
  const int64_t hidden = config.hidden_size;
  head->config = config;
  head->fc = pack(random.matrix(hidden, fc_shape(config)[1]));
  head->hidden_norm = random.norm(hidden);
  BlockBackbone backbone = empty_backbone(config, options.dtype, {});
  for (const LayerPlan& plan : config.plan) {
    backbone.weights.layers.push_back(pack(random_layer(random, plan, hidden)));
  }
  backbone.weights.final_norm = random.norm(hidden);
  head->backbone = std::make_shared<const BlockBackbone>(std::move(backbone));
  return head;
}

DFlashModel::DFlashModel(std::shared_ptr<const DFlashHead> head,
                         std::shared_ptr<const TransformerWeights> target,
                         const KvStoreFactory& store, const TransformerOptions& options)
    : head_(std::move(head)),
      target_(std::move(target)),
      ops_(ops_of(options, *target_)),
      layers_(head_->backbone, head_->config.block_size, store, options) {}

void DFlashModel::keep(TokenSpan committed, const Tensor& features) {
  SPECDEC_CHECK(features.dim() == 2 && features.size(1) == feature_width() &&
                    length() + features.size(0) + 1 == std::ssize(committed),
                "a block drafter keeps {} of {} committed tokens: features should be [n, {}]",
                length(), committed.size(), feature_width());
  layers_.keep(
      ops_->rms_norm(ops_->linear(head_->fc, features.to(target_->place.device).contiguous()),
                     head_->hidden_norm, head_->config.rms_norm_eps));
}

void DFlashModel::evaluate(Token newest, int64_t wanted) {
  SPECDEC_CHECK(wanted > 0 && wanted <= depth(), "{} drafts of a block of {}", wanted, depth());
  const DFlashConfig& config = head_->config;
  Tensor tokens = at::full({config.block_size}, config.mask_token, at::kInt);
  tokens[0] = newest;
  check_vocabulary(*target_, tokens);
  // The whole block, however few drafts fit: rows that see later ones depend on them.
  const Tensor block = ops_->embed_rows(target_->embedding, tokens, config.embedding_scale);
  states_ = layers_.evaluate(block).narrow(0, 1, depth());
  logits_ = ops_->linear(target_->head, states_.narrow(0, 0, wanted).contiguous());
  if (config.output_multiplier != 1.0) {
    ops_->scale(logits_, config.output_multiplier);
  }
  if (config.soft_cap > 0.0) {
    ops_->soft_cap(logits_, config.soft_cap);
  }
  logits_ = logits_.cpu();
}

Tensor DFlashModel::logits(const Draft& partial, std::span<const int64_t> nodes) {
  const std::vector<int64_t> depths = partial.depths();
  if (nodes.size() == 1) {
    return logits_.narrow(0, depths[static_cast<size_t>(nodes.front())], 1);
  }
  std::vector<Tensor> rows;
  for (const int64_t node : nodes) {
    rows.push_back(logits_[depths[static_cast<size_t>(node)]]);
  }
  return at::stack(rows);
}

}  // namespace specdec
