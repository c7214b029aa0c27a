#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "experiments/metrics/cache_records.h"
#include "experiments/metrics/metrics.h"

namespace specdec {
namespace {

/// A strategy at a point of the sweep.
struct Place {
  std::string sweep_point, strategy;
  auto operator<=>(const Place&) const = default;  // NOLINT(modernize-use-nullptr)
};

class Summarizer {
 public:
  Summarizer(std::span<const GenerationRecord> records, const SummaryOptions& options)
      : records_(records),
        options_(options),
        references_(reference_points(records, options.condition_of)) {
    for (size_t i = 0; i < records.size(); ++i) {
      const GenerationRecord& record = records[i];
      const Place place{record.key.sweep_point, record.key.strategy};
      if (by_place_.find(place) == by_place_.end()) {
        places_.push_back(place);
      }
      by_place_[place].push_back(i);
      const std::string category = category_of(record);
      if (std::find(categories_.begin(), categories_.end(), category) == categories_.end()) {
        categories_.push_back(category);
      }
    }
  }

  Summary summarize() const {
    Summary summary;
    for (const GenerationRecord& record : records_) {
      if (record.load) {
        summary.load.add(*record.load);
      }
    }
    const QuestionSizes all = largest_sizes(nullptr);
    for (const Place& place : places_) {
      summary.rows.push_back(make_row(place, nullptr, all));
      compare_tokens(place, summary);
    }
    if (categories_.size() > 1) {
      for (const std::string& category : categories_) {
        const QuestionSizes of_category = largest_sizes(&category);
        for (const Place& place : places_) {
          SummaryRow row = make_row(place, &category, of_category);
          if (row.counts.generations > 0) {
            summary.rows.push_back(std::move(row));
          }
        }
      }
    }
    return summary;
  }

 private:
  std::string category_of(const GenerationRecord& record) const {
    if (record.category.empty()) {
      return "(no category)";
    }
    return options_.category_of ? options_.category_of(record.category) : record.category;
  }

  /// Where the first strategy's records to compare with `place` are; none where there are none.
  std::optional<Place> first_for(const Place& place) const {
    const auto found = references_.find(place.sweep_point);
    return found == references_.end()
               ? std::nullopt
               : std::optional(Place{found->second, places_.front().strategy});
  }

  /// The records that those at a place are compared with, of one category, or of all for nullptr.
  std::vector<const GenerationRecord*> first_records(const Place& place,
                                                     const std::string* category) const {
    const auto first = first_for(place);
    return first ? records_at(*first, category) : std::vector<const GenerationRecord*>();
  }

  /// The records at a place, of one category, or of all for nullptr.
  std::vector<const GenerationRecord*> records_at(const Place& place,
                                                  const std::string* category) const {
    std::vector<const GenerationRecord*> found;
    for (const size_t i : by_place_.at(place)) {
      if (category == nullptr || category_of(records_[i]) == *category) {
        found.push_back(&records_[i]);
      }
    }
    return found;
  }

  /// Questions of the whole run with the most generations that a place has of each.
  QuestionSizes largest_sizes(const std::string* category) const {
    QuestionSizes all;
    for (const Place& place : places_) {
      raise_sizes(all, question_sizes(records_at(place, category)));
    }
    return all;
  }

  static QuestionSizes paired_sizes(std::span<const GenerationPair> pairs) {
    QuestionSizes sizes;
    for (const GenerationPair& pair : pairs) {
      ++sizes[question_of(*pair.other)];
    }
    return sizes;
  }

  SummaryRow make_row(const Place& place, const std::string* category,
                      const QuestionSizes& all) const {
    SummaryRow row{.sweep_point = place.sweep_point,
                   .strategy = place.strategy,
                   .category = category == nullptr ? "" : *category};
    row.is_first = place.strategy == places_.front().strategy;
    const auto own = records_at(place, category);
    row.log_prob = mean_log_prob(own);
    const auto first = first_records(place, category);
    row.spec_bench = spec_bench_speed(own, first);
    add_counts(own, row);
    const QuestionSizes sizes = question_sizes(own);
    row.missing = missing_questions(all, sizes, sizes);
    if (!row.is_first) {
      const auto pairs = pair_generations(first, own);
      const auto questions = pair_questions(pairs);
      row.speedup = decode_speedup(questions);
      row.missing = missing_questions(all, sizes, paired_sizes(pairs));
      count_without_speed(questions, row.missing);
      row.end_to_end = end_to_end_speedup(questions);
      row.impossible = impossible_speedup(pairs);
      row.quality = compare_quality(pairs, quality_options());
      row.validity = compare_quality(pairs, quality_options(), &GenerationRecord::is_valid);
      row.log_probs = compare_log_probs(pairs);
      row.total_variation_bound = total_variation_bound(own);
    }
    if (has_several_firsts() && place != places_.front()) {
      row.plain = compare_with_plain(pair_generations(records_at(places_.front(), category), own),
                                     quality_options());
    }
    return row;
  }

