#include "experiments/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "core/error.h"
#include "core/randomness.h"

namespace specdec {
namespace {

constexpr uint64_t kBootstrapSeed = 20220117;
constexpr int64_t kResamples = 2000;
constexpr size_t kTail = kResamples / 40;  // 2.5 % of the resamples

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
  SPECDEC_CHECK(step.accepted >= 0 && step.accepted <= step.depth && step.depth <= step.drafted &&
                    step.committed >= 0,
                "a step states drafted {}, depth {}, accepted {}, committed {}; it must be "
                "0 <= accepted <= depth <= drafted and 0 <= committed",
                step.drafted, step.depth, step.accepted, step.committed);
}

struct Totals {
  double first_seconds = 0.0, first_tokens = 0.0, other_seconds = 0.0, other_tokens = 0.0;

  void add(const PromptPair& pair) {
    first_seconds += pair.first_seconds;
    first_tokens += as_double(pair.first_tokens);
    other_seconds += pair.other_seconds;
    other_tokens += as_double(pair.other_tokens);
  }
  std::optional<double> speedup() const {
    if (!(first_seconds > 0.0 && first_tokens > 0.0 && other_seconds > 0.0 && other_tokens > 0.0)) {
      return std::nullopt;
    }
    return (first_seconds / first_tokens) / (other_seconds / other_tokens);
  }
};

/// Uniform indices below `count`, as two digits: a draw walks its weights, and the two walks of
/// sqrt(count) are shorter than one of count.
class IndexSampler {
 public:
  explicit IndexSampler(size_t count)
      : count_(count),
        weights_(static_cast<size_t>(std::ceil(std::sqrt(static_cast<double>(count)))), 1.0) {}

  size_t draw(Randomness& random) const {
    while (true) {
      const auto high = static_cast<size_t>(random.draw(weights_));
      const size_t index = high * weights_.size() + static_cast<size_t>(random.draw(weights_));
      if (index < count_) {
        return index;
      }
    }
  }

 private:
  size_t count_;
  std::vector<double> weights_;
};

std::optional<Interval> bootstrap_interval(std::span<const PromptPair> prompts) {
  if (prompts.size() < 2) {
    return std::nullopt;
  }
  CounterRandomness random(kBootstrapSeed);
  const IndexSampler indices(prompts.size());
  std::vector<double> ratios;
  ratios.reserve(kResamples);
  for (int64_t resample = 0; resample < kResamples; ++resample) {
    random.seek(resample, Purpose::kSample);
    Totals totals;
    for (size_t i = 0; i < prompts.size(); ++i) {
      totals.add(prompts[indices.draw(random)]);
    }
    if (const auto speedup = totals.speedup()) {
      ratios.push_back(*speedup);
    }
  }
  // Resamples without a token or time have no ratio; more than the tails of them, and no interval
  // is honest.
  if (ratios.size() + kTail < static_cast<size_t>(kResamples)) {
    return std::nullopt;
  }
  std::sort(ratios.begin(), ratios.end());
  return Interval{ratios[kTail - 1], ratios[ratios.size() - kTail]};
}

/// A strategy at a point of the sweep.
struct Place {
  std::string sweep_point, strategy;
  auto operator<=>(const Place&) const = default;
};

class Summarizer {
 public:
  explicit Summarizer(std::span<const GenerationRecord> records) : records_(records) {
    for (size_t i = 0; i < records.size(); ++i) {
      const GenerationRecord& record = records[i];
      const Place place{record.key.sweep_point, record.key.strategy};
      if (by_place_.find(place) == by_place_.end()) {
        places_.push_back(place);
      }
      by_place_[place].push_back(i);
      const std::string& category = category_of(record);
      if (std::find(categories_.begin(), categories_.end(), category) == categories_.end()) {
        categories_.push_back(category);
      }
    }
  }

  Summary summarize() const {
    Summary summary;
    for (const Place& place : places_) {
      summary.rows.push_back(make_row(place, nullptr));
      compare_tokens(place, summary);
    }
    if (categories_.size() > 1) {
      for (const std::string& category : categories_) {
        for (const Place& place : places_) {
          SummaryRow row = make_row(place, &category);
          if (row.counts.generations > 0) {
            summary.rows.push_back(std::move(row));
          }
        }
      }
    }
    return summary;
  }

 private:
  static const std::string& category_of(const GenerationRecord& record) {
    static const std::string none = "(no category)";
    return record.category.empty() ? none : record.category;
  }

  /// Where the first strategy's records to compare with `place` are.
  const Place& first_for(const Place& place) const {
    const std::string& first = places_.front().strategy;
    const auto same = by_place_.find(Place{place.sweep_point, first});
    return same == by_place_.end() ? places_.front() : same->first;
  }

  SummaryRow make_row(const Place& place, const std::string* category) const {
    SummaryRow row{.sweep_point = place.sweep_point,
                   .strategy = place.strategy,
                   .category = category == nullptr ? "" : *category};
    row.is_first = place.strategy == places_.front().strategy;
    const auto belongs = [&](const GenerationRecord& record) {
      return category == nullptr || category_of(record) == *category;
    };
    std::map<std::string, PromptPair> pairs;
    for (const size_t i : by_place_.at(place)) {
      const GenerationRecord& record = records_[i];
      if (belongs(record)) {
        row.counts.add(record.generation);
        add_seconds(record, pairs[record.key.prompt_id].other_seconds,
                    pairs[record.key.prompt_id].other_tokens);
      }
    }
    if (row.is_first) {
      return row;
    }
    for (const size_t i : by_place_.at(first_for(place))) {
      const GenerationRecord& record = records_[i];
      const auto pair = pairs.find(record.key.prompt_id);
      if (belongs(record) && pair != pairs.end()) {
        add_seconds(record, pair->second.first_seconds, pair->second.first_tokens);
      }
    }
    std::vector<PromptPair> shared;
    for (const auto& [prompt, pair] : pairs) {
      if (pair.first_tokens > 0 && pair.other_tokens > 0) {
        shared.push_back(pair);
      }
    }
    row.speedup = paired_speedup(shared);
    return row;
  }

