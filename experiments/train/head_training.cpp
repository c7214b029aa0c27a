#include "experiments/train/head_training.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "core/error.h"

namespace specdec {

at::Tensor tokens_at_depth(const TargetBatch& batch, int64_t depth) {
  const int64_t columns = batch.tokens.size(1) - 2;
  const int64_t known = std::min(columns, batch.tokens.size(1) - depth);
  const auto tokens = batch.tokens.narrow(1, depth, known);
  if (known == columns) {
    return tokens;
  }
  const auto last = tokens.narrow(1, known - 1, 1).expand({-1, columns - known});
  return at::cat({tokens, last}, 1);
}

TargetBatch TargetBatch::to(at::Device device) const {
  TargetBatch out = *this;
  std::vector<at::Tensor*> all = {&out.tokens,   &out.target.logits,          &out.target.hidden,
                                  &out.log_sums, &out.target.hidden_pre_norm, &out.distribution};
  for (at::Tensor& layer : out.target.layers) {
    all.push_back(&layer);
  }
  for (at::Tensor* tensor : all) {
    *tensor = tensor->defined() ? tensor->to(device) : *tensor;
  }
  return out;
}

GuessedPlaces guessed_places(const TargetBatch& batch, int64_t depth) {
  const int64_t length = batch.tokens.size(1) - 1;
  const at::Tensor all =
      batch.places.defined() ? batch.places : at::arange(batch.tokens.size(0) * length, at::kLong);
  const at::Tensor among = all.remainder(length).ge(depth).nonzero().squeeze(-1);
  const at::Tensor places = all.index_select(0, among);
  const at::Tensor row = places.div(length, "floor");
  const at::Tensor anchors = row * (length - 1) + places.remainder(length) - depth;
  const auto parts = at::stack({places, anchors, among}).to(batch.tokens.device()).unbind();
  return {parts[0], parts[1], parts[2]};
}

int64_t first_anchor(const TargetBatch& batch, int64_t depth) {
  if (!batch.places.defined() || batch.places.numel() == 0) {
    return 0;
  }
  const int64_t length = batch.tokens.size(1) - 1;
  return std::max<int64_t>(batch.places.remainder(length).min().item<int64_t>() - depth, 0);
}

at::Tensor heaviest_tokens(const at::Tensor& token_weights, int64_t count) {
  const auto order = token_weights.argsort(/*stable=*/true, /*dim=*/0, /*descending=*/true);
  return std::get<0>(order.narrow(0, 0, count).sort());
}

void collect_parameters(const std::vector<at::Tensor*>& parameters, at::Device device,
                        std::vector<at::Tensor>& matrices, std::vector<at::Tensor>& others) {
  for (at::Tensor* parameter : parameters) {
    *parameter = parameter->detach().to(device).set_requires_grad(true);
    (parameter->dim() > 1 ? matrices : others).push_back(*parameter);
  }
}

std::unique_ptr<HeadTraining> make_head_training(const HeadShape& shape,
                                                 const HeadTrainingContext& context) {
  switch (shape.type) {
    case HeadType::kMedusa:
      return make_medusa_training(shape, context);
    case HeadType::kEagle:
    case HeadType::kEagle3:
      return make_eagle_training(shape, context);
    case HeadType::kMtp:
      return make_mtp_training(shape, context);
    case HeadType::kAssistant:
      return make_assistant_training(shape, context);
    case HeadType::kSelf:
      return make_self_training(shape, context);
  }
  throw InternalError("an unknown type of head");
}

}  // namespace specdec