  static void count_without_speed(std::span<const QuestionPair> questions,
                                  MissingQuestions& missing) {
    for (const QuestionPair& question : questions) {
      if (has_decode_times(question)) {
        continue;
      }
      if (question.first.none_accepted + question.other.none_accepted > 0) {
        ++missing.none_accepted;
        missing.none_accepted_seconds += question.other.total_seconds;
      } else {
        ++missing.untimed;
      }
    }
  }

  QualityOptions quality_options() const {
    return {.margin = options_.quality_margin, .arms = options_.lossy_arms};
  }

  bool has_several_firsts() const {
    return std::any_of(places_.begin(), places_.end(),
                       [&](const Place& place) { return first_for(place) != places_.front(); });
  }

  /// Share of the records with the flag set, among those that have it.
  static std::optional<double> share_of(std::span<const GenerationRecord* const> records,
                                        AnswerFlag flag) {
    int64_t yes = 0;
    int64_t known = 0;
    for (const GenerationRecord* record : records) {
      known += record->*flag ? 1 : 0;
      yes += (record->*flag).value_or(false) ? 1 : 0;
    }
    return known == 0 ? std::nullopt
                      : std::optional(static_cast<double>(yes) / static_cast<double>(known));
  }

  static std::optional<double> bytes_per_second(std::span<const GenerationRecord* const> records) {
    double bytes = 0.0;
    double seconds = 0.0;
    for (const GenerationRecord* record : records) {
      if (record->bytes_per_step) {
        bytes += *record->bytes_per_step * static_cast<double>(record->generation.steps.size());
        for (const StepStatistics& step : record->generation.steps) {
          seconds += step.verify_seconds;
        }
      }
    }
    return bytes > 0.0 && seconds > 0.0 ? std::optional(bytes / seconds) : std::nullopt;
  }

  /// A number of the generations that have it.
  static std::vector<double> numbers_of(std::span<const GenerationRecord* const> records,
                                        std::optional<double> GenerationRecord::*number) {
    std::vector<double> numbers;
    for (const GenerationRecord* record : records) {
      if (record->*number) {
        numbers.push_back(*(record->*number));
      }
    }
    return numbers;
  }

  static std::optional<double> mean_number(std::span<const GenerationRecord* const> records,
                                           std::optional<double> GenerationRecord::*number) {
    const std::vector<double> numbers = numbers_of(records, number);
    return numbers.empty() ? std::nullopt : std::optional(mean_of(numbers));
  }

  static void add_cache(std::span<const GenerationRecord* const> records, SummaryRow& row) {
    const auto bytes = numbers_of(records, &GenerationRecord::cache_bytes);
    if (!bytes.empty()) {
      row.cache_bytes = *std::max_element(bytes.begin(), bytes.end());
    }
    row.cache_fragmentation = mean_number(records, &GenerationRecord::cache_fragmentation);
    for (const GenerationRecord* record : records) {
      if (record->cache_tiers) {
        add_tiers(*record->cache_tiers,
                  row.cache_tiers ? *row.cache_tiers : row.cache_tiers.emplace());
      }
    }
  }

  static void add_disk(std::span<const GenerationRecord* const> records, SummaryRow& row) {
    const auto total = [&](std::optional<double> GenerationRecord::*number) {
      const std::vector<double> numbers = numbers_of(records, number);
      return numbers.empty() ? std::nullopt
                             : std::optional(std::accumulate(numbers.begin(), numbers.end(), 0.0));
    };
    const auto bytes = total(&GenerationRecord::disk_bytes);
    const auto layers = total(&GenerationRecord::disk_layers);
    const auto ready = total(&GenerationRecord::disk_layers_ready);
    row.disk_wait_seconds = total(&GenerationRecord::disk_wait_seconds);
    if (bytes && row.counts.tokens > 0) {
      row.disk_bytes_per_token = *bytes / static_cast<double>(row.counts.tokens);
    }
    if (ready && layers.value_or(0.0) > 0.0) {
      row.disk_ready_share = *ready / *layers;
    }
  }

