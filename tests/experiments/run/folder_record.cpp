#include "tests/experiments/run/folder_record.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "experiments/metrics/cache_records.h"

namespace specdec {

GenerationRecord folder_record(const std::string& prompt, size_t steps) {
  GenerationRecord record;
  record.key = {.sweep_point = "draft_length=4", .strategy = "fast", .prompt_id = prompt};
  record.category = "prose";
  record.prompt_tokens = 12;
  record.thinking = ThinkingSpan{0, 1};
  record.cache_tiers = KvTiers{1, 2, 3, 4, 5, 6, 7, 8, 9, 1.0 / 3.0};
  record.cache_trace = KvTrace{.forwards = 2,
                               .layers = {{3, 4, {5, 6}, {0.25, 1.0 / 3.0}}, {}},
                               .pages = {{{1, 2}, {}, {0, 7}}, {}}};
  record.text = "\"quoted\"\n\xc3\xa9";
  Generation& generation = record.generation;
  generation.stop_reason = StopReason::kStopString;
  generation.prefill_seconds = 1.0 / 3.0;
  generation.decode_seconds = 0.1 + 0.2;
  generation.tokens = {5, 262143};
  generation.gaps = {std::numeric_limits<double>::denorm_min(),
                     std::numeric_limits<double>::infinity()};
  for (size_t i = 0; i < steps; ++i) {
    generation.steps.push_back({.drafted = 4,
                                .accepted = 2,
                                .committed = 3,
                                .depth = 3,
                                .draft_seconds = 1.0 / 7.0,
                                .prompt_draft_seconds = 1.0 / 9.0,
                                .verify_seconds = 2.0 / 7.0 + static_cast<double>(i),
                                .other_seconds = 1e-9 / 3.0,
                                .rejected = {{7, 9}, {262143}},
                                .read_backs = {1, 48},
                                .draft_read_backs = {2, 64}});
  }
  return record;
}

void expect_equal(const GenerationRecord& left, const GenerationRecord& right) {
  EXPECT_EQ(left.key, right.key);
  EXPECT_EQ(left.category, right.category);
  EXPECT_EQ(left.prompt_tokens, right.prompt_tokens);
  EXPECT_EQ(left.text, right.text);
  EXPECT_EQ(left.is_right, right.is_right);
  EXPECT_EQ(left.is_valid, right.is_valid);
  EXPECT_EQ(left.scorer, right.scorer);
  EXPECT_EQ(left.log_prob, right.log_prob);
  EXPECT_EQ(left.thinking, right.thinking);
  EXPECT_EQ(left.cache_trace, right.cache_trace);
  ASSERT_EQ(left.cache_tiers.has_value(), right.cache_tiers.has_value());
  if (left.cache_tiers) {
    EXPECT_EQ(cache_tiers_json(*left.cache_tiers), cache_tiers_json(*right.cache_tiers));
    EXPECT_EQ(left.cache_tiers->wait_seconds, right.cache_tiers->wait_seconds);
  }
  ASSERT_EQ(left.bias.has_value(), right.bias.has_value());
  if (left.bias) {
    EXPECT_EQ(left.bias->tokens, right.bias->tokens);
    EXPECT_EQ(left.bias->taken, right.bias->taken);
    EXPECT_EQ(left.bias->expected, right.bias->expected);
    EXPECT_EQ(left.bias->variance, right.bias->variance);
    EXPECT_EQ(left.bias->squares, right.bias->squares);
  }
  ASSERT_EQ(left.load.has_value(), right.load.has_value());
  if (left.load) {
    EXPECT_EQ(left.load->seconds, right.load->seconds);
    EXPECT_EQ(left.load->average, right.load->average);
    EXPECT_EQ(left.load->stolen_seconds, right.load->stolen_seconds);
    EXPECT_EQ(left.load->others_seconds, right.load->others_seconds);
    EXPECT_EQ(left.load->waited_seconds, right.load->waited_seconds);
    EXPECT_EQ(left.load->preemptions, right.load->preemptions);
    EXPECT_EQ(left.load->back_offs, right.load->back_offs);
  }
  const Generation& a = left.generation;
  const Generation& b = right.generation;
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.gaps, b.gaps);
  EXPECT_EQ(a.stop_reason, b.stop_reason);
  EXPECT_EQ(a.prefill_seconds, b.prefill_seconds);
  EXPECT_EQ(a.decode_seconds, b.decode_seconds);
  ASSERT_EQ(a.steps.size(), b.steps.size());
  for (size_t i = 0; i < a.steps.size(); ++i) {
    EXPECT_EQ(a.steps[i].drafted, b.steps[i].drafted);
    EXPECT_EQ(a.steps[i].accepted, b.steps[i].accepted);
    EXPECT_EQ(a.steps[i].committed, b.steps[i].committed);
    EXPECT_EQ(a.steps[i].depth, b.steps[i].depth);
    EXPECT_EQ(a.steps[i].draft_seconds, b.steps[i].draft_seconds);
    EXPECT_EQ(a.steps[i].prompt_draft_seconds, b.steps[i].prompt_draft_seconds);
    EXPECT_EQ(a.steps[i].verify_seconds, b.steps[i].verify_seconds);
    EXPECT_EQ(a.steps[i].other_seconds, b.steps[i].other_seconds);
    EXPECT_EQ(a.steps[i].rejected, b.steps[i].rejected);
    EXPECT_EQ(a.steps[i].read_backs, b.steps[i].read_backs);
    EXPECT_EQ(a.steps[i].draft_read_backs, b.steps[i].draft_read_backs);
  }
}

}  // namespace specdec
