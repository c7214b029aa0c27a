#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "experiments/report/quality_columns.h"
#include "experiments/report/report_text.h"

namespace specdec {
namespace {

std::string speedup_cell(const SummaryRow& row, const std::optional<Speedup>& speedup) {
  if (row.is_first) {
    return "1 (reference)";
  }
  return speedup ? interval_text(speedup->ratio, speedup->interval) : "-";
}

std::string of_totals_cell(const SummaryRow& row) {
  if (row.is_first) {
    return "1 / 1";
  }
  return fmt::format(
      "{} / {}", number_text(row.speedup ? std::optional(row.speedup->of_totals) : std::nullopt, 2),
      number_text(row.end_to_end ? std::optional(row.end_to_end->of_totals) : std::nullopt, 2));
}
std::string decode_speed_cell(const SummaryRow& row) {
  return number_text(decode_tokens_per_second(row.counts), 1);
}
std::string total_speed_cell(const SummaryRow& row) {
  return number_text(total_tokens_per_second(row.counts), 1);
}
std::string acceptance_cell(const SummaryRow& row) {
  return percent_text(acceptance_rate(row.counts));
}
std::string tokens_per_step_cell(const SummaryRow& row) {
  return interval_text(tokens_per_step(row.counts), row.tokens_per_step_interval);
}
std::string accepted_per_step_cell(const SummaryRow& row) {
  return number_text(accepted_per_step(row.counts), 2);
}
std::string acceptance_length_cell(const SummaryRow& row) {
  return number_text(acceptance_length(row.counts), 2);
}
std::string drafted_per_step_cell(const SummaryRow& row) {
  return number_text(drafted_per_step(row.counts), 2);
}
std::string split_cell(const SummaryRow& row) {
  const auto split = time_split(row.counts);
  return split ? fmt::format("{:.0f} / {:.0f} / {:.0f} %", 100.0 * split->draft,
                             100.0 * split->verify, 100.0 * split->other)
               : "-";
}
std::string read_backs_cell(const SummaryRow& row) {
  const auto rates = read_backs_per_step(row.counts);
  return rates ? fmt::format("{:.2f} / {:.2f}", rates->drafting, rates->verifying) : "-";
}
std::string read_back_bytes_cell(const SummaryRow& row) {
  const auto rates = read_backs_per_step(row.counts);
  return rates ? number_text(rates->bytes, 0) : "-";
}
std::string generations_cell(const SummaryRow& row) {
  return fmt::format("{}", row.counts.generations);
}
std::string tokens_cell(const SummaryRow& row) { return fmt::format("{}", row.counts.tokens); }

std::string freedom_cell(const SummaryRow& row) {
  return fmt::format("{} / {} / {}", percent_text(acceptance_rate(row.counts, Freedom::kFree)),
                     percent_text(acceptance_rate(row.counts, Freedom::kConstrained)),
                     percent_text(acceptance_rate(row.counts, Freedom::kForced)));
}
std::string phase_acceptance_cell(const SummaryRow& row) {
  return fmt::format("{} / {}", percent_text(acceptance_rate(row.groups.of(Phase::kThinking))),
                     percent_text(acceptance_rate(row.groups.of(Phase::kAnswer))));
}
std::string phase_steps_cell(const SummaryRow& row) {
  return fmt::format("{} / {}", number_text(tokens_per_step(row.groups.of(Phase::kThinking)), 2),
                     number_text(tokens_per_step(row.groups.of(Phase::kAnswer)), 2));
}
std::string complete_cell(const SummaryRow& row) {
  return percent_text(complete_share(row.counts));
}
std::string mask_cell(const SummaryRow& row) {
  const auto seconds = mask_seconds_per_token(row.counts);
  return seconds ? number_text(1e6 * *seconds, 1) : "-";
}
std::string discarded_cell(const SummaryRow& row) {
  const auto split = time_split(row.counts);
  return percent_text(split ? std::optional(split->discarded) : std::nullopt);
}
std::string log_allowed_cell(const SummaryRow& row) {
  return number_text(log_allowed_per_token(row.counts), 3);
}

/// Columns of runs under a grammar.
const std::vector<ReportColumn>& grammar_columns() {
  static const std::vector<ReportColumn> columns = {
      {"free / constrained / forced",
       "Acceptance rate of the drafted tokens at positions where the grammar allows more than half "
       "of the vocabulary, at most half of it, or exactly one token.",
       true, freedom_cell, ColumnTable::kGrammar},
      {"complete",
       "Share of outputs that are complete texts of the grammar's language. The others were cut "
       "off by max_new_tokens or another stop condition, or are empty because no sample of a "
       "correction was accepted.",
       true, complete_cell, ColumnTable::kGrammar},
      {"discarded samples",
       "Share of the decode time of samples that a correction drew and did not take, their "
       "prefills included; draft / verify / other are of the sample that it took.",
       true, discarded_cell, ColumnTable::kGrammar},
      {"mask us/token",
       "Time spent on the grammar's masks, of drafts too, in microseconds per token produced.",
       true, mask_cell, ColumnTable::kGrammar},
      {"log Z/token",
       "Mean natural logarithm of the probability mass that the mask leaves of the target's "
       "distribution, per token. 0: the target stays in the language by itself.",
       true, log_allowed_cell, ColumnTable::kGrammar},
  };
  return columns;
}

/// Columns of every run.
const std::vector<ReportColumn>& speed_columns() {
  static const std::vector<ReportColumn> columns = {
      {"speed-up",
       "Decoding speed relative to the first strategy: the geometric mean over questions of the "
       "first strategy's decode time per token divided by this strategy's. In parentheses, the 95 "
       "% confidence interval over questions (Student's t on the logarithms). A question with all "
       "its turns and repeats is one observation; below 8 questions there is no interval. If the "
       "interval contains 1, no difference was shown.",
       true, speedup_text},
      {"end to end", "The same for the whole request, including prefill of the prompt.", true,
       end_to_end_text},
      {"of totals",
       "Both speed-ups (decoding / end to end) as ratios of total time per token, which gives long "
       "answers more weight.",
       false, of_totals_cell, ColumnTable::kMore},
      {"questions",
       "Questions answered by both this and the first strategy: the observations behind the "
       "intervals. Where they are not all questions of the run, the rest by reason: not run here "
       "(left out as too long, or the run was interrupted); not answered by the first strategy; "
       "without decode steps (an answer of the prefill's token alone has no decode time); with no "
       "sample accepted by a correction, and what this strategy spent on them. In part: compared "
       "over fewer turns or repeats than others have.",
       true, questions_text, ColumnTable::kResults, question_counts_text},
      {"tokens/s",
       "Decoding throughput: tokens committed by the decoding steps per second of these steps. "
       "Prefill and the token that it yields are excluded.",
       true, decode_speed_cell},
      {"tokens/s with prefill", "All new tokens per second of prefill and decoding together.",
       false, total_speed_cell, ColumnTable::kMore},
      {"tokens/step",
       "Tokens committed per forward pass of the target, including the correction or bonus token, "
       "with the 95 % interval over questions. 1 for plain decoding, more where a grammar forces "
       "tokens.",
       true, tokens_per_step_cell},
      {"accepted/step",
       "Drafted tokens accepted per forward pass of the target: tokens/step without the correction "
       "or bonus token.",
       false, accepted_per_step_cell, ColumnTable::kMore},
      {"acceptance length",
       "Mean acceptance length, also called block efficiency: 1 + accepted tokens per draft, over "
       "the steps with a draft. What a draft has behind the end of the text counts neither as "
       "drafted nor as accepted.",
       false, acceptance_length_cell},
      {"drafted/step", "Tokens proposed per forward pass of the target.", false,
       drafted_per_step_cell},
      {"acceptance",
       "Acceptance rate: accepted tokens as a share of all drafted tokens. Longer drafts lower it, "
       "since everything after a rejected token is discarded.",
       true, acceptance_cell},
      {"draft / verify / other",
       "Shares of the decode time: drafting, the target's forward pass, and everything else "
       "(sampling distributions, acceptance decisions, cache bookkeeping). Under a grammar's "
       "correction, what they lack to 100 % went into discarded samples.",
       true, split_cell},
      {"generations", "Number of generations measured.", false, generations_cell,
       ColumnTable::kMore},
      {"tokens", "New tokens in all generations.", false, tokens_cell, ColumnTable::kMore},
  };
  return columns;
}

std::string shortened_cell(const SummaryRow& row) {
  return fmt::format("{} of {}", row.shortened, row.counts.generations);
}
std::string with_loops_cell(const SummaryRow& row) { return speedup_cell(row, row.with_loops); }
std::string bytes_cell(const SummaryRow& row) {
  return row.bytes_per_second ? number_text(*row.bytes_per_second / 1e9, 1) : "-";
}
std::string tier_blocks_cell(const SummaryRow& row) {
  return row.cache_tiers
             ? fmt::format("{} / {}", row.cache_tiers->promotions, row.cache_tiers->demotions)
             : "-";
}
std::string tier_bytes_cell(const SummaryRow& row) {
  const auto megabytes = [](int64_t bytes) { return static_cast<double>(bytes) / 1e6; };
  return row.cache_tiers ? fmt::format("{:.1f} / {:.1f}", megabytes(row.cache_tiers->read_bytes),
                                       megabytes(row.cache_tiers->written_bytes))
                         : "-";
}
std::string tier_wait_cell(const SummaryRow& row) {
  return row.cache_tiers ? number_text(row.cache_tiers->wait_seconds, 2) : "-";
}
std::string copied_cell(const SummaryRow& row) { return percent_text(row.copied_share); }

/// Columns of runs whose figures leave loops out.
const std::vector<ReportColumn>& loop_columns() {
  static const std::vector<ReportColumn> columns = {
      {"loops",
       "Generations that ended in a loop: at least 32 tokens that repeat a period of at most 64 "
       "tokens three times. All figures are of the text before it.",
       true, shortened_cell, ColumnTable::kMore},
      {"speed-up with loops",
       "Decoding speed relative to the first strategy over whole texts, loops included: what is "
       "repeated is easy to draft.",
       true, with_loops_cell, ColumnTable::kMore},
  };
  return columns;
}

/// Columns of runs on a device with memory of its own.
const std::vector<ReportColumn>& read_back_columns() {
  static const std::vector<ReportColumn> columns = {
      {"read-backs/step, draft / target",
       "Copies from the device to the host per step, each of which waits for the device: the "
       "drafter's models', and those of the target's forward and the decision about the draft.",
       true, read_backs_cell, ColumnTable::kMore},
      {"bytes read back/step", "Bytes of these copies.", false, read_back_bytes_cell,
       ColumnTable::kMore},
  };
  return columns;
}

/// Columns of runs whose target's cache has tiers.
const std::vector<ReportColumn>& tier_columns() {
  static const std::vector<ReportColumn> columns = {
      {"cache blocks back / out",
       "Blocks of the target's cache that came back into memory, and that left it, in all "
       "generations.",
       false, tier_blocks_cell, ColumnTable::kMore},
      {"cache MB read / written", "Megabytes of these blocks from and to the disk.", false,
       tier_bytes_cell, ColumnTable::kMore},
      {"cache wait s", "Seconds of waiting for blocks that came or left.", false, tier_wait_cell,
       ColumnTable::kMore},
  };
  return columns;
}

const std::vector<ReportColumn>& recorded_columns() {
  static const std::vector<ReportColumn> columns = {
      {"GB/s read",
       "Bytes that the target's forwards have to read (the weights once, and the keys and values "
       "of "
       "the context) per second of these forwards. Where it nears the memory's bandwidth "
       "(linear_bench measures it: read_memory), memory is what limits decoding; models that fit "
       "in a cache may exceed it.",
       false, bytes_cell, ColumnTable::kMore},
      {"copied",
       "Share of the new tokens in stretches of at least 4 tokens that occur in the prompt: what "
       "looking the prompt up could draft. Mean over generations, whole texts.",
       false, copied_cell, ColumnTable::kMore},
  };
  return columns;
}

/// Columns of runs whose models think before they answer.
const std::vector<ReportColumn>& phase_columns() {
  static const std::vector<ReportColumn> columns = {
      {"acceptance, thinking / answer",
       "Acceptance rate of the steps within and outside thinking: up to the token with which the "
       "chat format ends it, and after that.",
       true, phase_acceptance_cell},
      {"tokens/step, thinking / answer", "Tokens per step, within and outside thinking.", false,
       phase_steps_cell},
  };
  return columns;
}

}  // namespace

std::string interval_text(std::optional<double> value, const std::optional<Interval>& interval) {
  return interval ? fmt::format("{} ({:.2f} to {:.2f})", number_text(value, 2), interval->low,
                                interval->high)
                  : number_text(value, 2);
}

std::string speedup_text(const SummaryRow& row) { return speedup_cell(row, row.speedup); }

std::string end_to_end_text(const SummaryRow& row) { return speedup_cell(row, row.end_to_end); }

std::string question_counts_text(const SummaryRow& row) {
  const int64_t compared = compared_questions(row);
  const int64_t left_out = row.missing.left_out();
  return left_out > 0 ? fmt::format("{} of {}", compared, compared + left_out)
                      : fmt::format("{}", compared);
}

std::string questions_text(const SummaryRow& row) {
  const MissingQuestions& missing = row.missing;
  std::vector<std::string> reasons;
  const auto add = [&](int64_t count, const char* reason) {
    if (count > 0) {
      reasons.push_back(fmt::format("{} {}", count, reason));
    }
  };
  add(missing.not_run, "not run");
  add(missing.not_by_first, "not by the first strategy");
  add(missing.untimed, "without decode steps");
  if (missing.none_accepted > 0) {
    reasons.push_back(fmt::format("{} with no sample accepted ({} s)", missing.none_accepted,
                                  number_text(missing.none_accepted_seconds, 1)));
  }
  add(missing.in_part, "in part");
  const std::string text = question_counts_text(row);
  return reasons.empty() ? text : fmt::format("{}: {}", text, fmt::join(reasons, ", "));
}

std::string share_text(std::optional<double> share, const std::optional<Interval>& interval) {
  return interval ? fmt::format("{} ({:.1f} to {:.1f})", percent_text(share), 100.0 * interval->low,
                                100.0 * interval->high)
                  : percent_text(share);
}

std::string position_text(const SummaryRow& row, size_t position) {
  const auto rate = conditional_acceptance(row.counts).at(position);
  const auto& interval = row.position_intervals.at(position).interval;
  return share_text(rate, interval);
}

std::vector<ReportColumn> report_columns(const Report& report) {
  const std::vector<SummaryRow>& rows = report.summary.rows;
  std::vector<ReportColumn> columns = speed_columns();
  const auto add = [&](const std::vector<ReportColumn>& more, bool (*has)(const SummaryRow& row)) {
    if (std::any_of(rows.begin(), rows.end(), has)) {
      columns.insert(columns.end(), more.begin(), more.end());
    }
  };
  add(phase_columns(),
      [](const SummaryRow& row) { return row.groups.of(Phase::kThinking).steps > 0; });
  add(loop_columns(), [](const SummaryRow& row) { return row.shortened > 0; });
  add(read_back_columns(),
      [](const SummaryRow& row) { return read_backs_per_step(row.counts).has_value(); });
  add(recorded_columns(), [](const SummaryRow& row) { return row.copied_share.has_value(); });
  add(tier_columns(), [](const SummaryRow& row) { return row.cache_tiers.has_value(); });
  const std::vector<ReportColumn> quality = quality_columns(report);
  columns.insert(columns.end(), quality.begin(), quality.end());
  add(grammar_columns(), [](const SummaryRow& row) { return row.counts.grammar_outputs > 0; });
  return columns;
}

}  // namespace specdec
