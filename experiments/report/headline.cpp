#include "experiments/report/headline.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "experiments/report/conditions.h"
#include "experiments/report/report_text.h"

namespace specdec {
namespace {

constexpr size_t kMaxHeadlines = 6;

std::string interval_words(const std::optional<Interval>& interval) {
  return interval ? fmt::format(" (95 % interval {:.2f} to {:.2f})", interval->low, interval->high)
                  : "";
}

/// How the interval came about, and what it does not tell.
std::string remark(const FastestArm& fastest) {
  const Speedup& speedup = *fastest.row->speedup;
  std::string text;
  if (!fastest.interval) {
    text +=
        fmt::format(" There are too few questions for an interval: {}, and at least {} are needed.",
                    speedup.questions, kMinQuestions);
  } else if (speedup.ratio > 1.0 && fastest.interval->low <= 1.0) {
    text += " The interval contains 1: these questions do not show that it is faster.";
  }
  if (fastest.arms > 1) {
    text += fmt::format(
        " It was selected as the fastest of {} strategies and settings{} on these questions{}; "
        "expect somewhat less on others.",
        fastest.arms,
        fastest.conditions > 1 ? fmt::format(" under {} conditions", fastest.conditions) : "",
        fastest.interval ? ", and its intervals are corrected for that (Bonferroni)" : "");
  }
  return text;
}

std::string conclusion_words(const QualityComparison& quality) {
  const std::string margin = fmt::format("worse by more than {:g} points", 100 * quality.margin);
  switch (quality.conclusion) {
    case QualityConclusion::kNotWorse:
      return "it is not " + margin;
    case QualityConclusion::kWorse:
      return "it is " + margin;
    case QualityConclusion::kCannotTell:
      return quality.first_share < kQualityFloor
                 ? fmt::format(
                       "with a baseline below {:.0f} % a loss would not show, so the comparison is "
                       "inconclusive",
                       100 * kQualityFloor)
                 : fmt::format(
                       "with a baseline above {:.0f} % the questions are too easy to show that it "
                       "is not {}",
                       100 * kQualityCeiling, margin);
    case QualityConclusion::kUndecided:
      break;
  }
  return "these questions do not settle whether it is " + margin;
}

/// " (95 % interval of the difference ...)", the one behind the conclusion.
std::string difference_words(const QualityComparison& quality) {
  const auto& interval = quality.arms > 1 ? quality.corrected : quality.interval;
  return interval
             ? fmt::format(" (95 % interval of the difference {:+.1f} to {:+.1f} points{})",
                           100 * interval->low, 100 * interval->high,
                           quality.arms > 1 ? fmt::format(", corrected for {} lossy strategies and "
                                                          "settings (Bonferroni)",
                                                          quality.arms)
                                            : "")
             : "";
}

/// " right on 61.0 % of ..."; "" when nothing was scored.
std::string answer_words(const SummaryRow& row, const std::string& first) {
  if (!row.quality) {
    return "";
  }
  const QualityComparison& quality = *row.quality;
  return fmt::format(" correct on {:.1f} % of {} question{}, {} on {:.1f} %{}; {}",
                     100 * quality.share, quality.questions, quality.questions == 1 ? "" : "s",
                     first, 100 * quality.first_share, difference_words(quality),
                     conclusion_words(quality));
}

/// What the target says of its texts, after answer_words; "" when they were not measured.
std::string log_prob_words(const SummaryRow& row, const std::string& first) {
  if (!row.log_probs) {
    return "";
  }
  const LogProbComparison& texts = *row.log_probs;
  const std::string begin = row.quality ? "; its texts" : " its texts";
  const std::string interval = texts.interval
                                   ? fmt::format(" (95 % interval {:+.3f} to {:+.3f})",
                                                 texts.interval->low, texts.interval->high)
                                   : "";
  if (!texts.interval || (texts.interval->low <= 0.0 && texts.interval->high >= 0.0)) {
    return fmt::format(
        "{} differ from {}'s by {:+.3f} nats per token{}{}", begin, first, texts.difference,
        interval,
        texts.interval ? ", which is not significant" : ": too few questions for an interval");
  }
  const bool more = texts.difference > 0.0;
  return fmt::format("{} are {} likely than {}'s, by {:.3f} nats per token{}{}", begin,
                     more ? "more" : "less", first, std::abs(texts.difference), interval,
                     more ? ": not better, but closer to the modes" : "");
}

/// Words on the total variation, which follow the others.
std::string total_variation_words(const std::optional<double>& bound) {
  if (!bound) {
    return "";
  }
  return *bound > 0.0 ? fmt::format(
                            "; the total variation from the target is at least {:.3f} per token "
                            "(95 % confidence)",
                            *bound)
                      : "; no total variation from the target was detected, which does not prove "
                        "that there is none";
}

void correct_intervals(FastestArm& fastest) {
  fastest.interval = selected_interval(*fastest.row->speedup, fastest.arms);
  if (fastest.row->end_to_end) {
    fastest.end_to_end_interval = selected_interval(*fastest.row->end_to_end, fastest.arms);
  }
}

std::string sentence(const Report& report, const FastestArm& fastest) {
  const SummaryRow& row = *fastest.row;
  const std::string& first = report.summary.rows.front().strategy;
  const auto& end_to_end = row.end_to_end;
  const std::string name = choice_name(report, row);
  const std::string where = fastest.condition.empty() ? "" : "At " + fastest.condition + ", ";
  const std::string rest =
      fmt::format("{}{} over {} question{}.{}",
                  end_to_end ? fmt::format(", {:.2f} times end to end", end_to_end->ratio) : "",
                  interval_words(fastest.end_to_end_interval), row.speedup->questions,
                  row.speedup->questions == 1 ? "" : "s", remark(fastest));
  if (row.speedup->ratio <= 1.0) {
    return fmt::format(
        "{}{} strategy was faster than {}; {} came nearest, at {:.2f} times its speed{}{}", where,
        where.empty() ? "No" : "no", first, name, row.speedup->ratio,
        interval_words(fastest.interval), rest);
  }
  return fmt::format("{}{} decoded {:.2f} times as fast as {}{}{}", where, name, row.speedup->ratio,
                     first, interval_words(fastest.interval), rest);
}

/// Headline of a report without a fastest arm.
std::string no_arm_words(const Report& report) {
  bool is_compared = false;
  for (const SummaryRow& row : report.summary.rows) {
    if (row.category.empty() && !is_lossy_row(report, row) && is_noise(row)) {
      return "No drafted token was accepted by a lossless strategy, so that differences in speed "
             "are noise of the measurement.";
    }
    is_compared = is_compared || row.speedup.has_value();
  }
  return is_compared ? "Only lossy strategies were compared: their speed stands in the tables, "
                       "beside what it costs in quality."
                     : "There is nothing to compare yet.";
}

/// Why the row's speed-up cannot be; "" where it can.
std::string implausible_words(const Report& report, const SummaryRow& row) {
  const auto& impossible = row.impossible;
  const bool has_interval = impossible && impossible->questions >= kMinQuestions;
  if (is_noise(row) && !has_interval) {
    return fmt::format(
        "No token that {} drafted was accepted, so its speed-up of {:.2f} is noise of the "
        "measurement.",
        row_name(report, row), row.speedup->ratio);
  }
  return impossible
             ? fmt::format(
                   "Speculation cannot explain the speed-up of {}: on the {} question{} with equal "
                   "texts it is {}{:.2f}, but its steps add only {:.2f} times as many tokens. This "
                   "points to a measurement error.",
                   row_name(report, row), impossible->questions,
                   impossible->questions == 1 ? "" : "s", has_interval ? "at least " : "",
                   impossible->low, impossible->step_ratio)
             : "";
}

}  // namespace

bool is_noise(const SummaryRow& row) {
  return !row.is_first && row.speedup && row.speedup->ratio > 1.0 && row.counts.drafted > 0 &&
         row.counts.accepted == 0;
}

std::vector<FastestArm> fastest_arms(const Report& report) {
  std::vector<FastestArm> all;
  for (const SummaryRow& row : report.summary.rows) {
    if (!row.category.empty() || !row.speedup || is_lossy_row(report, row) || is_noise(row)) {
      continue;
    }
    const std::string condition = condition_of(report, row.sweep_point);
    auto fastest = std::find_if(all.begin(), all.end(), [&](const FastestArm& each) {
      return each.condition == condition;
    });
    if (fastest == all.end()) {
      fastest = all.insert(all.end(), {.row = &row, .condition = condition});
    }
    ++fastest->arms;
    if (row.speedup->ratio > fastest->row->speedup->ratio) {
      fastest->row = &row;
    }
  }
  for (FastestArm& fastest : all) {
    correct_intervals(fastest);
  }
  return all;
}

std::optional<FastestArm> fastest_arm(const Report& report) {
  const auto all = fastest_arms(report);
  const auto found =
      std::max_element(all.begin(), all.end(), [](const FastestArm& a, const FastestArm& b) {
        return a.row->speedup->ratio < b.row->speedup->ratio;
      });
  if (found == all.end()) {
    return std::nullopt;
  }
  FastestArm fastest = *found;
  fastest.arms = 0;
  for (const FastestArm& each : all) {
    fastest.arms += each.arms;
  }
  fastest.conditions = std::ssize(all);
  correct_intervals(fastest);
  return fastest;
}

std::string headline(const Report& report) {
  const auto fastest = fastest_arm(report);
  if (fastest) {
    return sentence(report, *fastest);
  }
  return no_arm_words(report);
}

std::vector<std::string> headlines(const Report& report) {
  const auto all = fastest_arms(report);
  if (all.size() < 2 || all.size() > kMaxHeadlines) {
    return {headline(report)};
  }
  std::vector<std::string> sentences;
  for (const FastestArm& fastest : all) {
    sentences.push_back(sentence(report, fastest));
  }
  return sentences;
}

std::vector<std::string> quality_notes(const Report& report, const ReportStrategy& strategy) {
  std::vector<std::string> notes;
  for (const SummaryRow& row : report.summary.rows) {
    if (row.strategy != strategy.name || !row.category.empty()) {
      continue;
    }
    const std::string& first = report.summary.rows.front().strategy;
    const std::string words = answer_words(row, first) + log_prob_words(row, first) +
                              total_variation_words(row.total_variation_bound);
    if (!words.empty()) {
      notes.push_back(row_name(report, row) + " is lossy:" + words + ".");
    }
  }
  if (notes.empty()) {
    notes.push_back(
        fmt::format("{} is lossy: its output does not follow the target's distribution, and this "
                    "report does not measure what that costs in quality.",
                    strategy.name));
  }
  return notes;
}

std::vector<std::string> measurement_warnings(const Report& report) {
  std::vector<std::string> warnings;
  const Environment& machine = report.environment;
  warnings = machine.warnings;
  const auto signs = signs_of_load(report.summary.load, machine.cores, machine.threads);
  if (!signs.empty()) {
    warnings.push_back(
        fmt::format("The machine was busy: {}. Times and speed-ups are noisy; repeat the run on an "
                    "idle machine.",
                    fmt::join(signs, "; ")));
  }
  for (const SummaryRow& row : report.summary.rows) {
    const std::string implausible = implausible_words(report, row);
    if (row.category.empty() && !implausible.empty()) {
      warnings.push_back(implausible);
    }
  }
  return warnings;
}

}  // namespace specdec
