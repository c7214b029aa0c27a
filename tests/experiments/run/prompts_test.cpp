#include "experiments/run/prompts.h"

#include <gmock/gmock.h>

#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(PromptsTest, ReadsAllForms) {
  const TemporaryFolder folder;
  const auto prompts = read_prompts(folder.write(
      "p.jsonl",
      "\xEF\xBB\xBF{\"question_id\": 81, \"category\": \"writing\", \"turns\": [\"a\", \"b\"], "
      "\"reference\": []}\r\n"
      "\r\n"
      "  {\"prompt\": \"c\\nd\"}\r\n"
      "{\"tokens\": [2, 5], \"id\": \"x\"}"));
  ASSERT_EQ(prompts.size(), 3U);
  EXPECT_EQ(prompts[0].id, "81");
  EXPECT_EQ(prompts[0].category, "writing");
  EXPECT_THAT(prompts[0].turns, ElementsAre("a", "b"));
  EXPECT_EQ(prompts[1].id, "3");
  EXPECT_THAT(prompts[1].turns, ElementsAre("c\nd"));
  EXPECT_THAT(prompts[2].tokens, ElementsAre(2, 5));
  EXPECT_EQ(prompts[2].id, "x");
  // Every turn of the file has a number of its own: it keys the random choices.
  EXPECT_EQ(prompts[0].number, 0U);
  EXPECT_EQ(prompts[1].number, 2U);
  EXPECT_EQ(prompts[2].number, 3U);
}

TEST(PromptsTest, KeepsSchemasAsWritten) {
  const TemporaryFolder folder;
  const auto prompts = read_prompts(folder.write(
      "p.jsonl",
      "{\"prompt\": \"a\", \"schema\": {\"type\" : \"object\", \"properties\": {\"z\": {}, "
      "\"a\": {\"minimum\": 1.50, \"maximum\": 1e30}}}}\n"
      "{\"prompt\": \"b\", \"schema\": true, \"id\": 7}\n"
      "{\"prompt\": \"c\"}\n"));
  ASSERT_EQ(prompts.size(), 3U);
  EXPECT_EQ(prompts[0].schema,
            "{\"type\":\"object\",\"properties\":{\"z\":{},\"a\":{\"minimum\":1.50,"
            "\"maximum\":1e30}}}");
  EXPECT_EQ(prompts[1].schema, "true");
  EXPECT_EQ(prompts[1].id, "7");
  EXPECT_EQ(prompts[2].schema, "");
}

TEST(PromptsTest, KeepsToolsAsWritten) {
  const TemporaryFolder folder;
  const auto prompts = read_prompts(folder.write(
      "p.jsonl",
      "{\"prompt\": \"a\", \"tools\": [{\"z\": 1.50, \"a\": []}]}\n{\"prompt\": \"b\"}\n"));
  EXPECT_EQ(prompts[0].tools, "[{\"z\":1.50,\"a\":[]}]");
  EXPECT_EQ(prompts[1].tools, "");
}

TEST(PromptsTest, ReadsAnswerKeys) {
  const TemporaryFolder folder;
  const auto prompts = read_prompts(folder.write(
      "p.jsonl",
      "{\"prompt\": \"a\", \"scorer\": \"number\", \"reference\": 72}\n"
      "{\"turns\": [\"b\", \"c\"], \"scorer\": \"regex\", \"reference\": [null, \"x+\"]}\n"
      "{\"prompt\": \"d\", \"reference\": \"not scored\"}\n"
      "{\"prompt\": \"e\", \"scorer\": \"program\", \"reference\": \"assert f(2) == 4\"}\n"));
  ASSERT_EQ(prompts.size(), 4U);
  EXPECT_EQ(prompts[3].answer_keys[0]->scorer, Scorer::kProgram);
  EXPECT_EQ(prompts[3].answer_keys[0]->reference, "assert f(2) == 4");
  ASSERT_EQ(prompts[0].answer_keys.size(), 1U);
  EXPECT_EQ(prompts[0].answer_keys[0]->scorer, Scorer::kNumber);
  EXPECT_EQ(prompts[0].answer_keys[0]->reference, "72");
  ASSERT_EQ(prompts[1].answer_keys.size(), 2U);
  EXPECT_EQ(prompts[1].answer_keys[0], std::nullopt);
  EXPECT_EQ(prompts[1].answer_keys[1]->reference, "x+");
  EXPECT_TRUE(prompts[2].answer_keys.empty());
}

TEST(PromptsTest, RefusesAnswerKeysThatCannotBeMet) {
  for (const auto& [keys, message] : std::vector<std::pair<std::string, std::string>>{
           {"\"scorer\": \"number\"", "needs a 'reference'"},
           {"\"scorer\": 3, \"reference\": 1",
            "'scorer' must be number, regex or program, not number"},
           {"\"scorer\": \"bleu\", \"reference\": 1", "not 'bleu'"},
           {"\"scorer\": \"number\", \"reference\": \"many\"", "must end with its number"},
           {"\"scorer\": \"number\", \"reference\": true", "a text or a number, not boolean"},
           {"\"scorer\": \"number\", \"reference\": [1, 2]", "has 2 entries for 1 turns"}}) {
    const TemporaryFolder folder;
    try {
      (void)read_prompts(folder.write("p.jsonl", "{\"prompt\": \"a\", " + keys + "}\n"));
      ADD_FAILURE() << keys;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("p.jsonl:1"), HasSubstr(message)));
    }
  }
}

