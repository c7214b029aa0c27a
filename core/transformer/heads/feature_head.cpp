#include "core/transformer/heads/feature_head.h"

#include <ATen/ATen.h>

#include <optional>
#include <tuple>
#include <utility>

#include "core/draft_vocabulary.h"
#include "core/kernels/linear.h"
#include "core/transformer/forward_parts.h"
#include "core/transformer/heads/draft_rows.h"

namespace specdec {
namespace {

Linear packed(const Tensor& matrix, const TransformerWeights& target, const Tensor& bias = {}) {
  return matrix.defined() ? pack(matrix, head_packing(target), bias) : Linear();
}

class EagleFeatureHead final : public FeatureHead {
 public:
  EagleFeatureHead(const EagleHead& head, std::shared_ptr<const TransformerWeights> target)
      : head_(head),
        config_(head_.config),
        target_(std::move(target)),
        fc_(packed(head_.fc, *target_, head_.fc_bias)),
        vocabulary_(
            specdec::draft_vocabulary(head_.target_ids, config_.vocab_size, target_->place.device)),
        lm_head_(packed(sorted_rows(head_), *target_)),
        target_rows_(third() ? Tensor() : head_.target_ids, target_),
        embedding_(head_.embedding.defined() ? packed(head_.embedding, *target_)
                                             : target_->embedding) {
    for (Tensor* matrix : {&head_.fc, &head_.fc_bias, &head_.lm_head, &head_.embedding}) {
      *matrix = Tensor();  // products read what is packed
    }
  }

  std::vector<HeadLayer> take_layers() override {
    std::vector<HeadLayer> layers = std::exchange(head_.later_layers, {});
    layers.insert(layers.begin(), std::exchange(head_.layer, {}));
    return layers;
  }

  int64_t feature_width() const override { return third() ? fc_.in() : config_.hidden_size; }

  /// The norms of its parts.
  Tensor prepared(Ops& ops, const Tensor& features) const override {
    if (!head_.stream_norms.defined()) {
      return features;
    }
    std::vector<Tensor> parts;
    for (int64_t i = 0; i < head_.stream_norms.size(0); ++i) {
      const Tensor part = features.narrow(1, i * config_.hidden_size, config_.hidden_size);
      parts.push_back(ops.rms_norm(part.contiguous(), head_.stream_norms[i], config_.rms_norm_eps));
    }
    return at::cat(parts, 1);
  }

  ForwardInputs enter(Ops& ops, const Tensor& tokens, const Tensor& features,
                      bool own) const override {
    const Tensor embedding = ops.embed_rows(
        embedding_, tokens, config_.scale_embedding ? target_->embedding_scale : 1.0);
    if (third()) {
      const Tensor feature = own ? features : ops.linear(fc_, normed_streams(ops, features));
      return {
          .embeddings = head_.feature_norm.defined()
                            ? ops.rms_norm(feature, head_.feature_norm, config_.rms_norm_eps)
                            : feature,
          .attention_inputs = ops.rms_norm(embedding, head_.embedding_norm, config_.rms_norm_eps)};
    }
    return {.embeddings = ops.linear(fc_, ops.concat(embedding, features))};
  }

  Tensor feature(Ops& ops, const Tensor& output) const override {
    return config_.norm_output ? ops.rms_norm(output, head_.norm, config_.rms_norm_eps) : output;
  }

  void logits(Ops& ops, const Tensor& output, const Tensor& feature,
              Tensor& logits) const override {
    if (third()) {
      const Tensor normed =
          config_.norm_output ? feature : ops.rms_norm(output, head_.norm, config_.rms_norm_eps);
      ops.linear(lm_head_, normed, logits);
      if (config_.soft_cap > 0.0) {
        ops.soft_cap(logits, config_.soft_cap);
      }
      return;
    }
    const Tensor normed = config_.feature_after_norm ? output
                                                     : ops.rms_norm(output, target_->final_norm,
                                                                    target_->config.rms_norm_eps);
    target_rows_.logits(ops, normed, logits);
  }

  const DraftVocabulary* draft_vocabulary() const override {
    return vocabulary_ ? &*vocabulary_ : nullptr;
  }

 private:
  bool third() const { return captures_streams(config_.version); }

  /// The rows of its lm_head by the target's tokens; most heads have them so.
  static Tensor sorted_rows(const EagleHead& head) {
    if (!head.lm_head.defined() || !head.target_ids.defined()) {
      return head.lm_head;
    }
    const auto [ids, order] = head.target_ids.sort();
    return at::equal(ids, head.target_ids) ? head.lm_head : head.lm_head.index_select(0, order);
  }

  /// The target's captured streams as fc reads them.
  Tensor normed_streams(Ops& ops, const Tensor& streams) const {
    return head_.input_norm.defined()
               ? ops.rms_norm(streams, head_.input_norm, config_.rms_norm_eps)
               : streams;
  }

  EagleHead head_;
  const EagleConfig& config_;
  std::shared_ptr<const TransformerWeights> target_;
  Linear fc_;
  std::optional<DraftVocabulary> vocabulary_;
  Linear lm_head_;
  DraftRows target_rows_;  ///< of EAGLE-1/2
  Linear embedding_;
};

class MtpFeatureHead final : public FeatureHead {
 public:
  MtpFeatureHead(const MtpHead& head, size_t module,
                 std::shared_ptr<const TransformerWeights> target)
      : embedding_norm_(head.embedding_norm),
        hidden_norm_(head.hidden_norm),
        norm_(head.norm),
        layer_(head.layers.at(module)),
        target_(std::move(target)),
        fc_(packed(head.fc, *target_)) {}

  std::vector<HeadLayer> take_layers() override { return {std::exchange(layer_, {})}; }
  int64_t feature_width() const override { return target_->config.hidden_size; }

  ForwardInputs enter(Ops& ops, const Tensor& tokens, const Tensor& features, bool) const override {
    const double eps = target_->config.rms_norm_eps;
    const Tensor embedding =
        ops.rms_norm(embed_tokens(ops, *target_, tokens), embedding_norm_, eps);
    const Tensor hidden = ops.rms_norm(features.contiguous(), hidden_norm_, eps);
    return {.embeddings = ops.linear(fc_, ops.concat(embedding, hidden))};
  }

  Tensor feature(Ops& ops, const Tensor& output) const override {
    return ops.rms_norm(output, norm_, target_->config.rms_norm_eps);
  }

  void logits(Ops& ops, const Tensor&, const Tensor& feature, Tensor& logits) const override {
    head_logits(ops, *target_, feature, logits);
  }

 private:
  Tensor embedding_norm_, hidden_norm_, norm_;
  HeadLayer layer_;
  std::shared_ptr<const TransformerWeights> target_;
  Linear fc_;
};

}  // namespace

std::unique_ptr<FeatureHead> eagle_feature_head(const std::shared_ptr<const EagleHead>& head,
                                                std::shared_ptr<const TransformerWeights> target) {
  return std::make_unique<EagleFeatureHead>(*head, std::move(target));
}

std::unique_ptr<FeatureHead> mtp_feature_head(const std::shared_ptr<const MtpHead>& head,
                                              size_t module,
                                              std::shared_ptr<const TransformerWeights> target) {
  return std::make_unique<MtpFeatureHead>(*head, module, std::move(target));
}

}  // namespace specdec
