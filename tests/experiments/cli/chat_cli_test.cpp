// `specdec chat`: turns from standard input, as a pipe gives them.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <csignal>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/chat.h"
#include "core/tokenizers/tokenizer.h"
#include "experiments/config/config_file.h"
#include "tests/experiments/cli/cli_result.h"
#include "tests/experiments/run/text_model.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::string kChatModel = SPECDEC_SOURCE_DIR "/models/target";
const std::string kShipped = SPECDEC_SOURCE_DIR "/models";

/// std::cin reads a text while it lives.
class StandardInput {
 public:
  explicit StandardInput(const std::string& text) : text_(text) {
    std::cin.clear();
    before_ = std::cin.rdbuf(text_.rdbuf());
  }
  ~StandardInput() {
    std::cin.rdbuf(before_);
    std::cin.clear();
  }
  StandardInput(const StandardInput&) = delete;
  StandardInput& operator=(const StandardInput&) = delete;

 private:
  std::istringstream text_;
  std::streambuf* before_;
};

CliResult chat(const std::string& input, const std::vector<std::string>& options = {},
               const std::string& model = kChatModel) {
  const StandardInput standard_input(input);
  std::vector<std::string> arguments = {"chat", model, "--max-new-tokens", "24"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  return cli(arguments);
}

std::vector<nlohmann::json> parsed_lines(const CliResult& result) {
  EXPECT_EQ(result.code, 0) << result.err;
  std::vector<nlohmann::json> lines;
  std::istringstream text(result.out);
  for (std::string line; std::getline(text, line);) {
    lines.push_back(nlohmann::json::parse(line));
  }
  return lines;
}

std::vector<nlohmann::json> answers(const std::string& input,
                                    std::vector<std::string> options = {}) {
  options.emplace_back("--json");
  return parsed_lines(chat(input, options));
}

/// Prompt of the turns in the shipped model's chat format.
std::vector<Token> chat_prompt(const std::vector<ChatTurn>& turns) {
  static const auto tokenizer = load_tokenizer(kChatModel);
  return encode_chat(*tokenizer, turns);
}

class ChatStrategyTest : public testing::TestWithParam<std::string> {};

TEST_P(ChatStrategyTest, TheSecondTurnIsThatOfAWholePromptAndPrefillsOnlyWhatIsNew) {
  const std::vector<std::string> options = {
      "--strategy", GetParam(), "--temperature",
      GetParam().find("beam") == std::string::npos ? "0.7" : "0"};
  const auto both = answers("My lord, who comes?\nAnd what of Rome?\n", options);
  ASSERT_EQ(both.size(), 2U);
  const auto first = chat_prompt({{"user", "My lord, who comes?"}});
  const auto second = chat_prompt({{"user", "My lord, who comes?"},
                                   {"model", both[0]["text"].get<std::string>()},
                                   {"user", "And what of Rome?"}});
  std::vector<std::string> whole = {
      "generate", kChatModel,         "--tokens", fmt::format("{}", fmt::join(second, ",")),
      "--json",   "--max-new-tokens", "24"};
  whole.insert(whole.end(), options.begin(), options.end());
  if (options.back() == "0") {  // else a turn has its own random numbers
    const auto wanted = parsed_lines(cli(whole)).front();
    EXPECT_EQ(both[1]["tokens"], wanted["tokens"]);
  }
  const auto& statistics = both[1]["statistics"];
  EXPECT_EQ(statistics["prompt_tokens"], second.size());
  EXPECT_EQ(both[0]["statistics"]["reused_tokens"], 0);
  // Cached: the first prompt and its answer, but for the newest token.
  std::vector<Token> cached = first;
  const auto answer = both[0]["tokens"].get<std::vector<Token>>();
  cached.insert(cached.end(), answer.begin(), answer.end() - 1);
  const auto common = std::mismatch(cached.begin(), cached.end(), second.begin(), second.end());
  const auto reused = statistics["reused_tokens"].get<int64_t>();
  EXPECT_GE(reused, std::ssize(first));
  if (GetParam().find("beam") == std::string::npos) {  // its row 0 may hold another beam
    EXPECT_GE(reused, common.second - second.begin()) << "more where a draft went on";
  }
}

TEST_P(ChatStrategyTest, AGreedyChatDraftsWhatAWholePromptDrafts) {
  const std::vector<std::string> options = {"--strategy", GetParam()};
  const auto both = answers("My lord, who comes?\nAnd what of Rome?\n", options);
  ASSERT_EQ(both.size(), 2U);
  const auto second = chat_prompt({{"user", "My lord, who comes?"},
                                   {"model", both[0]["text"].get<std::string>()},
                                   {"user", "And what of Rome?"}});
  const auto wanted = parsed_lines(cli({"generate", kChatModel, "--tokens",
                                        fmt::format("{}", fmt::join(second, ",")), "--json",
                                        "--max-new-tokens", "24", "--strategy", GetParam()}))
                          .front();
  EXPECT_EQ(both[1]["tokens"], wanted["tokens"]);
  for (const char* count : {"steps", "drafted", "accepted", "prompt_tokens"}) {
    EXPECT_EQ(both[1]["statistics"][count], wanted["statistics"][count]) << count;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Strategies, ChatStrategyTest,
    testing::Values("{type: autoregressive}", "{type: speculative, drafter: {type: prompt_lookup}}",
                    "{type: speculative, draft_length: 3, drafter: {type: draft_model, weights: " +
                        kShipped + "/draft}}",
                    "{type: speculative, tree: {type: static, widths: [2, 1]}, drafter: {type: "
                    "eagle, weights: " +
                        kShipped + "/heads/eagle}}",
                    "{type: speculative, drafter: {type: self, layers: 2}}",
                    "{type: beam_search, num_beams: 3}"),
    [](const auto& info) { return fmt::format("_{}", info.index); });

TEST(ChatCliTest, SaysWhereNoTemplateWritesTheTurns) {
  EXPECT_THAT(chat("Hi\n").err, HasSubstr("has no chat template"));
  EXPECT_THAT(chat("Hi\n", {"--quiet"}).err, Not(HasSubstr("chat template")));
}

TEST(ChatCliTest, StreamsAnswersAndRemarksApart) {
  const CliResult result = chat("My lord, who comes?\n", {"--stats"});
  ASSERT_EQ(result.code, 0) << result.err;
  const auto json = answers("My lord, who comes?\n");
  EXPECT_EQ(result.out, json[0]["text"].get<std::string>() + "\n");
  EXPECT_THAT(result.err, AllOf(HasSubstr("tokens/s"), HasSubstr("24 tokens")));
  EXPECT_THAT(chat("My lord, who comes?\n").err, Not(HasSubstr("tokens/s")));
}

TEST(ChatCliTest, CommandsChangeTheChat) {
  const TemporaryFolder folder;
  const auto file = (folder.path() / "chat.json").string();
  const auto all =
      answers(fmt::format("My lord?\n"          // 0
                          "And Rome?\n"         // 1
                          "/undo\nAnd Rome?\n"  // 2: as 1
                          "/retry\n"            // 3: greedy, as 1
                          "/save {}\n"
                          "/reset\nMy lord?\n"               // 4: as 0
                          "//x\n"                            // 5
                          "\"\"\"\ntwo\n/lines\n\"\"\"\n\n"  // 6
                          "/help\n/stats\n/exit\nnever read\n",
                          file));
  ASSERT_EQ(all.size(), 7U);
  EXPECT_EQ(all[2]["tokens"], all[1]["tokens"]);
  EXPECT_EQ(all[3]["tokens"], all[1]["tokens"]);
  EXPECT_EQ(all[3]["turn"], 2);
  EXPECT_EQ(all[4]["tokens"], all[0]["tokens"]);
  EXPECT_EQ(all[4]["turn"], 1);
  const auto saved = nlohmann::json::parse(read_text_file(file))["messages"];
  ASSERT_EQ(saved.size(), 4U);
  EXPECT_EQ(saved[0], nlohmann::json({{"role", "user"}, {"content", "My lord?"}}));
  EXPECT_EQ(saved[1], nlohmann::json({{"role", "assistant"}, {"content", all[0]["text"]}}));
  const auto prompt_tokens = [&](size_t index) {
    return all[index]["statistics"]["prompt_tokens"].get<size_t>();
  };
  const std::vector<ChatTurn> turns = {{"user", "My lord?"},
                                       {"model", all[4]["text"].get<std::string>()},
                                       {"user", "/x"},
                                       {"model", all[5]["text"].get<std::string>()},
                                       {"user", "two\n/lines"}};
  EXPECT_EQ(prompt_tokens(5), chat_prompt({turns.begin(), turns.begin() + 3}).size());
  EXPECT_EQ(prompt_tokens(6), chat_prompt(turns).size());
}

TEST(ChatCliTest, ARetryDrawsAgain) {
  const auto all = answers("My lord?\n/retry\n/undo\nMy lord?\n", {"--temperature", "1.2"});
  ASSERT_EQ(all.size(), 3U);
  EXPECT_NE(all[1]["tokens"], all[0]["tokens"]);
  EXPECT_EQ(all[2]["tokens"], all[0]["tokens"]);
}

TEST(ChatCliTest, AnswersObeyGrammarsAndStopStrings) {
  const auto dates = answers("When?\nAnd then?\n",
                             {"--grammar", SPECDEC_SOURCE_DIR "/configs/grammars/iso_date.gbnf"});
  ASSERT_EQ(dates.size(), 2U);
  for (const auto& date : dates) {
    EXPECT_THAT(date["text"].get<std::string>(), testing::MatchesRegex("....-..-..(T.*)?"));
  }
  const auto text = answers("My lord?\n")[0]["text"].get<std::string>();
  const auto stopped = answers("My lord?\n", {"--stop", text.substr(4, 2)})[0];
  EXPECT_EQ(stopped["stop_reason"], "stop_string");
}

TEST(ChatCliTest, TemplatesDecideAboutSystemPrompts) {
  const TemporaryFolder folder;
  const auto model = (folder.path() / "model").string();
  write_text_model(model);
  EXPECT_THAT(chat("a\n", {"--system", "Be brief."}, model).err,
              HasSubstr("cannot chat with a system prompt"));
  folder.write("model/chat_template.jinja",
               "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}");
  const auto plain = parsed_lines(chat("a\n", {"--json"}, model))[0];
  const auto system =
      parsed_lines(chat("/system Be brief.\na\n/system\n/reset\na\n", {"--json"}, model));
  const auto option = parsed_lines(chat("a\n", {"--json", "--system", "Be brief."}, model))[0];
  EXPECT_GT(system[0]["statistics"]["prompt_tokens"], plain["statistics"]["prompt_tokens"]);
  EXPECT_EQ(system[0]["tokens"], option["tokens"]);
  EXPECT_EQ(system[1]["tokens"], plain["tokens"]);
}

TEST(ChatCliTest, MistakesAreErrors) {
  const auto refused = [](const std::string& input, const std::vector<std::string>& options = {},
                          const std::string& model = kChatModel) {
    const CliResult result = chat(input, options, model);
    EXPECT_EQ(result.code, 2) << input << result.out;
    return result.err;
  };
  EXPECT_THAT(refused("/fly\n"), HasSubstr("unknown command '/fly'"));
  EXPECT_THAT(refused("/retry\n"), HasSubstr("no answer yet"));
  EXPECT_THAT(refused("/save\n"), HasSubstr("name a file"));
  EXPECT_THAT(refused("My \xff lord\n"), HasSubstr("the turn: byte 4 is not part of any UTF-8"));
  EXPECT_THAT(refused("a\n", {}, test_data("gemma3-a").string()), HasSubstr("no tokenizer"));
  EXPECT_THAT(refused("a\n", {"--stop", ""}), HasSubstr("empty text"));
  EXPECT_THAT(refused(std::string(20000, 'x') + " y\n"), HasSubstr("/undo"));
  EXPECT_EQ(chat("").code, 0) << "nobody says anything";
}

/// Raises SIGINT as soon as something is written.
class InterruptingBuffer final : public std::stringbuf {
 protected:
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    if (!raised_) {
      raised_ = true;
      (void)std::raise(SIGINT);
    }
    return std::stringbuf::xsputn(text, size);
  }

 private:
  bool raised_ = false;
};

TEST(ChatCliTest, CtrlCStopsTheAnswerAndNotTheChat) {
  const StandardInput input("My lord, who comes?\nAnd what of Rome?\n");
  InterruptingBuffer buffer;
  std::ostream out(&buffer);
  std::ostringstream err;
  const int code =
      run_cli({"chat", kChatModel, "--max-new-tokens", "24"}, builtin_components(), out, err);
  EXPECT_EQ(code, 0) << err.str();
  EXPECT_THAT(err.str(), HasSubstr("[stopped]"));
  const std::string text = buffer.str();
  const std::string first = text.substr(0, text.find('\n'));
  const auto whole = answers("My lord, who comes?\n")[0]["text"].get<std::string>();
  EXPECT_LT(first.size(), whole.size());
  EXPECT_EQ(whole.substr(0, first.size()), first);
  EXPECT_GT(text.size(), first.size() + 2) << "the second turn is answered";
}

TEST(ChatCliTest, WhatADrafterReadsOfTheCacheIsCheckedBeforeTheFirstToken) {
  const std::string self = "{type: speculative, drafter: {type: self, upper_half: true}}";
  for (const CliResult& result :
       {chat("My lord?\n", {"--strategy", self}),
        cli({"generate", kChatModel, "--prompt", "My lord", "--strategy", self})}) {
    EXPECT_EQ(result.code, 2);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, HasSubstr("drafter.upper_half"));
  }
}

TEST(ChatCliTest, AnswersOfLayersOnDiskSayWhatWasRead) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "target.layers").string();
  const auto in_memory = answers("Who comes?\nAnd then?\n");
  const auto on_disk =
      answers("Who comes?\nAnd then?\n", {"--memory-limit", "5MB", "--layer-file", file});
  ASSERT_EQ(on_disk.size(), 2U);
  for (size_t turn = 0; turn < 2; ++turn) {
    EXPECT_EQ(on_disk[turn]["tokens"], in_memory[turn]["tokens"]);
    EXPECT_GT(on_disk[turn]["statistics"]["disk_bytes"].get<int64_t>(), 0);
    EXPECT_FALSE(in_memory[turn]["statistics"].contains("disk_bytes"));
  }
}

}  // namespace
}  // namespace specdec
