#include "experiments/metrics/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.h"

namespace specdec {
namespace {

using testing::MatchesRegex;
using testing::StartsWith;

TEST(EnvironmentTest, SaysWhatItRunsOn) {
  const Environment environment = read_environment();
  EXPECT_THAT(environment.date, MatchesRegex("20..-..-..T..:..:..Z"));
  EXPECT_GE(environment.cores, 1);
  EXPECT_GE(environment.threads, 1);
  EXPECT_FALSE(environment.cpu.empty());
  EXPECT_FALSE(environment.compiler.empty());
  EXPECT_THAT(environment.libraries.at("libtorch"), StartsWith("2."));
  EXPECT_FALSE(environment.libraries.at("fmt").empty());
  EXPECT_FALSE(environment.libraries.at("yaml-cpp").empty());
}

TEST(EnvironmentTest, CommitIsKnownOrSaidToBeUnknown) {
  EXPECT_THAT(built_from_commit(), MatchesRegex("unknown|[0-9a-f]{40,64}(\\+changes)?"));
}

TEST(EnvironmentTest, JsonHasEveryField) {
  Environment environment = read_environment();
  environment.weights["models/target"] = "abc";
  environment.dtype = "float32";
  const auto json = environment_json(environment);
  EXPECT_EQ(json.at("weights").at("models/target"), "abc");
  EXPECT_EQ(json.at("dtype"), "float32");
  EXPECT_EQ(json.at("gpu"), "none");
  EXPECT_EQ(json.at("threads"), environment.threads);
  EXPECT_EQ(json.at("thread_reason"), environment.thread_reason);
  EXPECT_EQ(json.at("commit"), environment.commit);
}

TEST(EnvironmentTest, IsReadBackAndWrongValuesNameFileAndKey) {
  Environment environment = read_environment();
  environment.weights["models/target"] = "abc";
  environment.warnings = {"old"};
  const auto json = environment_json(environment);
  EXPECT_EQ(environment_json(parse_environment(json, "environment.json")), json);
  EXPECT_EQ(parse_environment(nlohmann::json::object(), "environment.json").gpu, "none");
  for (const auto& [key, value] : json.items()) {
    for (const nlohmann::json& wrong : {nlohmann::json(1.5), nlohmann::json(true),
                                        nlohmann::json(-1), nlohmann::json::parse(R"({"a": 1})")}) {
      auto edited = json;
      edited[key] = wrong;
      try {
        (void)parse_environment(edited, "environment.json");
        ADD_FAILURE() << key << " = " << wrong;
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), testing::HasSubstr("environment.json: '" + key)) << wrong;
      }
    }
  }
}

TEST(EnvironmentTest, AResumedRunKeepsWhatItWasMeasuredIn) {
  Environment environment = read_environment();
  environment.cpu = "first";
  environment.libraries["fmt"] = "9";
  const auto first = environment_json(environment);
  environment.date = "2030-01-01T00:00:00Z";
  EXPECT_EQ(resumed_environment(first, environment), first) << "only the date differs";
  EXPECT_THAT(environment_changes(first), testing::IsEmpty());
  environment.cpu = "second";
  const auto second = resumed_environment(first, environment);
  EXPECT_EQ(second.at("cpu"), "second");
  EXPECT_EQ(second.at("earlier").at(0), first);
  environment.cpu = "first";
  environment.libraries["fmt"] = "10";
  const auto third = resumed_environment(second, environment);
  EXPECT_EQ(third.at("earlier").size(), 2U);
  EXPECT_THAT(
      environment_changes(third),
      testing::ElementsAre("cpu: first, then second, then first", "libraries.fmt: 9, then 10"));
  EXPECT_EQ(resumed_environment(third, environment), third) << "said once, kept for good";
}

}  // namespace
}  // namespace specdec
