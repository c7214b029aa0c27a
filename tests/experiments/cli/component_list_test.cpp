#include "experiments/cli/component_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "experiments/config/config_file.h"
#include "tests/experiments/cli/cli_result.h"
#include "tests/support/error_message.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(ComponentListTest, ExplainsOneComponent) {
  const auto result = cli({"list", "prompt_lookup"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, StartsWith("drafter prompt_lookup\n"));
  EXPECT_THAT(result.out, testing::ContainsRegex("promise +lossless\n"));
  EXPECT_THAT(result.out, testing::ContainsRegex("max_ngram +8 +1 to 1024 +longest match that"));
  EXPECT_THAT(result.out, Not(HasSubstr("suffix")));
  EXPECT_THAT(cli({"list", "eagle3"}).out, testing::ContainsRegex("weights +required"));
}

TEST(ComponentListTest, ExplainsAllOfAKindAndOfAName) {
  const auto verifiers = cli({"list", "verifier"}).out;
  const Components all = builtin_components();
  for (const auto& [type, entry] : all.verifiers.entries()) {
    EXPECT_THAT(verifiers, HasSubstr("verifier " + type + "\n"));
  }
  EXPECT_THAT(verifiers, Not(HasSubstr("drafter ")));
  const auto both = cli({"list", "synthetic"}).out;
  EXPECT_THAT(both, HasSubstr("drafter synthetic\n"));
  EXPECT_THAT(both, HasSubstr("verifier synthetic\n"));
}