  static void add_seconds(const GenerationRecord& record, double& seconds, int64_t& tokens) {
    seconds += record.generation.decode_seconds;
    for (const StepStatistics& step : record.generation.steps) {
      tokens += step.committed;
    }
  }

  void compare_tokens(const Place& place, Summary& summary) const {
    if (place.strategy == places_.front().strategy) {
      return;
    }
    std::map<std::pair<std::string, int64_t>, const Generation*> first;
    for (const size_t i : by_place_.at(first_for(place))) {
      const GenerationRecord& record = records_[i];
      first[{record.key.prompt_id, record.key.repeat}] = &record.generation;
    }
    for (const size_t i : by_place_.at(place)) {
      const GenerationRecord& record = records_[i];
      const auto found = first.find({record.key.prompt_id, record.key.repeat});
      if (found != first.end() && !found->second->gaps.empty() && !record.generation.gaps.empty()) {
        ++summary.compared;
        compare_tokens(*found->second, record, summary);
      }
    }
  }

  static void compare_tokens(const Generation& first, const GenerationRecord& other,
                             Summary& summary) {
    const std::vector<Token>& tokens = other.generation.tokens;
    const auto [in_first, in_other] =
        std::mismatch(first.tokens.begin(), first.tokens.end(), tokens.begin(), tokens.end());
    if (in_first == first.tokens.end() && in_other == tokens.end()) {
      return;
    }
    const auto position = static_cast<size_t>(in_first - first.tokens.begin());
    const auto gap = [&](const std::vector<double>& gaps) {
      return position < gaps.size() ? gaps[position] : std::numeric_limits<double>::quiet_NaN();
    };
    summary.divergences.push_back({.key = other.key,
                                   .position = static_cast<int64_t>(position),
                                   .gap_first = gap(first.gaps),
                                   .gap_other = gap(other.generation.gaps),
                                   .token_first = in_first == first.tokens.end() ? -1 : *in_first,
                                   .token_other = in_other == tokens.end() ? -1 : *in_other});
  }

  std::span<const GenerationRecord> records_;
  std::vector<Place> places_;  // in order of appearance
  std::map<Place, std::vector<size_t>> by_place_;
  std::vector<std::string> categories_;  // in order of appearance
};

}  // namespace

void Counts::add(const Generation& generation) {
  ++generations;
  tokens += static_cast<int64_t>(generation.tokens.size());
  steps += static_cast<int64_t>(generation.steps.size());
  prefill_seconds += generation.prefill_seconds;
  decode_seconds += generation.decode_seconds;
  for (const StepStatistics& step : generation.steps) {
    check_step(step);
    drafting_steps += step.drafted > 0 ? 1 : 0;
    drafted += step.drafted;
    accepted += step.accepted;
    committed += step.committed;
    draft_seconds += step.draft_seconds;
    verify_seconds += step.verify_seconds;
    for (auto* counts : {&drafted_at, &reached_at, &accepted_at}) {
      grow(*counts, step.depth);
    }
    for (int64_t i = 0; i < step.depth; ++i) {
      const auto position = static_cast<size_t>(i);
      ++drafted_at[position];
      reached_at[position] += step.accepted >= i ? 1 : 0;
      accepted_at[position] += step.accepted > i ? 1 : 0;
    }
    grow(steps_committing, step.committed + 1);
    ++steps_committing[static_cast<size_t>(step.committed)];
  }
}

std::optional<double> acceptance_rate(const Counts& counts) {
  return ratio(as_double(counts.accepted), as_double(counts.drafted));
}

std::vector<std::optional<double>> conditional_acceptance(const Counts& counts) {
  std::vector<std::optional<double>> rates;
  for (size_t i = 0; i < counts.accepted_at.size(); ++i) {
    rates.push_back(ratio(as_double(counts.accepted_at[i]), as_double(counts.reached_at[i])));
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

std::optional<TimeSplit> time_split(const Counts& counts) {
  // Step times are measured inside the decode time; rounding must not make the rest negative.
  const double stated = counts.draft_seconds + counts.verify_seconds;
  const double total = std::max(counts.decode_seconds, stated);
  if (!(total > 0.0)) {
    return std::nullopt;
  }
  return TimeSplit{.draft = counts.draft_seconds / total,
                   .verify = counts.verify_seconds / total,
                   .other = (total - stated) / total};
}

std::optional<double> decode_tokens_per_second(const Counts& counts) {
  return ratio(as_double(counts.committed), counts.decode_seconds);
}

std::optional<double> total_tokens_per_second(const Counts& counts) {
  return ratio(as_double(counts.tokens), counts.prefill_seconds + counts.decode_seconds);
}

std::optional<Speedup> paired_speedup(std::span<const PromptPair> prompts) {
  Totals totals;
  for (const PromptPair& pair : prompts) {
    totals.add(pair);
  }
  const auto speedup = totals.speedup();
  if (!speedup) {
    return std::nullopt;
  }
  return Speedup{.ratio = *speedup,
                 .interval = bootstrap_interval(prompts),
                 .prompts = static_cast<int64_t>(prompts.size())};
}

Summary summarize(std::span<const GenerationRecord> records) {
  return Summarizer(records).summarize();
}

}  // namespace specdec
