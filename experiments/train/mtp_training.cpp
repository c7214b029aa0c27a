#include <ATen/ATen.h>

#include <algorithm>

#include "core/transformer/heads/head_reference.h"
#include "core/transformer/heads/mtp_head.h"
#include "experiments/train/head_training.h"

namespace specdec {
namespace {

class MtpTraining final : public HeadTraining {
 public:
  MtpTraining(const HeadShape& shape, const HeadTrainingContext& context)
      : target_(context.target),
        matmul_dtype_(context.matmul_dtype),
        head_(random_mtp_head(*target_, shape.num_layers,
                              {.seed = context.seed, .norm_deviation = 0.0})) {
    // Training starts from copies of the target's last layer, which fc hands the hidden state to.
    const int64_t hidden = target_->config.hidden_size;
    head_->fc.narrow(1, hidden, hidden).copy_(at::eye(hidden));
    for (HeadLayer& layer : head_->layers) {
      layer.weights = target_->layers.back();
      for (at::Tensor* tensor : parameters(layer)) {
        *tensor = tensor->clone();
      }
    }
  }

  void collect(std::vector<at::Tensor>& matrices, std::vector<at::Tensor>& others) override {
    collect_parameters(parameters(*head_), target_->place.device, matrices, others);
  }

  std::vector<DepthOutput> forward(const TargetBatch& batch, int64_t depth) const override {
    const int64_t length = batch.tokens.size(1) - 1;
    const size_t modules = head_->layers.size();
    std::vector<DepthOutput> outputs;
    std::vector<UnrolledKeys> past(modules);
    at::Tensor features = batch.target.hidden.narrow(1, 0, length - 1);
    for (int64_t d = 1; d <= std::min(depth, length - 1); ++d) {
      const size_t module = std::min(static_cast<size_t>(d), modules) - 1;
      const HeadOutputs out = mtp_reference(*head_, *target_, module,
                                            {.tokens = tokens_at_depth(batch, d),
                                             .features = features,
                                             .own_features = d > 1,
                                             .unrolled = &past[module],
                                             .matmul_dtype = matmul_dtype_,
                                             .places = guessed_places(batch, d).anchors});
      features = out.features;
      outputs.push_back({out.logits, {}});
    }
    return outputs;
  }

  void save(const std::filesystem::path& folder) const override {
    save_mtp_head(*head_, *target_, folder, at::kBFloat16);
  }

  void load(const std::filesystem::path& folder) override {
    head_ = load_mtp_head(folder, *target_, at::kFloat);
  }

 private:
  std::shared_ptr<const TransformerTensors> target_;
  std::optional<at::ScalarType> matmul_dtype_;
  std::shared_ptr<MtpHead> head_;
};

}  // namespace

std::unique_ptr<HeadTraining> make_mtp_training(const HeadShape& shape,
                                                const HeadTrainingContext& context) {
  return std::make_unique<MtpTraining>(shape, context);
}

}  // namespace specdec
