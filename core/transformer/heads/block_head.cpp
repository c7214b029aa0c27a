#include "core/transformer/heads/block_head.h"

#include <ATen/ATen.h>

#include <utility>

#include "core/error.h"
#include "core/formats/atomic_file.h"
#include "core/transformer/forward_checks.h"
#include "core/transformer/heads/draft_rows.h"
#include "core/transformer/layer_tensors.h"
#include "core/transformer/layer_writer.h"

namespace specdec {
namespace {

LayerFormat block_layer_format(size_t layer) {
  return {.prefix = fmt::format("layers.{}.", layer)};
}

/// What the config says of the layers.
BlockBackbone empty_backbone(const BlockHeadConfig& config, at::ScalarType dtype,
                             const Placement& place) {
  BlockBackbone backbone{
      .weights = {}, .causal = config.causal, .window_from_anchor = config.window_from_anchor};
  TransformerWeights& weights = backbone.weights;
  weights.config.hidden_size = config.hidden_size;
  weights.config.num_layers = std::ssize(config.plan);
  weights.config.rms_norm_eps = config.rms_norm_eps;
  weights.plan = config.plan;
  weights.weight_dtype = dtype;
  weights.place = place;
  return backbone;
}

/// The options of the layers' forward: with the convolutions that the head has.
TransformerOptions layer_options(const BlockHead& head, TransformerOptions options) {
  if (!head.convolutions.empty()) {
    options.ops = std::make_shared<ConvolvedOps>(ops_of(options, head.backbone->weights),
                                                 head.backbone->weights, head.convolutions);
  }
  return options;
}

std::vector<int64_t> fc_shape(const BlockHeadConfig& config) {
  return {config.hidden_size, config.hidden_size * std::ssize(config.capture_layers)};
}

/// Loads what a config speaks of.
class BlockHeadLoader {
 public:
  BlockHeadLoader(const std::filesystem::path& folder, const TransformerInfo& target,
                  std::optional<at::ScalarType> dtype, BlockHead& head)
      : head_(head),
        config_(head.config),
        target_(target),
        source_(CheckpointTensors(folder), target.place),
        format_(plain_dtype(dtype, source_.stored_dtype("fc.weight", fc_shape(config_)), target)) {}

  void load() {
    const int64_t hidden = config_.hidden_size;
    head_.fc = matrix("fc.weight", hidden, fc_shape(config_)[1]);
    head_.hidden_norm = source_.load("hidden_norm.weight", {hidden}, target_.compute_dtype());
    load_backbone();
    load_tables();
    head_.correction = make_block_correction(config_, tensors(), order_);
    if (config_.method == BlockMethod::kDFlash2) {
      for (size_t layer = 0; layer < config_.plan.size(); ++layer) {
        head_.convolutions.push_back(make_convolutions(config_, tensors(), layer));
      }
    }
    source_.check_all_taken();
    head_.fingerprint = fmt::format("{:016x}", hash());
  }

 private:
  Linear matrix(const std::string& name, int64_t rows, int64_t columns) {
    return load_matrix<Linear>(source_, name, {rows, columns}, format_);
  }
  HeadTensors tensors() {
    return {.small =
                [this](const std::string& name, const std::vector<int64_t>& shape) {
                  const Tensor loaded = source_.load(name, shape, target_.compute_dtype());
                  return loaded.is_meta() ? loaded : loaded.cpu();
                },
            .matrix =
                [this](const std::string& name, const std::vector<int64_t>& shape,
                       const Tensor& order) {
                  return order.defined() ? ordered(name, shape, order)
                                         : matrix(name, shape[0], shape[1]);
                }};
  }
  Linear ordered(const std::string& name, const std::vector<int64_t>& shape, const Tensor& order) {
    if (order.is_meta()) {  // of a target that is not loaded: there are no rows to sort
      return matrix(name, shape[0], shape[1]);
    }
    const Tensor rows = source_.load(name, shape, format_.dtype);
    return pack(rows.index_select(0, order.to(rows.device())));
  }

