#include "decoders/beam_session.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/scores.h"
#include "decoders/mask_timer.h"
#include "decoders/request_checks.h"

namespace specdec {
namespace {

void check_request(const Request& request) {
  request.sampling.validate();
  require_config(request.sampling.greedy(),
                 fmt::format("beam search ranks sequences by their probability and draws none, but "
                             "sampling.temperature is {}; use temperature 0, or another strategy",
                             request.sampling.temperature));
  require_config(request.stop.stop_strings.empty(),
                 "beam search ends hypotheses at tokens (end-of-sequence and stop ids), not at "
                 "stop_strings: leave them out, or use another strategy");
  check_stop_rule(request);
  check_reads_whole(request);
  require_config(!request.embeddings.defined(),
                 "beam search reads the prompt by its tokens: leave embeddings out, or use another "
                 "strategy");
}

/// Log-probabilities [vocab] float64 after a sequence. A row is always computed by itself, so that
/// it does not matter which others there are.
Tensor log_probs_after(TokenSpan sequence, const Tensor& logits, const SamplingParams& sampling) {
  Tensor biased = logits.to(at::kDouble);
  if (!sampling.logit_bias.empty()) {
    biased = biased.clone();
    for (const auto& [token, summand] : sampling.logit_bias) {
      biased[token] += summand;
    }
  }
  Tensor row = at::log_softmax(biased, 0).contiguous();
  if (std::isnan(row.max().item<double>())) {
    throw Error(damaged_logits(std::ssize(sequence)));
  }
  if (const double penalty = sampling.repetition_penalty; penalty != 1.0) {
    auto* values = row.data_ptr<double>();
    for (const Token token : std::set<Token>(sequence.begin(), sequence.end())) {
      values[token] *= values[token] < 0.0 ? penalty : 1.0 / penalty;
    }
  }
  return row;
}

}  // namespace

void BeamOptions::validate() const {
  require_config(num_beams >= 1, fmt::format("num_beams is {}; it must be at least 1", num_beams));
  require_config(std::isfinite(length_penalty),
                 fmt::format("length_penalty is {}; it must be a number", length_penalty));
  require_config(1 <= num_return_sequences && num_return_sequences <= num_beams,
                 fmt::format("num_return_sequences is {}; it must be from 1 to num_beams ({})",
                             num_return_sequences, num_beams));
}

bool BeamSession::Continuation::operator<(const Continuation& other) const {
  if (log_prob != other.log_prob) {
    return log_prob > other.log_prob;
  }
  return beam != other.beam ? beam < other.beam : token < other.token;
}

BeamSession::BeamSession(const Request& request, const LanguageModel& target,
                         const BeamOptions& options)
    : request_(request),
      options_(options),
      max_length_(target.max_length()),
      beams_{{.tokens = {request.prompt.begin(), request.prompt.end()}}},
      mark_(Clock::now()) {
  options.validate();
  check_request(request);
  check_vocabulary(request.constraint, target.vocab_size());
  check_logit_bias(request.sampling, target.vocab_size());
  if (request.constraint.grammar != nullptr) {
    beams_.front().grammar.emplace(request.constraint.grammar);
  }
  // The newest token needs no place in the cache. A prompt that is too long is the prefill's error.
  const int64_t room = max_length_ - static_cast<int64_t>(request.prompt.size()) + 1;
  longest_ = std::max<int64_t>(1, std::min(request.stop.max_new_tokens, room));
  std::set<Token> ends(request.stop.end_ids.begin(), request.stop.end_ids.end());
  ends.insert(request.stop.stop_ids.begin(), request.stop.stop_ids.end());
  continuations_ = std::max<int64_t>(2, 1 + static_cast<int64_t>(ends.size())) * options.num_beams;
}

bool BeamSession::ends(Token token) const { return request_.stop.reason(token).has_value(); }

int64_t BeamSession::room() const {
  return max_length_ - static_cast<int64_t>(request_.prompt.size()) - generated_;
}

std::vector<BeamSession::Continuation> BeamSession::best_continuations(
    std::span<const Tensor> logits) const {
  std::vector<Continuation> best;  // a heap, the worst on top
  for (size_t beam = 0; beam < beams_.size(); ++beam) {
    const Tensor row = log_probs_after(beams_[beam].tokens, logits[beam], request_.sampling);
    auto* values = row.data_ptr<double>();
    if (beams_[beam].grammar) {
      const MaskTimer timer;
      apply_mask(beams_[beam].grammar->mask(), {values, static_cast<size_t>(row.numel())});
    }
    for (int64_t token = 0; token < row.numel(); ++token) {
      const Continuation next{beams_[beam].log_prob + values[token], static_cast<int64_t>(beam),
                              static_cast<Token>(token)};
      const bool full = static_cast<int64_t>(best.size()) == continuations_;
      if (std::isinf(next.log_prob) || (full && !(next < best.front()))) {
        continue;
      }
      if (full) {
        std::pop_heap(best.begin(), best.end());
        best.pop_back();
      }
      best.push_back(next);
      std::push_heap(best.begin(), best.end());
    }
  }
  std::sort_heap(best.begin(), best.end());
  return best;
}

/// Nothing where the grammar reaches a limit.
std::optional<Beam> BeamSession::continued(const Continuation& by) const {
  const Beam& before = beams_[static_cast<size_t>(by.beam)];
  Beam beam{before.tokens, by.log_prob, by.beam, before.grammar};
  beam.tokens.push_back(by.token);
  if (beam.grammar && !beam.grammar->accept(by.token)) {
    SPECDEC_CHECK(beam.grammar->limit().has_value(),
                  "a beam goes on with token {}, which the grammar forbids", by.token);
    return std::nullopt;
  }
  return beam;
}

void BeamSession::advance(std::span<const Tensor> logits) {
  SPECDEC_CHECK(!finished_ && logits.size() == beams_.size(),
                "a beam step of {} beams with {} rows of logits", beams_.size(), logits.size());
  for (Beam& beam : beams_) {  // one whose grammar reached a limit ends where it is
    if (beam.grammar && !beam.grammar->settle()) {
      add_hypothesis(beam, generated_);
    }
  }
  const std::vector<Continuation> ranked = best_continuations(logits);
  ++generated_;
  const auto wanted = static_cast<size_t>(options_.num_beams);
  std::vector<Beam> running;
  std::set<int64_t> limited;
  for (size_t rank = 0; rank < ranked.size() && running.size() < wanted; ++rank) {
    std::optional<Beam> next = continued(ranked[rank]);
    if (!next) {
      if (limited.insert(ranked[rank].beam).second) {
        add_hypothesis(beams_[static_cast<size_t>(ranked[rank].beam)], generated_ - 1);
      }
      continue;
    }
    const bool ended = ends(ranked[rank].token) || generated_ == longest_ ||
                       (next->grammar && next->grammar->can_only_end());
    if (!ended) {
      running.push_back(*std::move(next));
    } else if (rank < wanted) {
      add_hypothesis(*std::move(next), generated_);
    }
  }
  beams_ = std::move(running);
  finished_ = beams_.empty() || !can_improve();
}

void BeamSession::add_hypothesis(Beam beam, int64_t length) {
  const double score = this->score(beam.log_prob, std::max<int64_t>(1, length));
  const auto worse = std::find_if(hypotheses_.begin(), hypotheses_.end(),
                                  [&](const Hypothesis& other) { return other.score < score; });
  hypotheses_.insert(worse, {std::move(beam.tokens), score});
  if (static_cast<int64_t>(hypotheses_.size()) > options_.num_beams) {
    hypotheses_.pop_back();
  }
}

double BeamSession::score(double log_prob, int64_t length) const {
  return log_prob / std::pow(static_cast<double>(length), options_.length_penalty);
}

bool BeamSession::can_improve() const {
  if (static_cast<int64_t>(hypotheses_.size()) < options_.num_beams) {
    return true;
  }
  if (options_.early_stopping == EarlyStopping::kTrue) {
    return false;
  }
  const bool patient =
      options_.early_stopping == EarlyStopping::kNever && options_.length_penalty > 0.0;
  return score(beams_.front().log_prob, patient ? longest_ : generated_) > hypotheses_.back().score;
}

StopReason BeamSession::stop_reason(TokenSpan output) const {
  if (output.empty()) {
    return StopReason::kGrammarLimit;
  }
  if (const auto reason = request_.stop.reason(output.back())) {
    return *reason;
  }
  if (request_.constraint.grammar != nullptr) {
    GrammarMatcher place(request_.constraint.grammar);
    for (const Token token : output) {
      (void)place.accept(token);
    }
    if (place.can_only_end()) {
      return place.is_ended() ? StopReason::kEndOfSequence : StopReason::kGrammarEnd;
    }
    if (std::ssize(output) < longest_) {
      return StopReason::kGrammarLimit;
    }
  }
  return longest_ < request_.stop.max_new_tokens ? StopReason::kContextFull
                                                 : StopReason::kMaxNewTokens;
}

double BeamSession::lap() {
  const Clock::time_point now = Clock::now();
  return std::chrono::duration<double>(now - std::exchange(mark_, now)).count();
}

void BeamSession::prefilled() {
  generation_.prefill_seconds = lap();
  MaskTimer::take();
}

void BeamSession::drafted() { step_.draft_seconds = lap(); }

void BeamSession::verified() { step_.verify_seconds = lap(); }

void BeamSession::end_step(const StepStatistics& counts) {
  StepStatistics step = counts;
  step.draft_seconds = step_.draft_seconds;
  step.verify_seconds = step_.verify_seconds;
  step.other_seconds = lap();
  step.mask_seconds = MaskTimer::take();
  generation_.steps.push_back(step);
  step_ = {};
  if (request_.on_tokens) {
    request_.on_tokens({});  // no token is certain yet, but the caller may want to interrupt
  }
}

Generation BeamSession::finish() && {
  SPECDEC_CHECK(finished_ && !hypotheses_.empty(), "the beam search is not over");
  for (const StepStatistics& step : generation_.steps) {
    generation_.decode_seconds += step.draft_seconds + step.verify_seconds + step.other_seconds;
  }
  const auto returned = static_cast<size_t>(options_.num_return_sequences);
  hypotheses_.resize(std::min(hypotheses_.size(), returned));
  const std::vector<Token>& best = hypotheses_.front().tokens;
  generation_.tokens.assign(best.begin() + static_cast<int64_t>(request_.prompt.size()),
                            best.end());
  generation_.stop_reason = stop_reason(generation_.tokens);
  generation_.hypotheses = std::move(hypotheses_);
  if (request_.on_tokens) {
    request_.on_tokens(generation_.tokens);
  }
  return std::move(generation_);
}

}  // namespace specdec
