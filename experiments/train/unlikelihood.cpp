#include "experiments/train/unlikelihood.h"

#include <ATen/ATen.h>

#include <array>
#include <set>
#include <vector>

#include "core/transformer/reference.h"
#include "experiments/train/continuations.h"
#include "kv/paged_kv.h"

namespace specdec {
namespace {

constexpr int64_t kNgram = 4;

/// log(1 - p), kept finite where p is one.
at::Tensor log_complement(const at::Tensor& log_probs) {
  return at::log1p(-log_probs.exp().clamp_max(1.0 - 1e-5));
}

}  // namespace

at::Tensor token_unlikelihood(const at::Tensor& log_probs, const at::Tensor& inputs,
                              const at::Tensor& targets) {
  const int64_t length = inputs.size(1);
  const auto position = at::arange(length, inputs.options());
  const auto later = position.unsqueeze(0) > position.unsqueeze(1);
  const auto candidates = inputs.unsqueeze(1).expand({-1, length, -1});
  const auto left_out = later.unsqueeze(0).logical_or(candidates.eq(targets.unsqueeze(-1)));
  // Left-out candidates fall on id 0, <pad>, which no text has.
  const auto mask = at::zeros_like(log_probs).scatter(-1, candidates.masked_fill(left_out, 0), 1.0);
  return -(log_complement(log_probs) * mask).sum(-1).mean();
}

SequenceUnlikelihood::SequenceUnlikelihood(std::shared_ptr<const TransformerTensors> weights)
    : weights_(std::move(weights)) {}

at::Tensor SequenceUnlikelihood::continue_greedily(const at::Tensor& prompts, int64_t new_tokens) {
  // On the host, whichever device trains: the weights change with every step.
  TransformerModel model(pack(*weights_, {.place = Placement{}}), paged_kv());
  return continue_prompts(model, prompts, new_tokens,
                          [](const at::Tensor& logits, int64_t) { return logits.argmax(-1); });
}

at::Tensor SequenceUnlikelihood::repeated(const at::Tensor& sequences, int64_t begin) {
  const at::Tensor marks = at::zeros(sequences.sizes(), at::kBool);
  const auto tokens = sequences.accessor<int64_t, 2>();
  auto out = marks.accessor<bool, 2>();
  for (int64_t row = 0; row < sequences.size(0); ++row) {
    std::set<std::array<int64_t, kNgram>> seen;
    for (int64_t end = kNgram - 1; end < sequences.size(1); ++end) {
      std::array<int64_t, kNgram> ngram{};
      for (int64_t i = 0; i < kNgram; ++i) {
        ngram[static_cast<size_t>(i)] = tokens[row][end - kNgram + 1 + i];
      }
      out[row][end] = !seen.insert(ngram).second && end >= begin;
    }
  }
  return marks;
}

at::Tensor SequenceUnlikelihood::loss(const at::Tensor& prompts, int64_t new_tokens) {
  const at::Tensor written = continue_greedily(prompts.cpu(), new_tokens);
  const at::Tensor sequences = written.to(prompts.device());
  const int64_t length = sequences.size(1) - 1;
  const auto marks = repeated(written, prompts.size(1)).narrow(1, 1, length).to(prompts.device());
  const auto logits = reference_forward(*weights_, sequences.narrow(1, 0, length)).logits;
  const auto log_probs = at::log_softmax(logits, -1)
                             .gather(-1, sequences.narrow(1, 1, length).unsqueeze(-1))
                             .squeeze(-1);
  const auto count = static_cast<double>(prompts.size(0) * new_tokens);
  return -(log_complement(log_probs) * marks).sum() / count;
}

}  // namespace specdec
