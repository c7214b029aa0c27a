#include "decoders/analysis/sequence_score.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "core/draft.h"
#include "core/error.h"
#include "core/scores.h"

namespace specdec {
namespace {

/// Tokens of a piece: few enough that a distribution of a large vocabulary in float64 stays small.
int64_t piece_size(int64_t vocab) {
  return std::clamp<int64_t>((int64_t{1} << 22U) / vocab, 1, 256);
}

/// The tokens' own log-probabilities, row by row.
void append_chosen(const Tensor& log_probs, TokenSpan tokens, std::vector<double>& chosen) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    chosen.push_back(log_probs[static_cast<int64_t>(i)][tokens[i]].item<double>());
  }
}

void compare(const Tensor& log_p, const Tensor& log_q, SequenceScore::Comparison& sums) {
  const Tensor p = log_p.exp();
  const Tensor q = log_q.exp();
  // A token without mass adds nothing, whatever its logarithm.
  const Tensor terms = at::where(p > 0.0, p * (log_p - log_q), at::zeros_like(p));
  const Tensor kl = terms.sum(1);
  sums.kl.insert(sums.kl.end(), kl.const_data_ptr<double>(),
                 kl.const_data_ptr<double>() + kl.numel());
  sums.overlap += at::minimum(p, q).sum().item<double>();
  sums.same_best += (log_p.argmax(1) == log_q.argmax(1)).sum().item<int64_t>();
}

}  // namespace

LogProbReader::LogProbReader(LanguageModel& model, TokenSpan tokens, int64_t first)
    : model_(model), tokens_(tokens), position_(first) {
  SPECDEC_CHECK(first >= 1 && first < static_cast<int64_t>(tokens.size()),
                "log-probabilities of {} tokens from number {} on", tokens.size(), first);
  const auto size = static_cast<int64_t>(tokens.size());
  if (size > model.max_length() + 1) {
    throw Error(fmt::format("a sequence of {} tokens does not fit: the model holds at most {}",
                            size, model.max_length()));
  }
  for (const Token token : tokens) {
    if (token < 0 || token >= model.vocab_size()) {
      throw Error(fmt::format("token {} is outside the model's vocabulary of {} (0 to {})", token,
                              model.vocab_size(), model.vocab_size() - 1));
    }
  }
  prompt_logits_ =
      model_.prefill_get_last_logits(tokens.first(static_cast<size_t>(first))).unsqueeze(0);
}

Tensor LogProbReader::next() {
  SPECDEC_CHECK(!done(), "the sequence has been read");
  Tensor logits = prompt_logits_;
  if (logits.defined()) {
    prompt_logits_ = Tensor();
  } else {
    // The newest token read is fed, and so on; the last one of all need not be.
    const int64_t size =
        std::min(piece_size(model_.vocab_size()), static_cast<int64_t>(tokens_.size()) - position_);
    const TokenSpan piece =
        tokens_.subspan(static_cast<size_t>(position_ - 1), static_cast<size_t>(size));
    logits = model_.forward({.tokens = token_tensor(piece), .rows = {}, .parents = {}}).logits;
    model_.commit(chain_path(size));
  }
  Tensor log_probs = at::log_softmax(logits.cpu().to(at::kDouble), 1);
  const Tensor damaged = log_probs.isnan().any(1);
  if (damaged.any().item<bool>()) {
    throw Error(damaged_logits(position_ + damaged.to(at::kInt).argmax().item<int64_t>()));
  }
  position_ += logits.size(0);
  return log_probs;
}

SequenceScore score_sequence(LanguageModel& model, TokenSpan tokens, LanguageModel* other) {
  SequenceScore score;
  LogProbReader reader(model, tokens);
  std::optional<LogProbReader> other_reader;
  if (other != nullptr) {
    SPECDEC_CHECK(other->vocab_size() == model.vocab_size(), "vocabularies of {} and {}",
                  model.vocab_size(), other->vocab_size());
    other_reader.emplace(*other, tokens);
    score.comparison = SequenceScore::Comparison{};
  }
  while (!reader.done()) {
    const auto first = static_cast<size_t>(reader.position());
    const Tensor log_probs = reader.next();
    const TokenSpan scored = tokens.subspan(first, static_cast<size_t>(log_probs.size(0)));
    append_chosen(log_probs, scored, score.log_probs);
    if (other_reader) {
      const Tensor log_q = other_reader->next();
      append_chosen(log_q, scored, score.comparison->log_probs);
      compare(log_probs, log_q, *score.comparison);
    }
  }
  return score;
}

std::vector<double> kl_by_quarter(std::span<const SequenceScore> scores) {
  constexpr size_t kQuarters = 4;
  std::vector<double> means(kQuarters, 0.0);
  std::vector<double> counts(kQuarters, 0.0);
  for (const SequenceScore& score : scores) {
    const std::vector<double>& kl = score.comparison->kl;
    for (size_t at = 0; at < kl.size(); ++at) {
      const size_t quarter = at * kQuarters / kl.size();
      counts[quarter] += 1.0;
      means[quarter] += (kl[at] - means[quarter]) / counts[quarter];
    }
  }
  return means;
}

double output_log_prob(LanguageModel& model, TokenSpan prompt, TokenSpan output) {
  std::vector<Token> tokens(prompt.begin(), prompt.end());
  tokens.insert(tokens.end(), output.begin(), output.end());
  LogProbReader reader(model, tokens, std::ssize(prompt));
  std::vector<double> chosen;
  while (!reader.done()) {
    const auto first = static_cast<size_t>(reader.position());
    const Tensor log_probs = reader.next();
    append_chosen(log_probs,
                  TokenSpan(tokens).subspan(first, static_cast<size_t>(log_probs.size(0))), chosen);
  }
  return std::accumulate(chosen.begin(), chosen.end(), 0.0);
}

}  // namespace specdec
