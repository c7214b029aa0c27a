#include "experiments/train/head_loss.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <limits>

#include "core/error.h"

namespace specdec {
namespace {

/// Index of each target token in the draft vocabulary, -1 = not in it: [vocab] int64.
at::Tensor draft_index(int64_t vocab, const at::Tensor& draft_tokens) {
  const auto index = at::full({vocab}, -1, draft_tokens.options());
  return index.scatter(0, draft_tokens, at::arange(draft_tokens.size(0), draft_tokens.options()));
}

/// The text's token after each place: [n].
at::Tensor next_tokens(const TargetBatch& batch, const at::Tensor& places) {
  const at::Tensor next = batch.tokens.narrow(1, 1, batch.tokens.size(1) - 1);
  return next.flatten().index_select(0, places);
}

class DepthLoss {
 public:
  DepthLoss(const HeadTraining& head, const TargetBatch& batch, const HeadLoss& options,
            const TransformerTensors& target)
      : batch_(batch),
        options_(options),
        target_(target),
        draft_tokens_(head.draft_tokens()),
        groups_(head.groups().tokens),
        features_(options.features > 0.0 ? head.wanted_features(batch) : at::Tensor()) {
    if (options.distribution > 0.0 || groups_.defined()) {
      wanted_ = guessed_distribution(batch, guessed_places(batch, 0), draft_tokens_, target);
    }
  }

  at::Tensor at_depth(const DepthOutput& output, int64_t depth) const {
    const GuessedPlaces guessed = guessed_places(batch_, depth);
    const auto log_probs = at::log_softmax(output.logits, -1);
    auto total = at::zeros({}, log_probs.options());
    if (options_.distribution > 0.0) {
      const auto wanted = wanted_.index_select(0, guessed.among);
      total = total - options_.distribution * (wanted * log_probs).sum(-1).mean();
    }
    if (options_.tokens > 0.0) {
      total = total + options_.tokens * token_term(log_probs, next_tokens(batch_, guessed.places));
    }
    if (output.groups.defined()) {
      total = total + group_term(output.groups, wanted_.index_select(0, guessed.among));
    }
    if (features_.defined()) {
      SPECDEC_CHECK(output.features.defined(), "this head guesses no features");
      const auto wanted = features_.flatten(0, 1).index_select(0, guessed.places);
      total = total + options_.features * at::smooth_l1_loss(output.features, wanted);
    }
    return total;
  }

 private:
  /// Cross-entropy with the target's mass on each group.
  at::Tensor group_term(const at::Tensor& scores, const at::Tensor& wanted) const {
    const auto masses = wanted.index_select(1, groups_.flatten())
                            .view({wanted.size(0), groups_.size(0), groups_.size(1)})
                            .sum(-1);
    return -(masses * at::log_softmax(scores, -1)).sum(-1).mean();
  }

  /// Loss of tokens; those that cannot be drafted count as nothing.
  at::Tensor token_term(const at::Tensor& log_probs, const at::Tensor& tokens) const {
    if (!draft_tokens_.defined()) {
      return -log_probs.gather(-1, tokens.unsqueeze(-1)).mean();
    }
    const auto index = draft_index(target_.config.vocab_size, draft_tokens_).index({tokens});
    const auto counts = index.ge(0).to(log_probs.scalar_type());
    const auto values = log_probs.gather(-1, index.clamp_min(0).unsqueeze(-1)).squeeze(-1);
    return -(values * counts).sum() / counts.sum().clamp_min(1.0);
  }

  const TargetBatch& batch_;
  const HeadLoss& options_;
  const TransformerTensors& target_;
  at::Tensor draft_tokens_;
  at::Tensor groups_;
  at::Tensor features_;
  at::Tensor wanted_;  // the target's distributions at all places that count
};

}  // namespace

at::Tensor decoded_logits(const at::Tensor& logits, const TransformerTensors& target,
                          const at::Tensor& draft_tokens) {
  const std::vector<Token>& ids = target.config.suppressed_ids;
  if (ids.empty()) {
    return logits;
  }
  at::Tensor never = at::zeros({target.config.vocab_size}, at::kBool);
  never = never.index_fill(0, at::tensor(ids, at::kLong), true).to(logits.device());
  if (draft_tokens.defined()) {
    never = never.index_select(0, draft_tokens);
  }
  return logits.masked_fill(never, -std::numeric_limits<double>::infinity());
}

at::Tensor guessed_distribution(const TargetBatch& batch, const GuessedPlaces& places,
                                const at::Tensor& draft_tokens, const TransformerTensors& target) {
  const c10::NoGradGuard frozen;
  if (batch.distribution.defined()) {
    const auto all = batch.distribution.flatten(0, 1).index_select(0, places.places);
    return draft_tokens.defined() ? all.index_select(-1, draft_tokens) : all;
  }
  const auto hidden = batch.target.hidden.flatten(0, 1).index_select(0, places.places);
  const auto log_sums = batch.log_sums.index_select(0, places.among).unsqueeze(-1);
  const auto logits = reference_head(target, hidden, draft_tokens);
  return (decoded_logits(logits, target, draft_tokens) - log_sums).exp();
}

at::Tensor head_loss(const HeadTraining& head, const TargetBatch& batch, const HeadLoss& options,
                     const TransformerTensors& target) {
  const auto outputs = head.forward(batch, options.depth);
  const DepthLoss term(head, batch, options, target);
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
