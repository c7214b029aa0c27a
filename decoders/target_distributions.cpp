#include "decoders/target_distributions.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>

#include "core/error.h"
#include "core/kernels/probs.h"
#include "decoders/draft_grammar.h"

namespace specdec {

TargetDistributions::TargetDistributions(const Request& request, const CommittedText& text,
                                         int64_t vocab_size)
    : request_(request), text_(text), vocab_size_(vocab_size) {}

void TargetDistributions::find_masks(const Draft& draft) {
  mask_seconds_ = 0.0;
  if (text_.grammar() == nullptr) {
    return;
  }
  const auto begin = std::chrono::steady_clock::now();
  std::vector<int64_t> parents(draft.parents.begin() + 1, draft.parents.end());
  for (int64_t& parent : parents) {
    --parent;  // the matcher stands at the root
  }
  masks_ = text_.grammar()->tree_masks(TokenSpan(draft.tokens).subspan(1), parents);
  masks_.insert(masks_.begin(), text_.grammar()->mask());
  mask_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

ScoreFilter TargetDistributions::filter(int64_t node) const {
  return masks_.empty() ? ScoreFilter() : filter_of(masks_[static_cast<size_t>(node)]);
}

void TargetDistributions::weigh(const Draft& draft, int64_t node,
                                std::span<double> distribution) const {
  if (request_.weights != nullptr) {
    request_.weights->weigh(draft.history(text_.output(), node), distribution);
    divide(distribution, sum_of(distribution).sum);
  }
}

TargetProbs TargetDistributions::find(const Draft& draft, const Tensor& logits) {
  nodes_ = draft.size();
  SPECDEC_CHECK(logits.dim() == 2 && logits.size(0) == nodes_ && logits.size(1) == vocab_size_,
                "target_probs: {} logits for {} nodes and a vocabulary of {}", logits.numel(),
                nodes_, vocab_size_);
  if (!workspace_.defined() || workspace_.size(0) < nodes_) {
    workspace_ = at::empty({nodes_, vocab_size_}, at::kDouble);
  }
  logits_ = logits;
  find_masks(draft);
  gaps_.assign(static_cast<size_t>(nodes_), 0.0);
  auto* row = workspace_.data_ptr<double>();
  const SamplingParams& sampling = request_.sampling;
  for (int64_t node = 0; node < nodes_; ++node, row += vocab_size_) {
    const std::vector<Token> penalised = sampling.repetition_penalty != 1.0
                                             ? draft.history(text_.tokens(), node)
                                             : std::vector<Token>();
    const std::span<double> distribution(row, static_cast<size_t>(vocab_size_));
    if (sampling.greedy()) {
      const GreedyChoice best =
          greedy_choice(logits.select(0, node), penalised, sampling, filter(node));
      std::fill(distribution.begin(), distribution.end(), 0.0);
      distribution[static_cast<size_t>(best.token)] = 1.0;
      gaps_[static_cast<size_t>(node)] = best.gap;
    } else {
      target_distribution(logits.select(0, node), penalised, sampling, distribution, filter(node));
      weigh(draft, node, distribution);
    }
  }
  return probs();
}

TargetProbs TargetDistributions::probs() const {
  return TargetProbs(workspace_.narrow(0, 0, nodes_));
}

LogMasses TargetDistributions::masses(int64_t node, TokenSpan history, Token token) const {
  return log_masses(logits_.select(0, node), history, request_.sampling, filter(node), token);
}

}  // namespace specdec