  void load_backbone() {
    const int64_t hidden = config_.hidden_size;
    BlockBackbone backbone = empty_backbone(config_, format_.dtype, target_.place);
    for (size_t layer = 0; layer < config_.plan.size(); ++layer) {
      backbone.weights.layers.push_back(load_layer<Linear>(source_, block_layer_format(layer),
                                                           config_.plan[layer], hidden, format_));
    }
    backbone.weights.final_norm = source_.load("norm.weight", {hidden}, target_.compute_dtype());
    head_.backbone = std::make_shared<const BlockBackbone>(std::move(backbone));
  }

  /// Embedding, head and draft vocabulary.
  void load_tables() {
    const int64_t hidden = config_.hidden_size;
    const int64_t drafts = config_.draft_vocab_size;
    const std::vector<int64_t> whole = {config_.vocab_size, hidden};
    const Tensor ids = load_draft_ids(source_, drafts, config_.vocab_size);
    if (ids.defined()) {
      order_ = at::argsort(ids);
      head_.target_ids = ids.is_meta() ? ids : ids.index_select(0, order_);
    }
    if (config_.own_embedding) {
      head_.embedding = matrix("embed_tokens.weight", config_.vocab_size, hidden);
    } else {
      source_.skip("embed_tokens.weight", whole);
    }
    if (!config_.own_head) {
      source_.skip("lm_head.weight", whole);
    } else if (order_.defined()) {
      head_.lm_head = ordered("lm_head.weight", {drafts, hidden}, order_);
    } else {
      head_.lm_head = matrix("lm_head.weight", drafts, hidden);
    }
  }

  uint64_t hash() const {
    const std::string text = read_head_config(source_.folder());
    return hash_bytes(source_.hash(), text.data(), text.size());
  }

