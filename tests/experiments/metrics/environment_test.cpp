#include "experiments/metrics/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

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

}  // namespace
}  // namespace specdec
