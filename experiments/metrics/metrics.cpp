#include "experiments/metrics/metrics.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"

namespace specdec {
namespace {

void grow(std::vector<int64_t>& counts, int64_t size) {
  counts.resize(std::max(counts.size(), static_cast<size_t>(size)));
}

std::optional<double> ratio(double numerator, double denominator) {
  if (!(denominator > 0.0)) {
    return std::nullopt;
  }
  return numerator / denominator;
}

double as_double(int64_t count) { return static_cast<double>(count); }

void check_step(const StepStatistics& step) {
  const std::string mistake = step_mistake(step);
  SPECDEC_CHECK(mistake.empty(), "{}", mistake);
}

/// Adds the overlaps of a chain: what a tree logs is not by position.
void add_overlaps(const StepStatistics& step, Counts& counts) {
  if (step.depth != step.drafted || static_cast<int64_t>(step.overlaps.size()) != step.drafted) {
    return;
  }
  grow(counts.overlapped_at, step.depth);
  counts.overlap_at.resize(counts.overlapped_at.size());
  for (int64_t i = 0; i < std::min(step.accepted + 1, step.depth); ++i) {
    const auto position = static_cast<size_t>(i);
    ++counts.overlapped_at[position];
    counts.overlap_at[position] += step.overlaps[position];
  }
}

/// What a corrected generation took beyond its own steps: the samples that were not taken.
double discarded_seconds_of(const Generation& generation) {
  if (generation.samples < 2 && generation.stop_reason != StopReason::kNoneAccepted) {
    return 0.0;
  }
  double rest = generation.decode_seconds;
  for (const StepStatistics& step : generation.steps) {
    rest -= step.draft_seconds + step.verify_seconds + step.other_seconds;
  }
  return std::max(0.0, rest);
}

}  // namespace

bool is_cut(const StepStatistics& step) {
  return step.accepted > 0 && step.committed <= step.accepted;
}

std::string step_mistake(const StepStatistics& step) {
  if (step.accepted >= 0 && step.accepted <= step.depth && step.depth <= step.drafted &&
      step.committed >= 0) {
    return "";
  }
  return fmt::format(
      "a step states drafted {}, depth {}, accepted {}, committed {}; it must be "
      "0 <= accepted <= depth <= drafted and 0 <= committed",
      step.drafted, step.depth, step.accepted, step.committed);
}

bool is_constrained(const Generation& generation) {
  const StopReason reason = generation.stop_reason;
  return !generation.log_allowed.empty() ||
         (generation.tokens.empty() &&
          (reason == StopReason::kNoneAccepted || reason == StopReason::kGrammarLimit));
}

void Counts::add_grammar(const Generation& generation) {
  for (const StepStatistics& step : generation.steps) {
    mask_seconds += step.mask_seconds;
    for (size_t i = 0; i < by_freedom.size(); ++i) {
      by_freedom[i].drafted += step.by_freedom[i].drafted;
      by_freedom[i].accepted += step.by_freedom[i].accepted;
    }
  }
  masked_tokens += std::ssize(generation.log_allowed);
  log_allowed += std::accumulate(generation.log_allowed.begin(), generation.log_allowed.end(), 0.0);
  mask_fallbacks += generation.mask_fallbacks;
  if (is_constrained(generation)) {
    ++grammar_outputs;
    samples += generation.samples;
    complete += ends_text(generation.stop_reason) ? 1 : 0;
  }
}

void Counts::add(const Generation& generation) {
  add_grammar(generation);
  ++generations;
  tokens += static_cast<int64_t>(generation.tokens.size());
  steps += static_cast<int64_t>(generation.steps.size());
  prefill_seconds += generation.prefill_seconds;
  decode_seconds += generation.decode_seconds;
  discarded_seconds += discarded_seconds_of(generation);
  for (const StepStatistics& step : generation.steps) {
    check_step(step);
    drafting_steps += step.drafted > 0 ? 1 : 0;
    drafted += step.drafted;
    accepted += step.accepted;
    committed += step.committed;
    draft_seconds += step.draft_seconds;
    prompt_draft_seconds += step.prompt_draft_seconds;
    verify_seconds += step.verify_seconds;
    read_backs += step.read_backs;
    draft_read_backs += step.draft_read_backs;
    for (auto* counts : {&drafted_at, &reached_at, &accepted_at}) {
      grow(*counts, step.depth);
    }
    for (int64_t i = 0; i < step.depth; ++i) {
      const auto position = static_cast<size_t>(i);
      ++drafted_at[position];
      reached_at[position] += step.accepted >= i ? 1 : 0;
      accepted_at[position] += step.accepted > i ? 1 : 0;
    }
    add_overlaps(step, *this);
    grow(steps_committing, step.committed + 1);
    ++steps_committing[static_cast<size_t>(step.committed)];
  }
}

std::optional<double> acceptance_rate(const Counts& counts) {
  return ratio(as_double(counts.accepted), as_double(counts.drafted));
}

std::optional<double> acceptance_rate(const Counts& counts, Freedom freedom) {
  const DraftCounts& drafts = counts.by_freedom[static_cast<size_t>(freedom)];
  return ratio(as_double(drafts.accepted), as_double(drafts.drafted));
}

std::optional<double> mask_seconds_per_token(const Counts& counts) {
  return counts.masked_tokens == 0 ? std::nullopt
                                   : ratio(counts.mask_seconds, as_double(counts.committed));
}

std::optional<double> log_allowed_per_token(const Counts& counts) {
  return ratio(counts.log_allowed, as_double(counts.masked_tokens));
}

std::optional<double> complete_share(const Counts& counts) {
  return ratio(as_double(counts.complete), as_double(counts.grammar_outputs));
}

std::vector<std::optional<double>> conditional_acceptance(const Counts& counts) {
  std::vector<std::optional<double>> rates;
  for (size_t i = 0; i < counts.accepted_at.size(); ++i) {
    const bool known = i < counts.reached_at.size();  // imported counts may not tell
    rates.push_back(known ? ratio(as_double(counts.accepted_at[i]), as_double(counts.reached_at[i]))
                          : std::nullopt);
  }
  return rates;
}

std::vector<double> unconditional_acceptance(const Counts& counts) {
  std::vector<double> rates;
  for (const int64_t accepted : counts.accepted_at) {
    rates.push_back(as_double(accepted) / as_double(counts.drafting_steps));
  }
  return rates;
}

bool has_trees(const Counts& counts) {
  const auto levels =
      std::accumulate(counts.drafted_at.begin(), counts.drafted_at.end(), int64_t{0});
  return !counts.drafted_at.empty() && counts.drafted > levels;
}

std::vector<std::optional<double>> exact_acceptance(const Counts& counts) {
  std::vector<std::optional<double>> rates;
  for (size_t i = 0; i < counts.overlapped_at.size(); ++i) {
    rates.push_back(ratio(counts.overlap_at[i], as_double(counts.overlapped_at[i])));
  }
  return rates;
}

std::optional<double> tokens_per_step(const Counts& counts) {
  return ratio(as_double(counts.committed), as_double(counts.steps));
}

std::optional<double> accepted_per_step(const Counts& counts) {
  return ratio(as_double(counts.accepted), as_double(counts.steps));
}

std::optional<double> acceptance_length(const Counts& counts) {
  return ratio(as_double(counts.drafting_steps + counts.accepted),
               as_double(counts.drafting_steps));
}

std::optional<double> drafted_per_step(const Counts& counts) {
  return ratio(as_double(counts.drafted), as_double(counts.steps));
}

std::optional<ReadBackRates> read_backs_per_step(const Counts& counts) {
  ReadBacks all = counts.read_backs;
  all += counts.draft_read_backs;
  if (all.count == 0 || counts.steps == 0) {
    return std::nullopt;
  }
  const double steps = as_double(counts.steps);
  return ReadBackRates{.drafting = as_double(counts.draft_read_backs.count) / steps,
                       .verifying = as_double(counts.read_backs.count) / steps,
                       .bytes = as_double(all.bytes) / steps};
}

std::optional<TimeSplit> time_split(const Counts& counts) {
  // Step times are measured inside the decode time; rounding must not make the rest negative.
  const double draft = counts.draft_seconds - counts.prompt_draft_seconds;
  const double stated = draft + counts.verify_seconds;
  const double discarded = counts.discarded_seconds;
  const double total =
      std::max(counts.decode_seconds - counts.prompt_draft_seconds, stated + discarded);
  if (!(total > 0.0)) {
    return std::nullopt;
  }
  return TimeSplit{.draft = draft / total,
                   .verify = counts.verify_seconds / total,
                   .other = (total - stated - discarded) / total,
                   .discarded = discarded / total};
}

std::optional<double> decode_tokens_per_second(const Counts& counts) {
  return ratio(as_double(counts.committed), counts.decode_seconds);
}

std::optional<double> total_tokens_per_second(const Counts& counts) {
  return ratio(as_double(counts.tokens),
               counts.prefill_seconds + counts.decode_seconds + counts.unsplit_seconds);
}

std::optional<double> mean_question_speed(std::span<const QuestionTime> questions) {
  double sum = 0.0;
  int64_t timed = 0;
  for (const QuestionTime& question : questions) {
    if (question.seconds > 0.0) {
      sum += as_double(question.tokens) / question.seconds;
      ++timed;
    }
  }
  return ratio(sum, as_double(timed));
}

}  // namespace specdec