  BlockHead& head_;
  const BlockHeadConfig& config_;
  const TransformerInfo& target_;
  TensorSource source_;
  MatrixFormat format_;
  Tensor order_;  // [draft vocab] rows of the file in the order of the target's tokens
};

}  // namespace

std::shared_ptr<BlockHead> load_block_head(const std::filesystem::path& folder,
                                           const TransformerInfo& target,
                                           std::optional<at::ScalarType> dtype) {
  auto head = std::make_shared<BlockHead>();
  BlockHeadConfig& config = head->config;
  config = load_block_head_config(folder);
  check_block_head_config(config, target.config, folder);
  head->note = check_head_target(config.trained_for, target, folder);
  config.capture_layers = block_capture_layers(config, target.config);
  BlockHeadLoader(folder, target, dtype, *head).load();
  return head;
}

void save_block_head(const BlockHead& head, const std::filesystem::path& folder,
                     at::ScalarType dtype) {
  const std::string config = block_head_config_json(head.config);
  std::filesystem::create_directories(folder);
  TensorWriter writer(dtype);
  writer.add("fc.weight", head.fc.unpack());
  writer.add("hidden_norm.weight", head.hidden_norm);
  const TransformerTensors layers = unpack(head.backbone->weights);
  for (size_t layer = 0; layer < layers.layers.size(); ++layer) {
    write_layer(writer, block_layer_format(layer), layers.plan[layer], layers.layers[layer]);
  }
  for (size_t layer = 0; layer < head.convolutions.size(); ++layer) {
    write_convolutions(head.convolutions[layer], layer, writer);
  }
  writer.add("norm.weight", layers.final_norm);
  if (head.correction != nullptr) {
    head.correction->write(writer);
  }
  writer.write(folder / "model.safetensors");
  write_file(folder / "config.json", config);
}

std::shared_ptr<BlockHead> random_block_head(const BlockHeadConfig& config,
                                             const RandomWeightsOptions& options) {
  auto head = std::make_shared<BlockHead>();
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
  const HeadTensors tensors{
      .small =
          [&](const std::string&, const std::vector<int64_t>& shape) {
            const int64_t columns = shape.back();
            const int64_t values = c10::multiply_integers(shape);
            return random.matrix(values / columns, columns)
                .to(head->hidden_norm.dtype())
                .view(shape);
          },
      .matrix = [&](const std::string&, const std::vector<int64_t>& shape,
                    const Tensor&) { return pack(random.matrix(shape[0], shape[1])); }};
  head->correction = make_block_correction(config, tensors);
  if (config.method == BlockMethod::kDFlash2) {
    for (size_t layer = 0; layer < config.plan.size(); ++layer) {
      head->convolutions.push_back(make_convolutions(config, tensors, layer));
    }
  }
  return head;
}

BlockHeadModel::BlockHeadModel(std::shared_ptr<const BlockHead> head,
                               std::shared_ptr<const TransformerWeights> target,
                               const KvStoreFactory& store, const TransformerOptions& options)
    : head_(std::move(head)),
      target_(std::move(target)),
      vocabulary_(specdec::draft_vocabulary(head_->target_ids, target_->config.vocab_size,
                                            target_->place.device)),
      ops_(ops_of(options, *target_)),
      layers_(head_->backbone, head_->config.block_size, store, layer_options(*head_, options)) {}

void BlockHeadModel::keep(TokenSpan committed, const Tensor& features) {
  SPECDEC_CHECK(features.dim() == 2 && features.size(1) == feature_width() &&
                    length() + features.size(0) + 1 == std::ssize(committed),
                "a block drafter keeps {} of {} committed tokens: features should be [n, {}]",
                length(), committed.size(), feature_width());
  layers_.keep(
      ops_->rms_norm(ops_->linear(head_->fc, features.to(target_->place.device).contiguous()),
                     head_->hidden_norm, head_->config.rms_norm_eps));
}

const Linear& BlockHeadModel::embedding() const {
  return head_->embedding.defined() ? head_->embedding : target_->embedding;
}

const Linear& BlockHeadModel::lm_head() const {
  return head_->lm_head.defined() ? head_->lm_head : target_->head;
}

Tensor BlockHeadModel::score(const Tensor& states) {
  const BlockHeadConfig& config = head_->config;
  Tensor logits = ops_->linear(lm_head(), states.contiguous());
  if (config.output_multiplier != 1.0) {
    ops_->scale(logits, config.output_multiplier);
  }
  if (config.soft_cap > 0.0) {
    ops_->soft_cap(logits, config.soft_cap);
  }
  return logits.cpu();
}

void BlockHeadModel::evaluate(Token newest, int64_t wanted) {
  SPECDEC_CHECK(wanted > 0 && wanted <= depth(), "{} drafts of a block of {}", wanted, depth());
  const BlockHeadConfig& config = head_->config;
  Tensor tokens = at::full({config.block_size}, config.mask_token, at::kInt);
  tokens[0] = newest;
  check_vocabulary(*target_, tokens);
  // The whole block, however few drafts fit: rows that see later ones depend on them.
  const Tensor block = ops_->embed_rows(embedding(), tokens, config.embedding_scale);
  states_ = layers_.evaluate(block).narrow(0, config.first_slot, depth());
  const Tensor read = states_.narrow(0, 0, wanted);
  slots_ = {
      .logits = score(read), .states = read.cpu(), .ops = ops_.get(), .embedding = &embedding()};
}

Tensor BlockHeadModel::logits(const Draft& partial, std::span<const int64_t> nodes) {
  if (head_->correction != nullptr) {
    return head_->correction->correct(slots_, partial, nodes);
  }
  return slot_rows(slots_.logits, partial, nodes);
}

Tensor BlockHeadModel::confidence(const Draft& partial, std::span<const int64_t> nodes) {
  return head_->correction == nullptr ? Tensor()
                                      : head_->correction->confidence(slots_, partial, nodes);
}

}  // namespace specdec
