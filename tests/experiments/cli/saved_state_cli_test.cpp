// `generate --save-state` and `--resume`: the same text as without a pause, and mistakes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/formats/strict_json.h"
#include "tests/experiments/cli/cli_result.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Texts = std::vector<std::string>;

constexpr const char* kDrafted =
    "{type: speculative, draft_length: 3, drafter: {type: prompt_lookup}}";

Texts joined(Texts texts, const Texts& more) {
  texts.insert(texts.end(), more.begin(), more.end());
  return texts;
}

class SavedStateCliTest : public testing::Test {
 protected:
  /// The text that `specdec generate MODEL` prints.
  static std::string text(const Texts& options, const std::string& model = kShippedTokenizer) {
    const CliResult result = cli(joined({"generate", model, "--ignore-eos"}, options));
    EXPECT_EQ(result.code, 0) << result.err;
    return result.out.substr(0, result.out.size() - 1);  // without the line's end
  }
  static std::string refused(const Texts& options, const std::string& model = kShippedTokenizer) {
    const CliResult result = cli(joined({"generate", model, "--ignore-eos"}, options));
    EXPECT_EQ(result.code, 2) << result.out;
    return result.err;
  }
  /// 12 tokens at once, and in three parts.
  void expect_same(const Texts& begin, const Texts& both) {
    const std::string whole = text(joined(joined(begin, both), {"--max-new-tokens", "12"}));
    std::string parts =
        text(joined(joined(begin, both), {"--max-new-tokens", "3", "--save-state", state_}));
    for (const char* tokens : {"1", "8"}) {
      parts += text(
          joined(both, {"--resume", state_, "--max-new-tokens", tokens, "--save-state", state_}));
    }
    EXPECT_EQ(parts, whole);
  }

  TemporaryFolder folder_;
  std::string state_ = (folder_.path() / "a.state").string();
  Texts prompt_ = {"--prompt", "Fellow citizens, "};
};

TEST_F(SavedStateCliTest, GoesOnWithTheSameText) {
  expect_same(prompt_, {});
  expect_same(prompt_, {"--strategy", kDrafted});
  expect_same(joined(prompt_, {"--temperature", "0.9", "--seed", "5", "--top-p", "0.9"}), {});
  expect_same(prompt_, {"--kv-dtype", "bfloat16", "--dtype", "int8"});
}

TEST_F(SavedStateCliTest, GoesOnWithinAGrammar) {
  expect_same(joined({"--prompt", "A name:"}, {"--temperature", "1", "--seed", "3"}),
              {"--grammar", "{type: regex, pattern: '[A-Z][a-z]{30,40}( [A-Z][a-z]{30,40})*'}"});
}

/// Presses Ctrl-C in the third step.
class InterruptingDrafter final : public Drafter {
 public:
  Draft propose(const DraftContext& context) override {
    if (++steps_ == 3) {
      (void)std::raise(SIGINT);
    }
    return Draft::root(context.committed.back());
  }

 private:
  int steps_ = 0;
};

TEST_F(SavedStateCliTest, CtrlCSavesWhatThereIs) {
  Components components = builtin_components();
  components.drafters.add("interrupting", {.help = "presses Ctrl-C",
                                           .promise = Promise::kLossless,
                                           .prepare = [](const ConfigNode&, const RunPlan&) {
                                             return [](BuildContext&) {
                                               return std::make_unique<InterruptingDrafter>();
                                             };
                                           }});
  const CliResult first =
      cli(joined({"generate", kShippedTokenizer, "--save-state", state_, "--strategy",
                  "{type: speculative, drafter: {type: interrupting}}"},
                 prompt_),
          components);
  EXPECT_EQ(first.code, 130) << first.err;
  EXPECT_THAT(first.err, testing::EndsWith("interrupted\n"));
  ASSERT_TRUE(first.out.ends_with("\n")) << "the message stands on a line of its own";
  const std::string rest = text({"--resume", state_, "--max-new-tokens", "6"});
  EXPECT_EQ(first.out.substr(0, first.out.size() - 1) + rest,
            text(joined(prompt_, {"--max-new-tokens", "10"})));
}