TEST(ComponentListTest, RefusesAnUnknownName) {
  const auto result = cli({"list", "sufix"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("did you mean 'suffix'?"));
}

TEST(ComponentListTest, OptionsAreInTheJson) {
  const auto json = nlohmann::json::parse(cli({"list", "suffix", "--json"}).out);
  EXPECT_EQ(json.size(), 1U);
  const auto& suffix = json["drafters"][0];
  EXPECT_EQ(suffix["type"], "suffix");
  EXPECT_EQ(suffix["options"][0], (nlohmann::json{{"name", "min_match"},
                                                  {"required", false},
                                                  {"default", "1"},
                                                  {"values", "1 to 1024"},
                                                  {"meaning", "shortest match that drafts"}}));
}

const std::vector<ComponentHelp> kComponents = {
    {.kind = "drafter",
     .type = "one",
     .help = "a|b",
     .source = "Li, 2024, arXiv:2401.15077; us",
     .page = "docs/one.md",
     .promise = "lossless",
     .options = {{"weights", "", "", "a folder"}, {"size", "8", "1 to 9", "of it"}}},
    {.kind = "drafter",
     .type = "two",
     .help = "other",
     .source = "",
     .page = "",
     .promise = "lossy",
     .options = {{"corpus", "none", "[{file: ...}]", "texts"}}}};

TEST(ComponentListTest, WritesTheListsOfAPageAnew) {
  const std::string before =
      "a\n<!-- specdec list drafter -->\nold\n<!-- end of list -->\nb\n"
      "<!-- specdec list one -->\n<!-- end of list -->\n"
      "<!-- specdec list one two -->\n<!-- end of list -->\nc";
  const auto page = with_component_lists(before, kComponents, false);
  EXPECT_EQ(page,
            "a\n<!-- specdec list drafter -->\n"
            "| drafter | what it does | promise | source |\n|---|---|---|---|\n"
            "| [`one`](docs/one.md) | a\\|b | lossless | Li, 2024, "
            "[arXiv:2401.15077](https://arxiv.org/abs/2401.15077); us |\n"
            "| `two` | other | lossy |  |\n"
            "<!-- end of list -->\nb\n"
            "<!-- specdec list one -->\n"
            "| option | default | values | |\n|---|---|---|---|\n"
            "| `weights` | required |  | a folder |\n| `size` | `8` | 1 to 9 | of it |\n"
            "<!-- end of list -->\n"
            "<!-- specdec list one two -->\n"
            "| type | option | default | values | |\n|---|---|---|---|---|\n"
            "| `one` | `weights` | required |  | a folder |\n|  | `size` | `8` | 1 to 9 | of it |\n"
            "| `two` | `corpus` | none | `[{file: ...}]` | texts |\n"
            "<!-- end of list -->\nc");
  EXPECT_EQ(with_component_lists(page, kComponents, false), page);
  EXPECT_THAT(with_component_lists(before, kComponents, true), HasSubstr("[`one`](one.md)"));
}

TEST(ComponentListTest, WhatIsCalledTheSameIsToldApart) {
  std::vector<ComponentHelp> all = kComponents;
  all.insert(all.begin(), all[0]);
  all.front().kind = "verifier";  // another 'one'
  all.insert(all.begin(), all[1]);
  all.front().kind = "strategy";
  all.front().type = "drafter";  // named like a kind
  const auto list = [&](const std::string& names) {
    return with_component_lists("<!-- specdec list " + names + " -->\n<!-- end of list -->", all,
                                true);
  };
  EXPECT_THAT(list("one"), HasSubstr("| `one` (verifier) | `weights` |"));
  EXPECT_THAT(list("one"), HasSubstr("| `one` (drafter) | `weights` |"));
  EXPECT_THAT(list("drafter"), HasSubstr("| drafter | what it does |"));
  EXPECT_THAT(list("drafter"), HasSubstr("| `two` | other |"));
  EXPECT_THAT(list("drafter"), Not(HasSubstr("`drafter`"))) << "it is a strategy";
  std::ostringstream text;
  print_details(text, components_named(all, "drafter"));
  EXPECT_THAT(text.str(), HasSubstr("strategy drafter\n"));
  EXPECT_THAT(text.str(), HasSubstr("drafter two\n"));
  const auto json = components_json(components_named(all, "drafter"));
  EXPECT_EQ(json["strategies"].size(), 1U);
  EXPECT_EQ(json["drafters"].size(), 2U);
}

TEST(ComponentListTest, RefusesListsItCannotWrite) {
  const auto message = [](const std::string& page) {
    return error_message<ConfigError>([&] { with_component_lists(page, kComponents, false); });
  };
  EXPECT_THAT(message("<!-- specdec list drafter -->\nold\n"), HasSubstr("has no '<!-- end of"));
  EXPECT_THAT(message("<!-- specdec list drafter\n<!-- end of list -->\n"),
              HasSubstr("'<!-- specdec list drafter' has no"));
  EXPECT_THAT(message("<!-- specdec list three -->\n<!-- end of list -->"),
              HasSubstr("'three' is neither"));
}

TEST(ComponentListTest, TheCommandWritesPages) {
  const TemporaryFolder folder;
  const auto page =
      folder.write("page.md", "<!-- specdec list suffix -->\n<!-- end of list -->\n").string();
  EXPECT_EQ(cli({"list", "--markdown", page}).out, page + ": written anew\n");
  EXPECT_THAT(read_text_file(page), HasSubstr("| `min_match` | `1` | 1 to 1024 |"));
  EXPECT_EQ(cli({"list", "--markdown", page}).out, "");
  const auto broken = folder.write("broken.md", "<!-- specdec list suffix -->\n").string();
  const auto refused = cli({"list", "--markdown", broken});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("broken.md: the list"));
}

TEST(ComponentListTest, TheDocsSayWhatTheRegistrySays) {
  const std::filesystem::path root = SPECDEC_SOURCE_DIR;
  const auto components = describe_components(builtin_components());
  std::vector<std::filesystem::path> pages = {root / "README.md"};
  for (const auto& entry : std::filesystem::directory_iterator(root / "docs")) {
    if (entry.path().extension() == ".md") {
      pages.push_back(entry.path());
    }
  }
  for (const auto& page : pages) {
    const auto text = read_text_file(page);
    EXPECT_EQ(with_component_lists(text, components, page.parent_path() != root), text)
        << page << " is behind; run: specdec list --markdown README.md docs/*.md";
  }
  EXPECT_THAT(read_text_file(root / "README.md"), HasSubstr("<!-- specdec list drafter -->"));
}

}  // namespace
}  // namespace specdec
