#include "decoders/beam_session.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/kernels/probs.h"
#include "core/scores.h"
#include "core/stopwatch.h"
#include "decoders/draft_grammar.h"
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
  require_config(
      request.weights == nullptr,
      "beam search ranks sequences by the target's own probabilities: leave weights out, "
      "or use another strategy");
  require_config(!request.library_products,
                 "beams read parts of the text again, by exact products: leave library_products "
                 "out, or use another strategy");
}

/// Scores after a sequence: the logits with the request's bias. A row is always computed by itself,
/// so that it does not matter which others there are.
Scores scores_after(TokenSpan sequence, const Tensor& logits, const LogitBias& bias) {
  try {
    return {LogitRow::of(logits), bias, {}, nullptr};
  } catch (const Error&) {
    const bool forbidden = forbids_all(bias, nullptr, logits.size(0));
    throw Error(forbidden ? forbidden_logits() : damaged_logits(std::ssize(sequence)));
  }
}

/// Logarithm of the sum of exp(score).
double log_sum_exp(const Scores& scores) {
  return scores.best() + std::log(sum_of(scores.mass_sums(1.0)).sum);
}

/// The tokens of a beam, each once, ascending; none where they are not penalised.
std::vector<Token> penalised_tokens(const Beam& beam, double penalty) {
  if (penalty == 1.0) {
    return {};
  }
  const std::set<Token> seen(beam.tokens.begin(), beam.tokens.end());
  return {seen.begin(), seen.end()};
}

bool allows(const AllowedTokens& allowed, size_t token) {
  return allowed == nullptr ||
         (token / 32 < allowed->size() && has_token(*allowed, static_cast<Token>(token)));
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
      beams_{{.tokens = {request.prompt.begin(), request.prompt.end()}}} {
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

class BeamSession::Ranking {
 public:
  explicit Ranking(int64_t size) : size_(static_cast<size_t>(size)) {}

  /// The log-probability below which nothing more is ranked.
  double bar() const {
    return best_.size() < size_ ? -std::numeric_limits<double>::infinity() : best_.front().log_prob;
  }
  void offer(const Continuation& next) {
    const bool full = best_.size() == size_;
    if (std::isinf(next.log_prob) || (full && !(next < best_.front()))) {
      return;
    }
    if (full) {
      std::pop_heap(best_.begin(), best_.end());
      best_.pop_back();
    }
    best_.push_back(next);
    std::push_heap(best_.begin(), best_.end());
  }
  std::vector<Continuation> sorted() && {
    std::sort_heap(best_.begin(), best_.end());
    return std::move(best_);
  }

 private:
  size_t size_;
  std::vector<Continuation> best_;
};

void BeamSession::rank(size_t beam, const Tensor& logits, Ranking& ranking) {
  const Beam& before = beams_[beam];
  const Scores scores = scores_after(before.tokens, logits, request_.sampling.logit_bias);
  const double log_sum = log_sum_exp(scores);
  AllowedTokens allowed;
  if (before.grammar) {
    const ScopedSeconds timer(mask_seconds());
    const TokenMask mask = before.grammar->mask();
    if (mask.empty()) {
      return;
    }
    allowed = allowed_by(mask);
  }
  const double penalty = request_.sampling.repetition_penalty;
  const std::vector<Token> seen = penalised_tokens(before, penalty);
  auto next_seen = seen.begin();
  std::array<double, kProbsBlock> values;
  for (int64_t block = 0; block < std::ssize(scores.maxima()); ++block) {
    const auto first = static_cast<size_t>(block) * kProbsBlock;
    const size_t size = scores.size_of(block);
    const auto end_seen = std::lower_bound(next_seen, seen.end(), static_cast<Token>(first + size));
    const double most = scores.maxima()[static_cast<size_t>(block)] - log_sum;
    if (next_seen == end_seen && before.log_prob + most < ranking.bar()) {
      continue;
    }
    scores.fill(block, std::span(values).first(size));
    for (size_t i = 0; i < size; ++i) {
      double log_prob = values[i] - log_sum;
      if (next_seen != end_seen && static_cast<size_t>(*next_seen) == first + i) {
        log_prob *= log_prob < 0.0 ? penalty : 1.0 / penalty;
        ++next_seen;
      }
      if (before.log_prob + log_prob >= ranking.bar() && allows(allowed, first + i)) {
        ranking.offer({before.log_prob + log_prob, static_cast<int64_t>(beam),
                       static_cast<Token>(first + i)});
      }
    }
  }
}

std::vector<BeamSession::Continuation> BeamSession::best_continuations(
    std::span<const Tensor> logits) {
  Ranking ranking(continuations_);
  for (size_t beam = 0; beam < beams_.size(); ++beam) {
    rank(beam, logits[beam], ranking);
  }
  return std::move(ranking).sorted();
}

/// The beam that goes on with a token; nothing where the grammar reaches a limit.
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
  if (running.empty() && hypotheses_.empty()) {  // all else that ends a beam leaves a hypothesis
    throw Error(forbidden_logits());
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

void BeamSession::prefilled() {
  generation_.prefill_seconds = stopwatch_.lap();
  step_ = {};
}

void BeamSession::drafted() { step_.draft_seconds = stopwatch_.lap(); }

void BeamSession::verified() { step_.verify_seconds = stopwatch_.lap(); }

void BeamSession::end_step(const StepStatistics& counts) {
  StepStatistics step = counts;
  step.draft_seconds = step_.draft_seconds;
  step.verify_seconds = step_.verify_seconds;
  step.other_seconds = stopwatch_.lap();
  step.mask_seconds = step_.mask_seconds;
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
