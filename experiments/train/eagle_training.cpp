#include <ATen/ATen.h>

#include <algorithm>

#include "core/transformer/heads/eagle_head.h"
#include "core/transformer/heads/head_reference.h"
#include "experiments/train/head_training.h"

namespace specdec {
namespace {

constexpr double kMinScale = 1e-3;  // what a norm scales by less cannot be read back

/// Layers like the target's begin as copies of its last one; others stay random.
bool like_target(const HeadLayer& layer, const TransformerTensors& target) {
  const LayerTensors& last = target.layers.back();
  const int64_t inputs = layer.weights.qkv.size(1) / (layer.plan.joined_inputs ? 2 : 1);
  return layer.weights.qkv.size(0) == last.qkv.size(0) && inputs == last.qkv.size(1) &&
         layer.weights.gate_up.sizes() == last.gate_up.sizes() &&
         layer.plan.qk_norm == last.q_norm.defined() && !last.qkv_bias.defined() &&
         layer.plan.post_norms == last.mlp_post_norm.defined();
}

class EagleTraining final : public HeadTraining {
 public:
  EagleTraining(const HeadShape& shape, const HeadTrainingContext& context)
      : version_(shape.type == HeadType::kEagle3 ? EagleVersion::kEagle3 : EagleVersion::kEagle),
        target_(context.target),
        matmul_dtype_(context.matmul_dtype),
        stored_(shape.stored) {
    const bool gemma = !shape.llama_layer && target_->plan.front().post_norms;
    const auto style = gemma ? LayerStyle::kGemma : LayerStyle::kLlama;
    EagleConfig config = make_eagle_config(version_, style, *target_);
    if (shape.intermediate_size > 0) {
      config.plan.intermediate_size = shape.intermediate_size;
    }
    if (!shape.layers.empty()) {
      config.capture_layers = shape.layers;
    }
    config.feature_after_norm = shape.after_final_norm;
    if (shape.draft_vocab_size > 0) {
      config.draft_vocab_size = shape.draft_vocab_size;
    }
    head_ = random_eagle_head(config, {.seed = context.seed, .norm_deviation = 0.0});
    begin(context);
  }

  void collect(std::vector<at::Tensor>& matrices, std::vector<at::Tensor>& others) override {
    collect_parameters(parameters(*head_), target_->place.device, matrices, others);
  }

  std::vector<DepthOutput> forward(const TargetBatch& batch, int64_t depth) const override {
    const int64_t columns = batch.tokens.size(1) - 2;
    const int64_t deepest = std::min(depth, columns);
    UnrolledKeys past;
    past.first = first_anchor(batch, deepest);
    std::vector<DepthOutput> outputs;
    at::Tensor features = fed_features(batch).narrow(1, 0, columns);
    for (int64_t d = 1; d <= deepest; ++d) {
      const at::Tensor anchors = guessed_places(batch, d).anchors;
      const at::Tensor row = anchors.div(columns, "floor");
      const at::Tensor places = anchors - (row + 1) * past.first;
      const HeadOutputs out =
          eagle_reference(*head_, *target_,
                          {.tokens = tokens_at_depth(batch, d).slice(1, d > 1 ? past.first : 0),
                           .features = features,
                           .own_features = d > 1,
                           .unrolled = &past,
                           .matmul_dtype = matmul_dtype_,
                           .places = places});
      features = out.features;
      outputs.push_back({out.logits, features.flatten(0, 1).index_select(0, places)});
    }
    return outputs;
  }

  at::Tensor wanted_features(const TargetBatch& batch) const override {
    return version_ == EagleVersion::kEagle ? fed_features(batch) : at::Tensor();
  }

  at::Tensor draft_tokens() const override { return head_->target_ids; }

  void save(const std::filesystem::path& folder) const override {
    save_eagle_head(*head_, folder, stored_);
  }

  void load(const std::filesystem::path& folder) override {
    head_ = load_eagle_head(folder, version_, *target_, at::kFloat);
  }

 private:
  /// What training starts from: a layer that is the target's last one, if the shapes allow it; fc
  /// hands the feature on, EAGLE-3's that of the last layer it sees; the draft vocabulary; of
  /// EAGLE-3 the target's final norm and rows of its head.
  void begin(const HeadTrainingContext& context) {
    const int64_t vocab = head_->config.draft_vocab_size;
    if (vocab < head_->config.vocab_size) {
      head_->target_ids =
          heaviest_tokens(context.token_weights.cpu(), vocab).to(target_->place.device);
    }
    const bool third = version_ == EagleVersion::kEagle3;
    const int64_t hidden = head_->config.hidden_size;
    head_->fc.zero_();
    if (third) {
      head_->norm = target_->final_norm.clone();
      const at::Tensor& ids = head_->target_ids;
      head_->lm_head = ids.defined() ? target_->head.index_select(0, ids) : target_->head.clone();
    }
    head_->fc.narrow(1, head_->fc.size(1) - hidden, hidden).copy_(at::eye(hidden));
    if (like_target(head_->layer, *target_)) {
      copy_layer();
    }
  }

  /// EAGLE-3's q, k and v also read embeddings: that half stays random.
  void copy_layer() {
    const at::Tensor attention_norm = head_->layer.weights.attention_norm;
    const at::Tensor qkv = head_->layer.weights.qkv;
    HeadLayer copy{head_->layer.plan, target_->layers.back(), head_->layer.rms_norm_eps};
    for (at::Tensor* tensor : parameters(copy)) {
      *tensor = tensor->clone();
    }
    if (version_ == EagleVersion::kEagle3) {
      const at::Tensor embeddings = qkv.narrow(1, 0, head_->config.hidden_size);
      copy.weights.qkv = at::cat({embeddings.to(copy.weights.qkv.device()), copy.weights.qkv}, 1);
    }
    if (!attention_norm.defined()) {
      fold_attention_norm(copy.weights);
    }
    head_->layer.weights = copy.weights;
  }

  /// Published EAGLE layers have no input norm: its scale goes into q, k and v. A feature after the
  /// final norm carries that one's scale instead, and no longer that of the stream which attention
  /// and MLP add to: they begin at zero.
  void fold_attention_norm(LayerTensors& weights) const {
    at::Tensor scale = weights.attention_norm;
    if (head_->config.feature_after_norm) {
      const at::Tensor& last = target_->final_norm;
      scale = at::where(last.abs() > kMinScale, scale / last, 0.0);
      weights.output.zero_();
      weights.down.zero_();
    }
    weights.qkv = weights.qkv * scale;
    weights.attention_norm = at::Tensor();
  }

  at::Tensor fed_features(const TargetBatch& batch) const {
    return target_features(batch.target, eagle_capture_layers(head_->config, target_->config));
  }

  EagleVersion version_;
  std::shared_ptr<const TransformerTensors> target_;
  std::optional<at::ScalarType> matmul_dtype_;
  at::ScalarType stored_;
  std::shared_ptr<EagleHead> head_;
};

}  // namespace

std::unique_ptr<HeadTraining> make_eagle_training(const HeadShape& shape,
                                                  const HeadTrainingContext& context) {
  return std::make_unique<EagleTraining>(shape, context);
}

}  // namespace specdec
