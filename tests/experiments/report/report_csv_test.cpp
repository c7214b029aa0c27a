#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "experiments/report/report.h"
#include "experiments/report/report_text.h"
#include "tests/experiments/report/report_sample.h"

namespace specdec {
namespace {

/// Where the numbers of a table's column stand at full precision.
struct FullPrecision {
  std::vector<std::string> csv;       ///< columns of summary.csv
  std::vector<std::string> pointers;  ///< below a row of summary.json
};

const std::map<std::string, FullPrecision> kPlaces = {
    {"speed-up",
     {{"speedup", "speedup_low_95", "speedup_high_95"}, {"/speedup", "/speedup_interval_95"}}},
    {"end to end",
     {{"end_to_end_speedup", "end_to_end_speedup_low_95", "end_to_end_speedup_high_95"},
      {"/end_to_end_speedup", "/end_to_end_speedup_interval_95"}}},
    {"of totals",
     {{"speedup_of_totals", "end_to_end_speedup_of_totals"},
      {"/speedup_of_totals", "/end_to_end_speedup_of_totals"}}},
    {"questions",
     {{"questions", "questions_not_run", "questions_not_by_first", "questions_without_decode_steps",
       "questions_in_part", "questions_none_accepted", "none_accepted_seconds"},
      {"/questions", "/missing_questions/not_run"}}},
    {"tokens/s", {{"decode_tokens_per_second"}, {"/decode_tokens_per_second"}}},
    {"tokens/s with prefill", {{"total_tokens_per_second"}, {"/total_tokens_per_second"}}},
    {"tokens/step",
     {{"tokens_per_step", "tokens_per_step_low_95", "tokens_per_step_high_95"},
      {"/tokens_per_step", "/tokens_per_step_interval_95"}}},
    {"accepted/step", {{"accepted_per_step"}, {"/accepted_per_step"}}},
    {"acceptance length", {{"acceptance_length"}, {"/acceptance_length"}}},
    {"drafted/step", {{"drafted_per_step"}, {"/drafted_per_step"}}},
    {"acceptance", {{"acceptance_rate"}, {"/acceptance_rate"}}},
    {"draft / verify / other",
     {{"draft_share", "verify_share", "other_share"},
      {"/draft_share", "/verify_share", "/other_share"}}},
    {"discarded samples", {{"discarded_share"}, {"/discarded_share"}}},
    {"generations", {{"generations"}, {"/counts/generations"}}},
    {"tokens", {{"tokens"}, {"/counts/tokens"}}},
    {"acceptance, thinking / answer",
     {{"acceptance_rate_thinking", "acceptance_rate_answer"},
      {"/phases/thinking/acceptance_rate", "/phases/answer/acceptance_rate"}}},
    {"tokens/step, thinking / answer",
     {{"tokens_per_step_thinking", "tokens_per_step_answer"},
      {"/phases/thinking/tokens_per_step", "/phases/answer/tokens_per_step"}}},
    {"loops", {{"generations_shortened", "generations"}, {"/shortened"}}},
    {"speed-up with loops",
     {{"speedup_with_loops", "speedup_with_loops_low_95", "speedup_with_loops_high_95"},
      {"/speedup_with_loops", "/speedup_with_loops_interval_95"}}},
    {"read-backs/step, draft / target",
     {{"draft_read_backs_per_step", "target_read_backs_per_step"},
      {"/read_backs/draft_per_step", "/read_backs/target_per_step"}}},
    {"bytes read back/step", {{"read_back_bytes_per_step"}, {"/read_backs/bytes_per_step"}}},
    {"GB/s read", {{"bytes_per_second"}, {"/bytes_per_second"}}},
    {"copied", {{"copied_share"}, {"/copied_share"}}},
    {"cache blocks back / out",
     {{"cache_promotions", "cache_demotions"},
      {"/cache_tiers/promotions", "/cache_tiers/demotions"}}},
    {"cache MB read / written",
     {{"cache_read_bytes", "cache_written_bytes"},
      {"/cache_tiers/read_bytes", "/cache_tiers/written_bytes"}}},
    {"cache wait s", {{"cache_wait_seconds"}, {"/cache_tiers/wait_seconds"}}},
    {"log p/token", {{"log_prob_per_token"}, {"/log_prob_per_token"}}},
    {"log p/token, difference",
     {{"log_prob_difference", "log_prob_difference_low_95", "log_prob_difference_high_95"},
      {"/log_prob_comparison/difference", "/log_prob_comparison/difference_interval_95"}}},
    {"TV at least", {{"total_variation_at_least"}, {"/total_variation_at_least"}}},
    {"correct", {{"right_share"}, {"/right_share"}}},
    {"correct, difference (points)",
     {{"right_difference", "right_difference_low_95", "right_difference_high_95"},
      {"/quality/right_share", "/quality/right_share_of_first",
       "/quality/difference_interval_95"}}},
    {"valid", {{"valid_share"}, {"/valid_share"}}},
    {"valid, difference (points)",
     {{"valid_difference", "valid_difference_low_95", "valid_difference_high_95"},
      {"/validity/valid_share", "/validity/difference_interval_95"}}},
    {"speed-up, plain arm",
     {{"plain_speedup", "plain_speedup_low_95", "plain_speedup_high_95"},
      {"/against_plain_arm/speedup", "/against_plain_arm/speedup_interval_95"}}},
    {"correct, plain arm (points)",
     {{"plain_right_difference", "plain_right_difference_low_95", "plain_right_difference_high_95"},
      {"/against_plain_arm/quality/difference_interval_95"}}},
    {"valid, plain arm (points)",
     {{"plain_valid_difference", "plain_valid_difference_low_95", "plain_valid_difference_high_95"},
      {"/against_plain_arm/validity/difference_interval_95"}}},
    {"free / constrained / forced",
     {{"acceptance_rate_free", "acceptance_rate_constrained", "acceptance_rate_forced"},
      {"/grammar/free/acceptance_rate", "/grammar/constrained/acceptance_rate",
       "/grammar/forced/acceptance_rate"}}},
    {"complete", {{"complete_share"}, {"/grammar/complete_share"}}},
    {"mask us/token", {{"mask_seconds_per_token"}, {"/grammar/mask_seconds_per_token"}}},
    {"log Z/token", {{"log_allowed_per_token"}, {"/grammar/log_allowed_per_token"}}},
};

/// A row with every number that a row can have.
void fill(SummaryRow& row) {
  const Interval interval{0.5, 1.5};
  const Speedup speedup{.ratio = 1.1, .interval = interval, .questions = 12, .of_totals = 1.2};
  row.speedup = row.end_to_end = row.with_loops = speedup;
  row.tokens_per_step_interval = interval;
  row.shortened = 1;
  row.counts.read_backs = {.count = 3, .bytes = 4};
  row.counts.draft_read_backs = {.count = 5, .bytes = 6};
  row.bytes_per_second = 7.0;
  row.copied_share = 0.5;
  row.disk_bytes_per_token = row.disk_ready_share = row.disk_wait_seconds = 0.25;
  row.cache_bytes = row.cache_fragmentation = 0.125;
  row.cache_tiers = KvTiers{.host_bytes = 9};
  row.groups.by_phase[0] =
      row.groups.by_phase[1] = {.steps = 4, .drafted = 16, .accepted = 12, .committed = 16};
  row.log_prob = -2.0;
  row.log_probs = LogProbComparison{.difference = 0.5, .interval = interval, .questions = 12};
  row.total_variation_bound = 0.25;
  const QualityComparison quality{.first_share = 0.5, .share = 0.75, .interval = interval};
  row.right_share = row.valid_share = 0.5;
  row.quality = row.validity = quality;
  row.plain = PlainComparison{.speedup = speedup, .right = quality, .valid = quality};
  for (DraftCounts& counts : row.counts.by_freedom) {
    counts = {.drafted = 2, .accepted = 1};
  }
  row.counts.mask_seconds = 1.0;
  row.counts.masked_tokens = 10;
  row.counts.log_allowed = -1.0;
  row.counts.grammar_outputs = 2;
  row.counts.complete = 1;
}

/// The cells of a row of summary.csv by the names of their columns.
std::map<std::string, std::string> csv_cells(const Report& report, size_t row) {
  std::ostringstream out;
  write_csv(out, report);
  std::istringstream lines(out.str());
  std::string header;
  std::string line;
  std::getline(lines, header);
  for (size_t i = 0; i <= row; ++i) {
    std::getline(lines, line);
  }
  std::istringstream names(header);
  std::istringstream cells(line + ",");  // getline drops an empty last one
  std::map<std::string, std::string> found;
  for (std::string name, cell; std::getline(names, name, ',') && std::getline(cells, cell, ',');) {
    EXPECT_TRUE(found.emplace(name, cell).second) << "twice: " << name;
  }
  return found;
}

TEST(ReportCsvTest, EveryNumberOfTheTablesIsInCsvAndJson) {
  Report report = sample_report({.lossy = true});
  fill(report.summary.rows[1]);
  const auto cells = csv_cells(report, 1);
  const nlohmann::json json = row_json(report.summary.rows[1]);
  std::set<std::string> titles;
  for (const ReportColumn& column : report_columns(report)) {
    titles.insert(column.title);
    ASSERT_TRUE(kPlaces.contains(column.title)) << column.title << " has no column of the CSV";
    for (const std::string& name : kPlaces.at(column.title).csv) {
      ASSERT_TRUE(cells.contains(name)) << name;
      EXPECT_NE(cells.at(name), "") << name;
    }
    for (const std::string& pointer : kPlaces.at(column.title).pointers) {
      ASSERT_TRUE(json.contains(nlohmann::json::json_pointer(pointer))) << pointer;
      EXPECT_FALSE(json.at(nlohmann::json::json_pointer(pointer)).is_null()) << pointer;
    }
  }
  EXPECT_EQ(titles.size(), kPlaces.size()) << "the report has all columns there are";
}

TEST(ReportCsvTest, EveryNumberOfTheJsonsTiersHasAColumn) {
  Report report = sample_report({});
  report.summary.rows[0].cache_tiers = KvTiers{.peak_memory_bytes = 21, .host_bytes = 9};
  const auto cells = csv_cells(report, 0);
  const nlohmann::json tiers = row_json(report.summary.rows[0]).at("cache_tiers");
  for (const auto& [name, value] : tiers.items()) {
    ASSERT_TRUE(cells.contains("cache_" + name)) << name;
    EXPECT_EQ(cells.at("cache_" + name), value.dump() == "0.0" ? "0" : value.dump()) << name;
  }
  EXPECT_EQ(csv_cells(report, 1).at("cache_host_bytes"), "") << "a cache without tiers";
}

}  // namespace
}  // namespace specdec
