#include <ATen/ATen.h>

#include <algorithm>

#include "core/transformer/heads/medusa_head.h"
#include "experiments/train/head_training.h"

namespace specdec {
namespace {

class MedusaTraining final : public HeadTraining {
 public:
  MedusaTraining(const HeadShape& shape, const HeadTrainingContext& context)
      : target_(context.target),
        matmul_dtype_(context.matmul_dtype.value_or(at::kFloat)),
        stored_(shape.stored) {
    MedusaConfig config;
    config.num_heads = shape.num_heads;
    config.num_layers = shape.num_layers;
    config.share_lm_head = shape.share_lm_head;
    config.draft_vocab_size = shape.draft_vocab_size;
    head_ = new_medusa_head(config, *target_, at::kFloat);
    if (shape.draft_vocab_size > 0) {
      head_.target_ids = heaviest_tokens(context.token_weights.cpu(), shape.draft_vocab_size)
                             .to(target_->place.device);
    }
  }

  void collect(std::vector<at::Tensor>& matrices, std::vector<at::Tensor>& others) override {
    for (auto& blocks : head_.blocks) {
      for (MedusaBlock& block : blocks) {
        matrices.push_back(block.weight.set_requires_grad(true));
        others.push_back(block.bias.set_requires_grad(true));
      }
    }
    for (at::Tensor& output : head_.outputs) {
      matrices.push_back(output.set_requires_grad(true));
    }
  }

  std::vector<DepthOutput> forward(const TargetBatch& batch, int64_t depth) const override {
    std::vector<DepthOutput> outputs;
    for (int64_t d = 1; d <= std::min(depth, head_.config.num_heads); ++d) {
      const at::Tensor anchors = guessed_places(batch, d).places - d;
      const at::Tensor hidden = batch.target.hidden.flatten(0, 1).index_select(0, anchors);
      outputs.push_back({logits(medusa_hidden(head_, hidden, d - 1), d - 1), {}});
    }
    return outputs;
  }

  at::Tensor draft_tokens() const override { return head_.target_ids; }

  void save(const std::filesystem::path& folder) const override {
    save_medusa_head(head_, folder, stored_);
  }

  void load(const std::filesystem::path& folder) override {
    head_ = load_medusa_head(folder, *target_, at::kFloat);
  }

 private:
  at::Tensor logits(const at::Tensor& hidden, int64_t index) const {
    if (head_.config.share_lm_head) {
      return reference_head(*target_, hidden, head_.target_ids);
    }
    const auto& output = head_.outputs[static_cast<size_t>(index)];
    return at::linear(hidden.to(matmul_dtype_), output.to(matmul_dtype_)).to(at::kFloat);
  }

  std::shared_ptr<const TransformerTensors> target_;
  at::ScalarType matmul_dtype_;
  at::ScalarType stored_;
  MedusaHead head_;
};

}  // namespace

std::unique_ptr<HeadTraining> make_medusa_training(const HeadShape& shape,
                                                   const HeadTrainingContext& context) {
  return std::make_unique<MedusaTraining>(shape, context);
}

}  // namespace specdec
