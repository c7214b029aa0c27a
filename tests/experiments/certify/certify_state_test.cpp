// Tests of `specdec certify --config` that outlive a call.
#include "experiments/certify/certify_state.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <limits>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "decoders/verifiers/exact_match.h"
#include "tests/experiments/cli/cli_result.h"
#include "tests/support/error_message.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_gemma.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const CertifyIdentity kIdentity = {{"config", "a"}, {"options", "b"}};

/// A test with something in every field that is kept.
ConfigTest full_test(const std::string& prompt) {
  ConfigTest test{.strategy = "tried", .point = "temperature=1", .prompt = prompt};
  test.positions.emplace();
  test.positions->bias =
      DraftBias({.tokens = 9, .taken = 4, .expected = 3.1, .variance = 0.7, .squares = 1.0 / 3.0},
                1, {{0.25, 0.125, true}, {1e-9, 0.5, false}});
  test.positions->texts = 3;
  test.positions->controls.accept_all = 0.1;
  test.chi_square = {std::numeric_limits<double>::infinity(), 4, 0.0};
  test.worst = {{1, 2}, 7.5, 3};
  test.differences = {{"one", {.position = 2, .gap_other = std::nan(""), .width = 5}}};
  test.failed = true;
  return test;
}

std::string report_of(const ConfigTest& test) {
  std::ostringstream out;
  write_config_certificate_json(out, {.tests = {test}});
  write_config_certificate(out, {.tests = {test}});
  return out.str();
}

TEST(CertifyStateTest, WhatIsReadBackReportsTheSame) {
  TemporaryFolder folder;
  const auto file = folder.path() / "state.json";
  const auto one = full_test("one");
  ConfigTest two = one;
  two.positions.reset();
  two.prompt = "two";
  ConfigTest greedy = two;
  greedy.greedy = true;
  greedy.prompt = "";
  CertifyState state(file, kIdentity);
  for (const auto& test : {one, two, greedy}) {
    EXPECT_FALSE(state.find(test).has_value());
    state.add(test);
  }
  CertifyState later(file, kIdentity);
  for (const auto& test : {one, two, greedy}) {
    const auto found = later.find(test);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(report_of(*found), report_of(test));
  }
  later.remove();
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST(CertifyStateTest, OtherFilesAreRefused) {
  TemporaryFolder folder;
  const auto file = folder.path() / "state.json";
  CertifyState(file, kIdentity).add(full_test("one"));
  EXPECT_THAT(error_message<ConfigError>([&] {
                CertifyState(file, {{"config", "a"}, {"options", "other"}});
              }),
              HasSubstr("holds tests of another options; remove it, or name another file"));
  const auto broken = folder.write("broken.json", "{\"identity\": {");
  EXPECT_THAT(error_message<ConfigError>([&] { CertifyState(broken, kIdentity); }),
              AllOf(HasSubstr("is no file that certify wrote (not valid JSON"),
                    Not(HasSubstr("exception"))));
  EXPECT_THAT(error_message<ConfigError>([&] { CertifyState(folder.path(), kIdentity); }),
              HasSubstr("--state: " + folder.path().string() + " is a folder"));
  EXPECT_THAT(error_message<ConfigError>([&] { CertifyState(folder.path() / "a/b", kIdentity); }),
              HasSubstr("lies in no folder that is there"));
}

/// Compares with greedy decoding; counts what it verified, and interrupts at the first when asked.
class InterruptingVerifier final : public Verifier {
 public:
  struct Watch {
    bool interrupts = false;
    int verified = 0;
  };
  explicit InterruptingVerifier(Watch& watch) : watch_(watch) {}
  VerifyResult verify(const Draft& draft, TargetProbs& target, int64_t position,
                      Randomness& random) const override {
    ++watch_.verified;
    if (std::exchange(watch_.interrupts, false)) {  // a second signal would kill
      (void)std::raise(SIGINT);
    }
    return ExactMatchVerifier().verify(draft, target, position, random);
  }

 private:
  Watch& watch_;
};

class InterruptedCertifyTest : public testing::Test {
 protected:
  InterruptedCertifyTest() {
    save_gemma(unpack(*tiny_gemma(5, at::kFloat, 1)), folder_.path() / "target", at::kFloat);
    folder_.write("p.jsonl",
                  "{\"id\": \"one\", \"tokens\": [0, 3, 1]}\n"
                  "{\"id\": \"two\", \"tokens\": [0, 4, 2]}\n");
    add_verifier("first", first_);
    add_verifier("second", second_);
    const std::string strategy =
        "  - {{name: {0}, type: speculative, draft_length: 2, verifier: {{type: {0}}},\n"
        "     drafter: {{type: self, layers: 1}}}}\n";
    config_ = folder_
                  .write("c.yaml",
                         "model: {weights: target}\nprompts: {file: p.jsonl}\n"
                         "max_new_tokens: 6\nstop: {ignore_eos: true}\nstrategies:\n" +
                             fmt::format(fmt::runtime(strategy), "first") +
                             fmt::format(fmt::runtime(strategy), "second"))
                  .string();
  }

  void add_verifier(const std::string& name, InterruptingVerifier::Watch& watch) {
    components_.verifiers.add(name, {.help = "watched",
                                     .promise = Promise::kLossless,
                                     .prepare = [&watch](const ConfigNode&, const RunPlan&) {
                                       return [&watch](BuildContext&) {
                                         return std::make_unique<InterruptingVerifier>(watch);
                                       };
                                     }});
  }

  CliResult certify(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"certify", "--quiet", "--config", config_};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return cli(arguments, components_);
  }

  TemporaryFolder folder_;
  std::string state_ = (folder_.path() / "state.json").string();
  InterruptingVerifier::Watch first_, second_;
  Components components_ = builtin_components();
  std::string config_;
};

TEST_F(InterruptedCertifyTest, PrintsWhatIsKnown) {
  second_.interrupts = true;
  const auto result = certify();
  EXPECT_EQ(result.code, 130);
  EXPECT_THAT(result.out, AllOf(HasSubstr("first  passed"), Not(HasSubstr("second"))));
  EXPECT_THAT(result.err, HasSubstr("With --state FILE a later call goes on from there"));
}

TEST_F(InterruptedCertifyTest, GoesOnWithTheSameCommand) {
  second_.interrupts = true;
  const auto stopped = certify({"--state", state_});
  EXPECT_EQ(stopped.code, 130);
  EXPECT_THAT(stopped.err, HasSubstr("the same command goes on"));
  const int verified = first_.verified;
  EXPECT_GT(verified, 0);
  EXPECT_EQ(certify({"--state", state_, "--set", "max_new_tokens=5"}).code, 2);
  const auto result = certify({"--state", state_});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(first_.verified, verified);
  EXPECT_THAT(result.out, AllOf(HasSubstr("first   passed"), HasSubstr("second  passed")));
  EXPECT_FALSE(std::filesystem::exists(state_));
}

}  // namespace
}  // namespace specdec