TEST_F(SavedStateCliTest, SamplesReadThePromptOnce) {
  const Texts options =
      joined(prompt_, {"--temperature", "1", "--samples", "3", "--json", "--max-new-tokens", "5"});
  const auto tokens = [&](const Texts& more) {
    const auto json = nlohmann::json::parse(text(joined(options, more)));
    std::vector<std::vector<int>> all;
    for (const auto& sample : json["samples"]) {
      all.push_back(sample["tokens"].get<std::vector<int>>());
    }
    return all;
  };
  EXPECT_EQ(tokens({"--prefix-cache-mb", "64"}), tokens({}));
  const auto samples =
      nlohmann::json::parse(text(joined(options, {"--prefix-cache-mb", "64"})))["samples"];
  EXPECT_EQ(samples[0]["statistics"]["reused_tokens"], 0);
  EXPECT_EQ(samples[1]["statistics"]["reused_tokens"],
            samples[1]["statistics"]["prompt_tokens"].get<int>() - 1);
}

TEST_F(SavedStateCliTest, MistakesAreErrors) {
  (void)text(joined(prompt_, {"--max-new-tokens", "2", "--save-state", state_}));
  const Texts resume = {"--resume", state_};
  EXPECT_THAT(refused(joined(resume, {"--dtype", "int8"})), HasSubstr("another model"));
  EXPECT_THAT(refused(resume, test_data("gemma3-a").string()), HasSubstr("another model"));
  EXPECT_THAT(refused(joined(resume, {"--seed", "1"})), HasSubstr("--seed"));
  EXPECT_THAT(refused(joined(resume, prompt_)), HasSubstr("--prompt"));
  EXPECT_THAT(refused(joined(resume, {"--grammar", "{type: regex, pattern: 'a+'}"})),
              HasSubstr("without a grammar"));
  EXPECT_THAT(refused(joined(resume, {"--strategy", "{type: beam_search}"})),
              HasSubstr("draws whole outputs"));
  EXPECT_THAT(refused(joined(prompt_, {"--save-state", "/no/such/folder/a"})),
              HasSubstr("/no/such/folder"));
  const std::string mine = folder_.write("mine.txt", "To be, or not to be").string();
  EXPECT_THAT(refused(joined(prompt_, {"--save-state", mine})),
              HasSubstr("holds no state of a generation, so it is not overwritten"));
  EXPECT_EQ(read_file(mine), "To be, or not to be");
  EXPECT_THAT(refused(joined(prompt_, {"--save-state", ""})), HasSubstr("is empty: name a file"));
  EXPECT_THAT(refused({"--resume", ""}), HasSubstr("is empty: name a file"));
  EXPECT_THAT(refused(joined(prompt_, {"--save-state", state_, "--samples", "2"})),
              HasSubstr("--samples"));
  EXPECT_THAT(refused({"--resume", (folder_.path() / "none").string()}), HasSubstr("none"));
  std::fstream(state_, std::ios::in | std::ios::out | std::ios::binary).seekp(200).put('~');
  EXPECT_THAT(refused(resume), HasSubstr("checksum"));
  folder_.write("a.state", "{}");
  EXPECT_THAT(refused(resume), HasSubstr("is no state of a generation"));
}

TEST_F(SavedStateCliTest, AnotherCacheIsAnErrorThatNamesTheStatesOwn) {
  const std::string own = "{type: paged, format: q4, lossy: true}";
  (void)text(joined(prompt_, {"--max-new-tokens", "2", "--save-state", state_, "--cache", own}));
  EXPECT_THAT(refused({"--resume", state_}),
              AllOf(HasSubstr(", --cache " + own + " (key "), HasSubstr("rotation"),
                    HasSubstr("exact_recent"), HasSubstr("window and compressed")));
  (void)text({"--resume", state_, "--max-new-tokens", "2", "--cache", own});
}

}  // namespace
}  // namespace specdec
