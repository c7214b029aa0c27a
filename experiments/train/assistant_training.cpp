#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "core/families/gemma/assistant.h"
#include "core/transformer/heads/assistant_reference.h"
#include "experiments/train/head_training.h"
#include "experiments/train/token_clusters.h"

namespace specdec {
namespace {

/// The leaves of an assistant, centroids included where there are some.
std::vector<at::Tensor*> assistant_parameters(AssistantTensors& head) {
  std::vector<at::Tensor*> all = {&head.pre_projection, &head.post_projection, &head.weights.head,
                                  &head.weights.final_norm};
  for (LayerTensors& layer : head.weights.layers) {
    const auto add = [&](at::Tensor& tensor) { all.push_back(&tensor); };
    visit_matrices(layer, add);
    visit_vectors(layer, add);
  }
  if (head.centroids.defined()) {
    all.push_back(&head.centroids);
  }
  return all;
}

/// Gemma 4's assistant. The target's keys and values are frozen: an anchor sees those up to it, all
/// its steps have one position, and each is fed the hidden state of the one before.
class AssistantTraining final : public HeadTraining {
 public:
  AssistantTraining(const HeadShape& shape, const HeadTrainingContext& context)
      : target_(context.target), matmul_dtype_(context.matmul_dtype) {
    const AssistantShape sizes{.hidden_size = shape.hidden_size,
                               .intermediate_size = shape.intermediate_size,
                               .heads = shape.heads,
                               .layers = shape.num_layers,
                               .clusters = shape.clusters,
                               .chosen = shape.chosen_clusters};
    head_ =
        unpack(*random_assistant(*target_, sizes, {.seed = context.seed, .norm_deviation = 0.0}));
    begin();
    if (shape.clusters > 0) {
      head_.ordering = equal_clusters(target_->head, context.token_weights, shape.clusters);
      const at::Tensor members = head_.weights.head.cpu().index_select(0, head_.ordering.flatten());
      head_.centroids = members.view({shape.clusters, -1, shape.hidden_size}).mean(1);
    }
  }

  void collect(std::vector<at::Tensor>& matrices, std::vector<at::Tensor>& others) override {
    place_ordering();
    collect_parameters(assistant_parameters(head_), target_->place.device, matrices, others);
  }

  std::vector<DepthOutput> forward(const TargetBatch& batch, int64_t depth) const override {
    const int64_t columns = batch.tokens.size(1) - 2;
    std::vector<DepthOutput> outputs;
    at::Tensor hidden = batch.target.hidden.narrow(1, 0, columns);
    for (int64_t d = 1; d <= std::min(depth, columns); ++d) {
      const AssistantOutputs out = assistant_reference(
          head_, {.embeddings = reference_embedding(*target_, tokens_at_depth(batch, d)),
                  .hidden = hidden,
                  .target = batch.target,
                  .matmul_dtype = matmul_dtype_});
      hidden = out.hidden;
      const at::Tensor states =
          out.states.flatten(0, 1).index_select(0, guessed_places(batch, d).anchors);
      outputs.push_back({.logits = product(states, head_.weights.head), .features = {}});
      if (head_.centroids.defined()) {
        // Centroids learn to find the clusters; what they find does not change the states.
        outputs.back().groups = product(states.detach(), head_.centroids);
      }
    }
    return outputs;
  }

  TokenGroups groups() const override {
    return head_.centroids.defined() ? TokenGroups{head_.ordering, head_.chosen} : TokenGroups{};
  }

  void save(const std::filesystem::path& folder) const override {
    AssistantTensors stored = head_;
    for (at::Tensor* tensor : assistant_parameters(stored)) {
      *tensor = tensor->detach().cpu();
    }
    stored.weights.embedding = stored.weights.head;
    save_assistant(*pack(stored), *target_, folder, at::kBFloat16);
  }

  void load(const std::filesystem::path& folder) override {
    head_ = unpack(*load_assistant(folder, *target_, at::kFloat).head);
    place_ordering();
    for (at::Tensor* tensor : assistant_parameters(head_)) {
      *tensor = tensor->to(target_->place.device);
    }
  }

 private:
  void place_ordering() {
    if (head_.ordering.defined()) {
      head_.ordering = head_.ordering.to(target_->place.device);
    }
  }

  /// What training starts from: tokens are the target's rows in their main directions, and the
  /// projections into and out of those pass the hidden state on.
  void begin() {
    const at::Tensor rows = target_->head.to(at::kFloat).cpu();
    const auto [left, sizes, right] = at::linalg_svd(rows, /*full_matrices=*/false);
    const int64_t width = target_->config.hidden_size;
    const int64_t kept = std::min(head_.weights.config.hidden_size, width);
    const at::Tensor main = right.narrow(0, 0, kept);
    head_.weights.head.narrow(1, 0, kept).copy_(left.narrow(1, 0, kept) * sizes.narrow(0, 0, kept));
    head_.pre_projection.narrow(1, width, width).zero_();
    head_.pre_projection.narrow(0, 0, kept).narrow(1, width, width).copy_(main);
    head_.post_projection.narrow(1, 0, kept).copy_(main.t());
    head_.weights.final_norm.fill_(target_->final_norm.abs().mean().item<double>());
    for (size_t i = 0; i < head_.weights.layers.size(); ++i) {
      head_.weights.layers[i].q_norm /=
          std::sqrt(static_cast<double>(head_.weights.plan[i].head_dim));
    }
  }

  at::Tensor product(const at::Tensor& states, const at::Tensor& matrix) const {
    const at::ScalarType type = matmul_dtype_.value_or(at::kFloat);
    return at::linear(states.to(type), matrix.to(type)).to(at::kFloat);
  }

  std::shared_ptr<const TransformerTensors> target_;
  std::optional<at::ScalarType> matmul_dtype_;
  AssistantTensors head_;
};

}  // namespace

std::unique_ptr<HeadTraining> make_assistant_training(const HeadShape& shape,
                                                      const HeadTrainingContext& context) {
  return std::make_unique<AssistantTraining>(shape, context);
}

}  // namespace specdec
