#include "experiments/simulate/expert_profile.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/error.h"
#include "kv/paged_kv.h"
#include "tests/support/error_message.h"
#include "tests/support/tiny_gemma4.h"

namespace specdec {
namespace {

using testing::HasSubstr;

TEST(ExpertProfileTest, ExpertsOfARoutingAreCountedOnce) {
  const auto routes = at::tensor({5, 1, 1, 7, 5, 1}, at::kInt).view({3, 2});
  EXPECT_EQ(distinct_experts({.experts = routes, .weights = {}}), 3);
}

/// 4 experts, 2 for each token.
TEST(ExpertProfileTest, RecordsTheRoutesOfEveryForward) {
  int64_t pauses = 0;
  const auto profile = measure_experts(
      tiny_gemma4("moe", 40), paged_kv(),
      {.rows = {1, 2, 4, 1000}, .context = 8, .repeats = 3, .between = [&] { ++pauses; }});
  ASSERT_TRUE(profile.has_value());
  EXPECT_EQ(profile->count, 4);
  EXPECT_EQ(profile->chosen, 2);
  EXPECT_EQ(profile->layers, 4);
  ASSERT_EQ(profile->samples.size(), 6) << "of 1, 2 and 4 tokens; 1000 do not fit";
  EXPECT_EQ(pauses, 18 + 64) << "the timed forwards and the text";
  for (const ExpertSample& sample : profile->samples) {
    EXPECT_GE(sample.distinct, 2.0);
    EXPECT_LE(sample.distinct, std::min(4.0, 2.0 * static_cast<double>(sample.rows)));
    EXPECT_GT(sample.seconds, 0.0);
  }
  EXPECT_EQ(profile->samples.front().distinct, 2.0);
  EXPECT_EQ(profile->samples.back().rows, 4);
  EXPECT_GT(profile->samples.back().distinct, 2.0) << "different tokens choose different experts";
}

TEST(ExpertProfileTest, RecordsWhatTheTokensOfATextWake) {
  const auto profile = measure_experts(tiny_gemma4("moe", 40), paged_kv(),
                                       {.rows = {1, 2}, .context = 8, .repeats = 1, .text = 40});
  ASSERT_TRUE(profile.has_value());
  for (const auto* counts : {&profile->curve_distinct, &profile->text_distinct}) {
    ASSERT_EQ(counts->size(), 32U);
    EXPECT_EQ(counts->front(), 2.0);
    EXPECT_GT(counts->back(), 2.0);
    EXPECT_LE(counts->back(), 4.0);
    EXPECT_TRUE(std::is_sorted(counts->begin(), counts->end()));
  }
  EXPECT_NE(profile->curve_distinct, profile->text_distinct);
}

TEST(ExpertProfileTest, PredictsWithTheExpertsOfAText) {
  ExpertProfile profile{.count = 8, .chosen = 2};
  profile.curve_distinct = {2.0, 4.0};
  profile.text_distinct = {2.0, 3.0};
  const CostCurve measured = {{{.new_tokens = 1, .context = 4, .seconds = 1.0},
                               {.new_tokens = 2, .context = 4, .seconds = 3.0}}};
  EXPECT_EQ(curve_of_text(measured, std::nullopt).seconds(2, 4), 3.0);
  EXPECT_EQ(curve_of_text(measured, profile).seconds(2, 4), 3.0) << "no fit";
  profile.cost = {.fixed = 0.5, .per_row = 0.25, .per_expert = 0.75};
  EXPECT_EQ(curve_of_text(measured, profile).seconds(1, 4), 1.0);
  EXPECT_EQ(curve_of_text(measured, profile).seconds(2, 4), 2.25);
  const auto json = nlohmann::json::parse(experts_json(profile).dump());
  const ExpertProfile read = parse_experts(RecordKeys(json));
  EXPECT_EQ(curve_of_text(measured, read).seconds(2, 4), 2.25);
}

TEST(ExpertProfileTest, AFileThatCannotBeRightIsRefused) {
  ExpertProfile profile{.count = 8, .chosen = 2};
  profile.cost = {.fixed = 0.5, .per_row = 0.25, .per_expert = 0.75};
  const auto complaint = [&](const char* key, const nlohmann::json& value) {
    auto json = nlohmann::json::parse(experts_json(profile).dump());
    json[nlohmann::json::json_pointer(key)] = value;
    return error_message<Error>([&] { parse_experts(RecordKeys(json)); });
  };
  EXPECT_EQ(complaint("/count", 9), "no error");
  EXPECT_THAT(complaint("/chosen", 9), HasSubstr("'chosen' is 9 of 8"));
  EXPECT_THAT(complaint("/text_distinct", {-1.0}),
              HasSubstr("'text_distinct' holds a count below 0"));
  EXPECT_THAT(complaint("/cost/expert_seconds", -1.0),
              HasSubstr("'cost.expert_seconds' must be at least 0"));
}

TEST(ExpertProfileTest, ModelsWithoutExpertsHaveNone) {
  EXPECT_FALSE(measure_experts(tiny_gemma4("dense", 40), paged_kv(), {}));
}

TEST(ExpertProfileTest, PrintsTheFitBesideIndependentRoutes) {
  ExpertProfile profile{.count = 128, .chosen = 8, .layers = 30};
  profile.samples = {{.rows = 4, .distinct = 20.0, .seconds = 0.005}};
  std::ostringstream out;
  print_experts(out, profile);
  EXPECT_THAT(out.str(), HasSubstr("no fit"));
  EXPECT_TRUE(experts_json(profile)["cost"].is_null());
  profile.cost = {.fixed = 1e-3, .per_row = 2e-4, .per_expert = 1e-4, .error = 0.04};
  out.str("");
  print_experts(out, profile);
  EXPECT_THAT(out.str(),
              HasSubstr("1.000 + 0.2000 tokens + 0.1000 distinct experts (error 4.0 %)"));
  EXPECT_THAT(out.str(), testing::ContainsRegex("4 +20.0 +29.1 +5.000 +3.800"));
  EXPECT_EQ(experts_json(profile)["cost"]["expert_seconds"], 1e-4);
}

}  // namespace
}  // namespace specdec