/// Files made for other tools have keys that mean nothing here; a misspelling would be lost.
TEST(PromptsTest, OtherKeysAreKeptApartFromMisspelledOnes) {
  const TemporaryFolder folder;
  const auto prompts = read_prompts(folder.write(
      "p.jsonl",
      "{\"prompt\": \"a\", \"answer\": \"4\", \"task_id\": \"HumanEval/0\", \"idx\": 3, \"title\": "
      "1, "
      "\"question\": \"b\", \"source\": \"c\", \"test\": \"d\", \"entry_point\": \"e\"}\n"));
  EXPECT_EQ(prompts[0].unread_keys.size(), 8U);
  for (const auto& [key, meant] :
       std::vector<std::pair<std::string, std::string>>{{"catagory", "category"},
                                                        {"refrence", "reference"},
                                                        {"scorers", "scorer"},
                                                        {"schemas", "schema"},
                                                        {"questionid", "question_id"}}) {
    try {
      (void)read_prompts(
          folder.write("p.jsonl", "\n{\"prompt\": \"a\", \"" + key + "\": \"x\"}\n"));
      ADD_FAILURE() << key;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr("p.jsonl:2: unknown key '" + key + "'; did you mean '" +
                                          meant + "'? Known: turns, "));
    }
  }
}

TEST(PromptsTest, NamesFileAndLineOfMistakes) {
  const std::string good = "{\"prompt\": \"a\"}\n";
  const std::string deep = "{\"prompt\": \"a\", \"x\": " + std::string(100, '[') + "}";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{\"prompt\": \"a\"", "p.jsonl:2: not valid JSON at column "},
      {"not json", "p.jsonl:2: not valid JSON at column "},
      {"{\"prompt\": \"\xff\"}", "p.jsonl:2: not valid JSON at column "},
      {"[1]", "p.jsonl:2: expected an object"},
      {"{}", "none of the keys 'turns', 'prompt', 'tokens'"},
      {"{\"prompt\": \"a\", \"turns\": [\"a\"]}", "more than one of the keys"},
      {"{\"prompt\": 3}", "'prompt' must be a text, not number"},
      {"{\"prompt\": \"\"}", "a prompt is empty"},
      {"{\"turns\": []}", "at least one text"},
      {"{\"turns\": \"a\"}", "at least one text"},
      {"{\"turns\": [\"a\", 3]}", "'turns' must hold texts, not number"},
      {"{\"tokens\": []}", "at least one id"},
      {"{\"tokens\": [-1]}", "whole numbers of at least 0"},
      {"{\"tokens\": [1.5]}", "whole numbers of at least 0"},
      {"{\"tokens\": [99999999999]}", "whole numbers of at least 0"},
      {"{\"prompt\": \"a\", \"category\": 3}", "'category' must be a text"},
      {"{\"prompt\": \"a\", \"id\": [1]}", "'id' must be a text or a whole number"},
      {"{\"prompt\": \"a\", \"id\": \"1\"}", "the id '1' is used twice"},
      {"{\"prompt\": \"a\", \"schema\": \"{}\"}",
       "'schema' must be a JSON Schema (an object, true or "},
      {"{\"prompt\": \"a\", \"schema\": null}", "true or false), not null"},
      {"{\"prompt\": \"a\", \"tools\": {}}", "'tools' must be a list of tools, not object"},
      {"{\"tokens\": [1], \"tools\": []}", "'tools' needs texts"},
      {"{\"prompt\": \"a\", \"schema\": {\"a\": 1, \"a\": 2}}",
       "the key 'a' stands twice in one object"},
      {"{\"prompt\": \"a\", \"prompt\": \"b\"}", "the key 'prompt' stands twice"},
      {deep, "nested deeper"},
  };
  const TemporaryFolder folder;
  for (const auto& [line, expected] : cases) {
    try {
      (void)read_prompts(folder.write("p.jsonl", good + line));
      ADD_FAILURE() << line;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr(expected)) << line;
      EXPECT_THAT(error.what(), HasSubstr("p.jsonl:2: ")) << line;
    }
  }
}

TEST(PromptsTest, ReportsAllBrokenLinesAtOnce) {
  const TemporaryFolder folder;
  try {
    (void)read_prompts(folder.write("p.jsonl", "{\n{\"prompt\": \"a\"}\n[]\n"));
    ADD_FAILURE();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("p.jsonl:1: "));
    EXPECT_THAT(error.what(), HasSubstr("p.jsonl:3: "));
  }
}

TEST(PromptsTest, RefusesFilesWithoutPrompts) {
  const TemporaryFolder folder;
  for (const char* text : {"", "\n \r\n\t\n", "\xEF\xBB\xBF"}) {
    EXPECT_THROW((void)read_prompts(folder.write("p.jsonl", text)), ConfigError);
  }
  EXPECT_THROW((void)read_prompts(folder.path()), ConfigError);
  EXPECT_THROW((void)read_prompts(folder.path() / "missing"), ConfigError);
}

}  // namespace
}  // namespace specdec
