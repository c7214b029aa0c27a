#include "experiments/metrics/loops.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace specdec {
namespace {

/// Where the first stretch with this period begins; tokens.size() when there is none.
size_t loop_start(TokenSpan tokens, size_t period) {
  const auto shortest = static_cast<size_t>(kShortestLoop);
  const size_t needed = std::max(static_cast<size_t>(kLoopRepetitions) * period, shortest);
  size_t repeated = 0;
  for (size_t i = period; i < tokens.size(); ++i) {
    repeated = tokens[i] == tokens[i - period] ? repeated + 1 : 0;
    if (repeated + period >= needed) {
      return i + 1 - needed;
    }
  }
  return tokens.size();
}

template <class Value>
void shorten(std::vector<Value>& values, size_t size) {
  values.erase(values.begin() + static_cast<std::ptrdiff_t>(std::min(size, values.size())),
               values.end());
}

double seconds_of(std::span<const StepStatistics> steps) {
  double seconds = 0.0;
  for (const StepStatistics& step : steps) {
    seconds += step.draft_seconds + step.verify_seconds + step.other_seconds;
  }
  return seconds;
}

using RowKey = std::tuple<std::string, std::string, std::string>;

RowKey key_of(const SummaryRow& row) { return {row.sweep_point, row.strategy, row.category}; }

}  // namespace

size_t loop_start(TokenSpan tokens) {
  size_t first = tokens.size();
  for (size_t period = 1; period <= static_cast<size_t>(kLongestLoopPeriod); ++period) {
    first = std::min(first, loop_start(tokens, period));
  }
  return first;
}

Generation before_loop(Generation generation) {
  const size_t start = loop_start(generation.tokens);
  if (start == generation.tokens.size()) {
    return generation;
  }
  size_t tokens = 1;  // which the prefill yields
  size_t steps = 0;
  size_t all = 1;
  for (const StepStatistics& step : generation.steps) {
    all += static_cast<size_t>(step.committed);
    if (all <= start) {
      tokens = all;
      ++steps;
    }
  }
  if (all != generation.tokens.size()) {
    return generation;
  }
  const double whole = seconds_of(generation.steps);
  shorten(generation.steps, steps);
  generation.decode_seconds *= whole > 0.0 ? seconds_of(generation.steps) / whole : 0.0;
  generation.stop_reason = StopReason::kMaxNewTokens;
  shorten(generation.tokens, tokens);
  shorten(generation.gaps, tokens);
  shorten(generation.log_allowed, tokens);
  shorten(generation.log_probs, tokens);
  return generation;
}

std::vector<GenerationRecord> before_loops(std::span<const GenerationRecord> records) {
  std::vector<GenerationRecord> shortened(records.begin(), records.end());
  for (GenerationRecord& record : shortened) {
    const size_t all = record.generation.tokens.size();
    record.generation = before_loop(std::move(record.generation));
    record.shortened = record.generation.tokens.size() < all;
  }
  return shortened;
}

Summary summarize_before_loops(std::span<const GenerationRecord> records,
                               const SummaryOptions& options) {
  Summary summary = summarize(before_loops(records), options);
  Summary whole = summarize(records, options);
  summary.divergences = std::move(whole.divergences);
  summary.compared = whole.compared;
  std::map<RowKey, const SummaryRow*> whole_rows;
  for (const SummaryRow& row : whole.rows) {
    whole_rows[key_of(row)] = &row;
  }
  for (SummaryRow& row : summary.rows) {
    row.with_loops = whole_rows.at(key_of(row))->speedup;
  }
  return summary;
}

}  // namespace specdec