  static void add_counts(std::span<const GenerationRecord* const> records, SummaryRow& row) {
    std::map<std::string, Counts> by_question;
    for (const GenerationRecord* record : records) {
      row.counts.add(record->generation);
      by_question[question_of(*record)].add(record->generation);
    }
    row.questions = std::ssize(by_question);
    row.right_share = share_of(records, &GenerationRecord::is_right);
    row.valid_share = share_of(records, &GenerationRecord::is_valid);
    row.copied_share = mean_number(records, &GenerationRecord::copied_share);
    add_cache(records, row);
    add_disk(records, row);
    row.groups = group_steps(records);
    row.bytes_per_second = bytes_per_second(records);
    row.shortened = std::count_if(records.begin(), records.end(),
                                  [](const GenerationRecord* record) { return record->shortened; });
    row.unscored =
        std::count_if(records.begin(), records.end(),
                      [](const GenerationRecord* record) { return is_unscored(*record); });
    std::vector<QuestionShare> steps;
    std::vector<std::vector<QuestionShare>> positions(row.counts.reached_at.size());
    for (const auto& [question, counts] : by_question) {
      steps.push_back({static_cast<double>(counts.committed), static_cast<double>(counts.steps)});
      for (size_t i = 0; i < counts.reached_at.size(); ++i) {
        positions[i].push_back({static_cast<double>(counts.accepted_at[i]),
                                static_cast<double>(counts.reached_at[i])});
      }
    }
    row.tokens_per_step_interval = ratio_interval(steps);
    for (const auto& shares : positions) {
      row.position_intervals.push_back(
          {.questions = std::count_if(shares.begin(), shares.end(),
                                      [](const QuestionShare& share) { return share.whole > 0; }),
           .interval = share_interval(shares)});
    }
  }

  /// The first repeat's questions; tokens by `count`.
  template <class Count>
  static std::vector<QuestionTime> question_times(std::span<const GenerationRecord* const> records,
                                                  const Count& count) {
    std::map<std::string, QuestionTime> questions;
    for (const GenerationRecord* record : records) {
      if (record->key.repeat == 0) {
        QuestionTime& question = questions[question_of(*record)];
        question.tokens += count(*record);
        question.seconds += record->generation.prefill_seconds + record->generation.decode_seconds;
      }
    }
    std::vector<QuestionTime> times;
    for (const auto& [id, question] : questions) {
      times.push_back(question);
    }
    return times;
  }

  static std::optional<SpecBenchSpeed> spec_bench_speed(
      std::span<const GenerationRecord* const> own,
      std::span<const GenerationRecord* const> first) {
    const auto speed = mean_question_speed(question_times(
        own, [](const GenerationRecord& record) { return std::ssize(record.generation.tokens); }));
    if (!speed) {
      return std::nullopt;
    }
    SpecBenchSpeed result{.tokens_per_second = *speed};
    bool encoded = true;
    const auto baseline = question_times(first, [&](const GenerationRecord& record) {
      encoded = encoded && record.text_tokens >= 0;
      return record.text_tokens;
    });
    if (encoded) {
      result.baseline_speed = mean_question_speed(baseline);
    }
    if (result.baseline_speed && *result.baseline_speed > 0.0) {
      result.speedup = *speed / *result.baseline_speed;
    }
    return result;
  }

  void compare_tokens(const Place& place, Summary& summary) const {
    if (place.strategy == places_.front().strategy) {
      return;
    }
    std::map<std::pair<std::string, int64_t>, const Generation*> first;
    for (const GenerationRecord* record : first_records(place, nullptr)) {
      first[{record->key.prompt_id, record->key.repeat}] = &record->generation;
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
  const SummaryOptions& options_;
  std::vector<Place> places_;  // in order of appearance
  std::map<Place, std::vector<size_t>> by_place_;
  std::map<std::string, std::string> references_;  // by point of the sweep
  std::vector<std::string> categories_;            // in order of appearance
};

}  // namespace

int64_t compared_questions(const SummaryRow& row) {
  const int64_t paired = row.speedup ? row.speedup->questions : 0;
  return row.is_first ? row.questions : paired;
}

Summary summarize(std::span<const GenerationRecord> records, const SummaryOptions& options) {
  return Summarizer(records, options).summarize();
}

}  // namespace specdec
