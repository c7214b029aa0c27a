#include "experiments/train/head_loss.h"

#include <ATen/ATen.h>

#include "core/error.h"

namespace specdec {
namespace {

/// The mean over positions that count.
at::Tensor masked_mean(const at::Tensor& values, const at::Tensor& counts) {
  return counts.defined() ? (values * counts).sum() / counts.sum().clamp_min(1.0) : values.mean();
}

/// Index of each target token in the draft vocabulary, -1 = not in it: [vocab] int64.
at::Tensor draft_index(int64_t vocab, const at::Tensor& draft_tokens) {
  const auto index = at::full({vocab}, -1, draft_tokens.options());
  return index.scatter(0, draft_tokens, at::arange(draft_tokens.size(0), draft_tokens.options()));
}

class DepthLoss {
 public:
  DepthLoss(const HeadTraining& head, const TargetBatch& batch, const HeadLoss& options)
      : batch_(batch),
        options_(options),
        draft_tokens_(head.draft_tokens()),
        features_(options.features > 0.0 ? head.wanted_features(batch) : at::Tensor()) {}

  at::Tensor at_depth(const DepthOutput& output, int64_t depth) const {
    const int64_t anchors = output.logits.size(1);
    const auto log_probs = at::log_softmax(output.logits, -1);
    auto total = at::zeros({}, log_probs.options());
    if (options_.distribution > 0.0) {
      total =
          total + options_.distribution *
                      distribution_term(log_probs, batch_.distribution.narrow(1, depth, anchors));
    }
    if (options_.tokens > 0.0) {
      total = total +
              options_.tokens * token_term(log_probs, batch_.tokens.narrow(1, depth + 1, anchors));
    }
    if (features_.defined()) {
      SPECDEC_CHECK(output.features.defined(), "this head guesses no features");
      const auto wanted = features_.narrow(1, depth, anchors);
      total = total + options_.features * at::smooth_l1_loss(output.features, wanted);
    }
    return total;
  }

 private:
  at::Tensor distribution_term(const at::Tensor& log_probs, const at::Tensor& distribution) const {
    if (!draft_tokens_.defined()) {
      return -(distribution * log_probs).sum(-1).mean();
    }
    const DraftDistribution wanted = restrict_to_draft(distribution, draft_tokens_);
    return masked_mean(-(wanted.distribution * log_probs).sum(-1), wanted.counts);
  }

  at::Tensor token_term(const at::Tensor& log_probs, const at::Tensor& tokens) const {
    auto index = tokens;
    at::Tensor counts;
    if (draft_tokens_.defined()) {
      index = draft_index(batch_.distribution.size(-1), draft_tokens_).index({tokens});
      counts = index.ge(0).to(log_probs.scalar_type());
      index = index.clamp_min(0);
    }
    return masked_mean(-log_probs.gather(-1, index.unsqueeze(-1)).squeeze(-1), counts);
  }

  const TargetBatch& batch_;
  const HeadLoss& options_;
  at::Tensor draft_tokens_;
  at::Tensor features_;
};

}  // namespace

DraftDistribution restrict_to_draft(const at::Tensor& distribution,
                                    const at::Tensor& draft_tokens) {
  const auto inside = distribution.index_select(-1, draft_tokens);
  const auto counts = inside.amax(-1).ge(distribution.amax(-1)).to(distribution.scalar_type());
  return {inside / inside.sum(-1, /*keepdim=*/true).clamp_min(1e-30), counts};
}

at::Tensor head_loss(const HeadTraining& head, const TargetBatch& batch, const HeadLoss& options) {
  const auto outputs = head.forward(batch, options.depth);
  const DepthLoss term(head, batch, options);
  at::Tensor total;
  double weight = 1.0;
  double weights = 0.0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto loss = weight * term.at_depth(outputs[i], static_cast<int64_t>(i) + 1);
    total = i == 0 ? loss : total + loss;
    weights += weight;
    weight *= options.decay;
  }
  return total / weights;
}

}  // namespace specdec
