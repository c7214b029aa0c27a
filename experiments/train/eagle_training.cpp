#include <ATen/ATen.h>

#include <algorithm>

#include "core/transformer/heads/eagle_head.h"
#include "core/transformer/heads/head_reference.h"
#include "experiments/train/head_training.h"

namespace specdec {
namespace {

/// The most frequent tokens, in the order of their ids: [count] int64.
at::Tensor most_frequent(const at::Tensor& token_counts, int64_t count) {
  const auto order = token_counts.argsort(/*stable=*/true, /*dim=*/0, /*descending=*/true);
  return std::get<0>(order.narrow(0, 0, count).sort());
}

/// Layers like the target's begin as copies of its last one; others stay random.
bool like_target(const HeadLayer& layer, const TransformerTensors& target) {
  const LayerTensors& last = target.layers.back();
  return layer.weights.qkv.sizes() == last.qkv.sizes() &&
         layer.weights.gate_up.sizes() == last.gate_up.sizes() &&
         layer.plan.qk_norm == last.q_norm.defined() &&
         layer.plan.post_norms == last.mlp_post_norm.defined();
}

class EagleTraining final : public HeadTraining {
 public:
  EagleTraining(const HeadShape& shape, const HeadTrainingContext& context)
      : version_(shape.type == HeadType::kEagle3 ? EagleVersion::kEagle3 : EagleVersion::kEagle),
        target_(context.target),
        matmul_dtype_(context.matmul_dtype) {
    const auto style = shape.llama_layer ? LayerStyle::kLlama : LayerStyle::kGemma;
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
    collect_parameters(parameters(*head_), target_->device, matrices, others);
  }

  std::vector<DepthOutput> forward(const TargetBatch& batch, int64_t depth) const override {
    const int64_t length = batch.tokens.size(1) - 1;
    std::vector<DepthOutput> outputs;
    UnrolledKeys past;
    at::Tensor features = fed_features(batch).narrow(1, 0, length - 1);
    for (int64_t d = 1; d <= std::min(depth, length - 1); ++d) {
      const HeadOutputs out = eagle_reference(*head_, *target_,
                                              {.tokens = tokens_at_depth(batch, d),
                                               .features = features,
                                               .own_features = d > 1,
                                               .unrolled = &past,
                                               .matmul_dtype = matmul_dtype_});
      features = out.features;
      outputs.push_back(
          {out.logits.narrow(1, 0, length - d), out.features.narrow(1, 0, length - d)});
    }
    return outputs;
  }

  at::Tensor wanted_features(const TargetBatch& batch) const override {
    return version_ == EagleVersion::kEagle ? fed_features(batch) : at::Tensor();
  }

  at::Tensor draft_tokens() const override { return head_->target_ids; }

  void save(const std::filesystem::path& folder) const override {
    save_eagle_head(*head_, folder, at::kBFloat16);
  }

  void load(const std::filesystem::path& folder) override {
    head_ = load_eagle_head(folder, version_, *target_, at::kFloat);
  }

 private:
  /// What training starts from: a layer that is the target's last one, if the shapes allow it; fc
  /// hands the feature on; the draft vocabulary's rows of the target's head.
  void begin(const HeadTrainingContext& context) {
    const int64_t hidden = head_->config.hidden_size;
    if (version_ == EagleVersion::kEagle) {
      head_->fc.narrow(1, hidden, hidden).copy_(at::eye(hidden));
      if (like_target(head_->layer, *target_)) {
        copy_layer();
      }
      return;
    }
    const int64_t vocab = head_->config.draft_vocab_size;
    at::Tensor rows = target_->head.cpu();
    if (vocab < head_->config.vocab_size) {
      head_->target_ids = most_frequent(context.token_counts, vocab);
      rows = rows.index_select(0, head_->target_ids);
      head_->target_ids = head_->target_ids.to(target_->device);
    }
    head_->lm_head.copy_(rows);
  }

  void copy_layer() {
    const at::Tensor none = head_->layer.weights.attention_norm;
    HeadLayer copy{head_->layer.plan, target_->layers.back(), head_->layer.rms_norm_eps};
    for (at::Tensor* tensor : parameters(copy)) {
      *tensor = tensor->clone();
    }
    head_->layer.weights = copy.weights;
    head_->layer.weights.attention_norm = none;
  }

  at::Tensor fed_features(const TargetBatch& batch) const {
    return target_features(batch.target, eagle_capture_layers(head_->config, target_->config));
  }

  EagleVersion version_;
  std::shared_ptr<const TransformerTensors> target_;
  std::optional<at::ScalarType> matmul_dtype_;
  std::shared_ptr<EagleHead> head_;
};

}  // namespace

std::unique_ptr<HeadTraining> make_eagle_training(const HeadShape& shape,
                                                  const HeadTrainingContext& context) {
  return std::make_unique<EagleTraining>(shape, context);
}

}  // namespace specdec
