// specdec grammar test, sample and explain, with the shipped tokenizer.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/tokenizers/tokenizer.h"
#include "experiments/config/config_file.h"
#include "experiments/grammar/grammar_cases.h"
#include "experiments/grammar/grammar_check.h"
#include "grammar/compiled_grammar.h"
#include "tests/experiments/cli/cli_result.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

const std::string kPerson =
    R"({"type": "object", "properties": {"name": {"type": "string", "minLength": 2},)"
    R"( "age": {"type": "integer", "minimum": 0, "maximum": 150}}, "required": ["name", "age"],)"
    R"( "additionalProperties": false})";

std::vector<std::string> split_lines(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

class GrammarCommandsTest : public testing::Test {
 protected:
  static const Tokenizer& tokenizer() {
    static const auto loaded = load_tokenizer(kShippedTokenizer);
    return *loaded;
  }

  std::string write(const std::string& name, const std::string& text) const {
    return folder_.write(name, text).string();
  }

  /// True when the text is of the schema, walked token by token.
  static bool accepts(const std::string& schema, const std::string& text,
                      const JsonSchemaOptions& options) {
    const GrammarCase test_case{"", schema, {{text, true, ""}}};
    const auto result = check_grammar_case(test_case, make_grammar_vocabulary(tokenizer()),
                                           tokenizer(), {options, false});
    EXPECT_EQ(result.error.value_or(""), "");
    return result.all_right();
  }

  TemporaryFolder folder_;
};

TEST_F(GrammarCommandsTest, HelpTeaches) {
  EXPECT_THAT(cli({"grammar", "--help"}).out, HasSubstr("specdec grammar sample"));
  for (const char* command : {"test", "sample", "explain"}) {
    const auto help = cli({"grammar", command, "--help"});
    EXPECT_EQ(help.code, 0);
    EXPECT_THAT(help.out, HasSubstr(fmt::format("specdec grammar {} ", command)));
    EXPECT_THAT(help.out, HasSubstr("--whitespace"));
    EXPECT_THAT(help.out, Not(HasSubstr("the same")));
  }
}

TEST_F(GrammarCommandsTest, TestCountsRightAndWrongAnswers) {
  std::string text = fmt::format(
      R"({{"id": "right", "schema": {}, "tests": [{{"valid": true, "data": {{"age": 7, "name": )"
      R"("Ann"}}}}, {{"valid": false, "data": {{"age": 7}}}}]}})"
      "\n\n",
      kPerson);
  text +=
      R"({"id": "wrong", "schema": {"type": "integer"}, "tests": [{"valid": true, "data": "a"},)"
      R"( {"valid": false, "data": 1e2}]})"
      "\n";
  text += R"({"file": "a.json", "description": "no tests", "schema": {"type": 7}})"
          "\n";
  text += R"({"id": "nothing", "schema": false, "tests": [{"valid": false, "data": 1}]})";
  const auto result = grammar_cli({"test", write("cases.jsonl", text)});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("wrong: test 1, valid, is refused: token "));
  EXPECT_THAT(result.out, HasSubstr("wrong: test 2, invalid, is accepted\n"));
  EXPECT_THAT(result.out, HasSubstr("a.json: no tests: "));
  EXPECT_THAT(result.out, Not(HasSubstr("right: test")));
  EXPECT_THAT(result.out, HasSubstr("tokenizer prepared          "));
  EXPECT_THAT(result.out, HasSubstr("grammars                    4\n"));
  EXPECT_THAT(result.out, HasSubstr("compiled                    3 (75.00 %)\n"));
  EXPECT_THAT(result.out, HasSubstr("with tests                  3\n"));
  EXPECT_THAT(result.out, HasSubstr("all right, of these         2 (66.67 %)\n"));
  EXPECT_THAT(result.out, HasSubstr("accept an invalid instance  1\n"));
  EXPECT_THAT(result.out, HasSubstr("refuse a valid instance     1\n"));
  EXPECT_THAT(result.out, HasSubstr("valid instances accepted    1/2\n"));
  EXPECT_THAT(result.out, HasSubstr("invalid instances refused   2/3\n"));
  EXPECT_THAT(result.out, HasSubstr("internal errors             0\n"));
  EXPECT_THAT(result.out, HasSubstr("a mask, us"));
  EXPECT_THAT(grammar_cli({"test", write("cases.jsonl", text), "--limit", "1"}).out,
              HasSubstr("grammars                    1\n"));
}

TEST_F(GrammarCommandsTest, TestTellsLimitsFromInternalErrors) {
  std::string pattern = "^";  // each of its states knows which of the letters were read
  for (char letter = 'a'; letter <= 'v'; ++letter) {
    pattern += std::string("(?=.*") + letter + ")";
  }
  const std::string cases =
      R"({"id": "letters", "schema": {"pattern": ")" + pattern +
      R"(.*$"}, "tests": [{"valid": true, "data": "abcdefghijklmnopqrstuv"}]})";
  const auto result = grammar_cli({"test", write("cases.jsonl", cases)});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("limits reached              1\n"));
  EXPECT_THAT(result.out, HasSubstr("internal errors             0\n"));
}

TEST_F(GrammarCommandsTest, TestTakesGrammarsThatNameAnEndToken) {
  const std::string cases =
      R"({"id": "end", "grammar": {"type": "lark", "text": "start: \"a\" <eos>"}, )"
      R"("tests": [{"valid": false, "text": "a"}]})";
  const auto result = grammar_cli({"test", write("cases.jsonl", cases)});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("all right, of these         1 "));
  EXPECT_THAT(result.out, HasSubstr("internal errors             0\n"));
}

TEST_F(GrammarCommandsTest, TestTakesEveryNotation) {
  (void)write("list.lark", "start: NAME (\",\" NAME)*\nNAME: /[a-z]+/");
  const std::string text =
      R"({"id": "lark", "grammar": {"type": "lark", "file": "list.lark"}, "tests": [)"
      R"({"valid": true, "text": "a,b"}, {"valid": false, "text": "a,,b"}]})"
      "\n"
      R"({"id": "gbnf", "grammar": {"type": "gbnf", "text": "top ::= [0-9]+", "start": "top"}, )"
      R"("tests": [{"valid": true, "text": "12"}, {"valid": false, "text": ""}]})"
      "\n"
      R"({"id": "regex", "grammar": {"type": "regex", "pattern": "a|b"}, "tests": [)"
      R"({"valid": true, "text": "b"}, {"valid": false, "text": "ab"}]})"
      "\n"
      R"({"id": "choice", "grammar": {"type": "choice", "choices": ["yes", "no", "7"]}, "tests": [)"
      R"({"valid": true, "text": "7"}, {"valid": true, "text": "maybe"}]})"
      "\n"
      R"({"id": "tags", "grammar": {"type": "trigger", "triggers": [{"begin": "<a>", "end": )"
      R"("</a>", "grammar": {"type": "json_schema", "schema": {"const": 1}}}]}, "tests": [)"
      R"({"valid": true, "text": "so <a>1</a> it is"}, {"valid": false, "text": "<a>2</a>"}]})"
      "\n"
      R"({"id": "schema", "grammar": {"type": "json_schema", "schema": {"type": "array"}, )"
      R"("whitespace": "spaced"}, "tests": [{"valid": true, "data": [1, 2]}, )"
      R"({"valid": false, "text": "[1,2]"}]})"
      "\n"
      R"({"id": "wrong", "grammar": {"type": "lark", "text": "start: nope"}})";
  const auto result = grammar_cli({"test", write("cases.jsonl", text)});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("choice: test 2, valid, is refused"));
  EXPECT_THAT(result.out, HasSubstr("wrong: text:1:8: 'nope' used but not defined"));
  EXPECT_THAT(result.out, HasSubstr("grammars                    7\n"));
  EXPECT_THAT(result.out, HasSubstr("compiled                    6 ("));
  EXPECT_THAT(result.out, HasSubstr("all right, of these         5 ("));
  EXPECT_THAT(result.out, HasSubstr("valid instances accepted    6/7\n"));
  EXPECT_THAT(result.out, HasSubstr("invalid instances refused   5/5\n"));
}

TEST_F(GrammarCommandsTest, TextsOfTestsMayHaveTokens) {
  const std::string text =
      R"({"id": "lark", "grammar": {"type": "lark", "text": "start: <[7]> %json {} ", "whitespace": )"
      R"("spaced"}, "tests": [{"valid": true, "text": [{"token": "<[7]>"}, "[1, ", "2]"]}, )"
      R"({"valid": false, "text": ["[1]"]}, {"valid": true, "text": [{"token": "<[8]>"}]}]})"
      "\n"
      R"({"id": "gbnf", "grammar": {"type": "gbnf", "text": "root ::= <[1]>"}, "tests": [)"
      R"({"valid": true, "text": [{"token": "<[1]>"}]}]})"
      "\n"
      R"({"id": "odd", "grammar": {"type": "gbnf", "text": "root ::= \"a\""}, "tests": [)"
      R"({"valid": true, "text": ["a", {"token": "<|nope|>"}]}]})";
  const auto result = grammar_cli({"test", write("cases.jsonl", text)});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("lark: test 3, valid, is refused: token 8 at byte 0"));
  EXPECT_THAT(result.out, HasSubstr("odd: the vocabulary of 2048 tokens has no token '<|nope|>'"));
  EXPECT_THAT(result.out, HasSubstr("valid instances accepted    2/3\n"));
  EXPECT_THAT(result.out, HasSubstr("internal errors             0\n"));
  const auto wrong =
      grammar_cli({"test", write("cases.jsonl", R"({"id": "a", "schema": {}, "tests")"
                                                R"(: [{"valid": true, "text": [1]}]})")});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("cases.jsonl:1: 'text' has an item that is neither a text nor"));
}

/// Whoever wrote them chose how.
TEST_F(GrammarCommandsTest, RecordedTextsMayHaveAllSpellings) {
  const std::string blanks(64, ' ');
  const std::string tests = R"("tests": [{"valid": true, "text": "[\"\\u0061\"]"},)"
                            R"( {"valid": true, "text": "[)" +
                            blanks + R"(\"a\"]"}, {"valid": false, "text": "[ )" + blanks +
                            R"(\"a\"]"}]})";
  const std::string text = R"({"id": "schema", "schema": {"type": "array"}, )" + tests +
                           "\n"
                           R"({"id": "key", "grammar": {"type": "json_schema", "schema": )"
                           R"({"type": "array"}, "whitespace": "any"}, )" +
                           tests;
  const std::string cases = write("cases.jsonl", text);
  const auto result = grammar_cli({"test", cases, "--whitespace", "any"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("all right, of these         2 (100.00 %)"));
  const auto narrow = grammar_cli({"test", cases, "--whitespace", "any", "--max-whitespace", "63",
                                   "--escapes", "minimal", "--limit", "1"});
  EXPECT_THAT(narrow.out, HasSubstr("valid instances accepted    0/2\n"));
  const auto unused = grammar_cli({"test", cases, "--max-whitespace", "63"});
  EXPECT_EQ(unused.code, 2);
  EXPECT_THAT(unused.err, HasSubstr("max_whitespace is 63, but whitespace is compact"));
}

TEST_F(GrammarCommandsTest, BoundsOfWhiteSpaceThatBoundNothingAreRefused) {
  const std::string calls =
      R"({"style": "llama3", "tools": [{"type": "function", "function": {"name": "f"}}])";
  const auto spaced = grammar_cli({"sample", write("calls.json", calls + "}"), "--type",
                                   "tool_calls", "--max-whitespace", "5"});
  EXPECT_EQ(spaced.code, 2);
  EXPECT_THAT(spaced.err, HasSubstr("calls.json: max_whitespace is 5, but no schema in it has"));
  const auto any = grammar_cli({"sample", write("any.json", calls + R"(, "whitespace": "any"})"),
                                "--type", "tool_calls", "--max-whitespace", "5"});
  EXPECT_EQ(any.code, 0) << any.err;
}

TEST_F(GrammarCommandsTest, SamplesAreSpelledPlainly) {
  const auto schema = write("schema.json", R"({"const": {"tags": ["1", "é"]}})");
  EXPECT_EQ(grammar_cli({"sample", schema, "-n", "2"}).out,
            "{\"tags\":[\"1\",\"é\"]}\n{\"tags\":[\"1\",\"é\"]}\n");
  const std::string text = R"({"\u0074)";
  EXPECT_THAT(grammar_cli({"explain", schema, "--text", text}).out,
              HasSubstr("not allowed   from byte 2 on: \\u0074"));
  EXPECT_THAT(grammar_cli({"explain", schema, "--text", text, "--escapes", "any"}).out,
              Not(HasSubstr("not allowed")));
  const auto calls = write(
      "calls.json",
      R"({"style": "llama3", "tool_choice": "required", "tools": [{"type": "function", "function": )"
      R"({"name": "f", "parameters": {"type": "object", "properties": {"min": {"const": 1}}, )"
      R"("required": ["min"], "additionalProperties": false}}}]})");
  EXPECT_EQ(grammar_cli({"sample", calls, "--type", "tool_calls"}).out,
            "{\"name\": \"f\", \"parameters\": {\"min\": 1}}\n");
}

TEST_F(GrammarCommandsTest, TestListsTwentyProblemsUnlessVerbose) {
  std::string text;
  for (int i = 0; i < 25; ++i) {
    text += fmt::format(
        R"({{"id": "case {}", "schema": true, "tests": [{{"valid": false, "data": 1}}]}})"
        "\n",
        i);
  }
  const auto cases = write("cases.jsonl", text);
  const auto brief = grammar_cli({"test", cases});
  EXPECT_THAT(brief.out, HasSubstr("case 19: test 1, invalid, is accepted\n... and 5 more; "));
  EXPECT_THAT(grammar_cli({"test", cases, "--verbose"}).out, HasSubstr("case 24: test 1"));
}

TEST_F(GrammarCommandsTest, TestWritesJsonLines) {
  const auto cases = write(
      "cases.jsonl",
      R"({"id": "a", "schema": {"const": 1.0}, "tests": [{"valid": true, "data": 1}, {"valid": false, "data": 2}]})"
      "\n"
      R"({"id": "b", "schema": {"type": "nonsense"}})");
  const auto out = (folder_.path() / "out.jsonl").string();
  ASSERT_EQ(grammar_cli({"test", cases, "--json", out, "--bits"}).code, 0);
  const auto lines = split_lines(read_text_file(out, 1 << 20));
  ASSERT_EQ(lines.size(), 2U);
  const auto a = nlohmann::json::parse(lines[0]);
  EXPECT_EQ(a["id"], "a");
  EXPECT_EQ(a["compiled"], true);
  EXPECT_TRUE(a["error"].is_null());
  EXPECT_GT(a["compile_us"].get<double>(), 0.0);
  EXPECT_GT(a["first_mask_us"].get<double>(), a["compile_us"].get<double>());
  EXPECT_EQ(a["tests"].dump(),
            R"([{"accepted":true,"valid":true},{"accepted":false,"valid":false}])");
  EXPECT_EQ(a["mask_us"].size(), 4U);  // the first; "1" and its end; "2"
  const auto b = nlohmann::json::parse(lines[1]);
  EXPECT_EQ(b["compiled"], false);
  EXPECT_THAT(b["error"].get<std::string>(), HasSubstr("nonsense"));
  const auto printed = grammar_cli({"test", cases, "--json", "-"});
  EXPECT_EQ(nlohmann::json::parse(split_lines(printed.out).at(1))["id"], "b");
  EXPECT_THAT(printed.out, Not(HasSubstr("schemas ")));
}

TEST_F(GrammarCommandsTest, TestWritesInstancesInEveryStyle) {
  const std::string data = R"({"a": [1, {"b": "x: y, z"}], "c": {}, "d": []})";
  const auto cases =
      write("cases.jsonl", fmt::format(R"({{"id": "a", "schema": {{"type": "object"}}, "tests": )"
                                       R"([{{"valid": true, "data": {}}}]}})",
                                       data));
  for (const char* style : {"compact", "spaced", "any", "indent:0", "indent:2"}) {
    EXPECT_THAT(grammar_cli({"test", cases, "--whitespace", style}).out,
                HasSubstr("valid instances accepted    1/1\n"))
        << style;
  }
  const JsonValue value = parse_json(data, "data");
  EXPECT_EQ(write_json(value, "compact"), R"({"a":[1,{"b":"x: y, z"}],"c":{},"d":[]})");
  EXPECT_EQ(write_json(value, "any"), write_json(value, "compact"));
  EXPECT_EQ(write_json(value, "spaced"), R"({"a": [1, {"b": "x: y, z"}], "c": {}, "d": []})");
  EXPECT_EQ(write_json(parse_json(R"({"a":[1,{}],"b":1.50})", ""), "indent:2"),
            "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": 1.50\n}");
}

TEST_F(GrammarCommandsTest, TestTakesOrderFormatAndRegistry) {
  const auto order =
      write("order.jsonl", fmt::format(R"({{"id": "a", "schema": {}, "tests": [{{"valid": true, )"
                                       R"("data": {{"age": 7, "name": "Ann"}}}}]}})",
                                       kPerson));
  EXPECT_THAT(grammar_cli({"test", order}).out, HasSubstr("accepted    1/1\n"));
  EXPECT_THAT(grammar_cli({"test", order, "--order", "schema"}).out,
              HasSubstr("accepted    0/1\n"));
  const auto format = write("format.jsonl", R"({"id": "a", "schema": {"format": "date"}, "tests": )"
                                            R"([{"valid": false, "data": "no date"}]})");
  EXPECT_THAT(grammar_cli({"test", format}).out, HasSubstr("refused   1/1\n"));
  EXPECT_THAT(grammar_cli({"test", format, "--format", "annotate"}).out,
              HasSubstr("refused   0/1\n"));
  const auto registry =
      write("registry.jsonl", R"({"uri": "http://a/b.json", "schema": {"type": "null"}})");
  const auto refers = write("refers.jsonl", R"({"id": "a", "schema": {"$ref": "http://a/b.json"},)"
                                            R"( "tests": [{"valid": true, "data": null}]})");
  EXPECT_THAT(grammar_cli({"test", refers}).out, HasSubstr("http://a/b.json"));
  EXPECT_THAT(grammar_cli({"test", refers, "--registry", registry}).out,
              HasSubstr("accepted    1/1\n"));
}

TEST_F(GrammarCommandsTest, InstancesThatTheTokenizerChangesAreSpelledInBytes) {
  const auto vocabulary = make_grammar_vocabulary(tokenizer());
  for (const std::string text :
       {R"("plain")", "\"\u2581\"", R"("<start_of_turn>")", "\"\u4e2d\""}) {
    std::string spelled;
    for (const Token token : spell_tokens(text, *vocabulary, tokenizer())) {
      spelled += vocabulary->bytes(token);
    }
    EXPECT_EQ(spelled, text);
  }
}

TEST_F(GrammarCommandsTest, MistakesExitWithTwoAndSayWhere) {
  const auto good = write("good.jsonl", R"({"id": "a", "schema": true})");
  const auto schema = write("schema.json", "true");
  const struct {
    std::vector<std::string> arguments;
    std::string message;
  } cases[] = {
      {{}, ""},
      {{"test"}, "CASES"},
      {{"test", "/no/such/file"}, "/no/such/file"},
      {{"test", write("a.jsonl", "")}, "holds no line"},
      {{"test", write("b.jsonl", R"({"id": "a", "schema": true})"
                                 "\n\n{\"id\": }")},
       "b.jsonl:3:8: this is no JSON value"},
      {{"test", write("c.jsonl", "7")}, "c.jsonl:1: the line is no object"},
      {{"test", write("d.jsonl", R"({"id": "a"})")}, "d.jsonl:1: the member 'schema' is missing"},
      {{"test", write("e.jsonl", R"({"schema": {}})")}, "e.jsonl:1: the member 'id' is missing"},
      {{"test", write("f.jsonl", R"({"id": "a", "schema": 1})")}, "f.jsonl:1: 'schema' is neither"},
      {{"test", write("g.jsonl", R"({"id": "a", "schema": {}, "tests": 1})")},
       "'tests' is no array"},
      {{"test", write("h.jsonl", R"({"id": "a", "schema": {}, "tests": [{"data": 1}]})")},
       "'valid'"},
      {{"test", write("i.jsonl", R"({"id": "a", "schema": {}, "tests": [{"valid": true}]})")},
       "'data'"},
      {{"test", write("j.jsonl", R"({"id": "a", "schema": {}, "grammar": {}})")}, "has both"},
      {{"test", write("k.jsonl", R"({"id": "a", "grammar": {"type": "peg", "text": "a"}})")},
       "k.jsonl:1"},
      {{"test", write("l.jsonl", R"({"id": "a", "grammar": {"type": "regex", "patern": "a"}})")},
       "patern"},
      {{"test", write("m.jsonl", R"({"id": "a", "grammar": {"type": "regex", "pattern": "a"},)"
                                 R"( "tests": [{"valid": true, "data": "a"}]})")},
       "m.jsonl:1: the member 'text' is missing"},
      {{"test", good, "--order", "some"}, "--order"},
      {{"test", good, "--format", "x"}, "--format"},
      {{"test", good, "--whitespace", "indent:17"}, "indent:N (0 to 16 spaces)"},
      {{"test", good, "--whitespace", "tabs"}, "indent:N"},
      {{"test", good, "--limit", "-1"}, "--limit"},
      {{"test", good, "--json", "/no/such/folder/a.jsonl"}, "/no/such/folder"},
      {{"test", good, "--registry", good}, "good.jsonl:1: the member 'uri' is missing"},
      {{"sample", "/no/such/file"}, "/no/such/file"},
      {{"sample", write("a.json", "{\n \"type\": }")}, "a.json:2:10: this is no JSON value"},
      {{"sample", write("b.json", R"({"type": "nonsense"})")}, "b.json: "},
      {{"sample", write("c.json", "false")}, "c.json: no JSON value satisfies this schema"},
      {{"sample", schema, "-n", "0"}, "--count"},
      {{"test", good, "--dtype", "bfloat16"}, "--dtype bfloat16: grammars are"},
      {{"test", good, "--kv-dtype", "bfloat16"}, "--kv-dtype bfloat16: grammars are"},
      {{"test", good, "--cache", "paged"}, "--cache paged: grammars are"},
      {{"sample", schema, "--max-states", "0"}, "--max-states"},
      {{"sample", schema, "--max-states", "2"}, "need more than 2 states; raise max_states"},
      {{"sample",
        write("h.json", R"({"anyOf": [{"type": "object", "minProperties": 1},)"
                        R"( {"type": "object", "maxProperties": 5}]})"),
        "--max-alternatives", "1"},
       "raise max_alternatives"},
      {{"sample", "--pattern", "(a|b)*a(a|b){9}c", "--max-regex-states", "1"},
       "raise max_regex_states"},
      {{"sample", "--pattern", "a", "--max-steps", "8"},
       "--max-steps is an option of JSON Schemas"},
      {{"sample", write("d.json", R"({"type": "string", "minLength": 500})"), "--max-tokens", "9"},
       "d.json: found no document of at most 9 tokens; allow more with --max-tokens"},
      {{"explain", write("e.json", "[")}, "e.json:1:2"},
      {{"explain", write("f.json", R"({"minimum": "a"})")}, "f.json: "},
  };
  for (const auto& [arguments, message] : cases) {
    const auto result = grammar_cli(arguments);
    EXPECT_EQ(result.code, 2) << message << ": " << result.err;
    EXPECT_THAT(result.err, HasSubstr(message));
    EXPECT_EQ(result.out, "");
  }
  EXPECT_THAT(cli({"grammar", "test", good}).err, HasSubstr("--tokenizer"));
  EXPECT_EQ(cli({"grammar", "test", good, "--tokenizer", "/no/such/model"}).code, 2);
}

TEST_F(GrammarCommandsTest, SamplesAreOfTheSchemaAndRepeatBySeed) {
  const std::vector<std::string> schemas = {
      kPerson,
      "true",
      R"({"type": "string", "pattern": "^(ab|c\\\\){2,}\"$"})",
      R"({"type": "string", "minLength": 40})",
      R"({"type": "number", "multipleOf": 0.25, "exclusiveMinimum": 3})",
      R"({"type": "array", "items": {"enum": [1, "a", null]}, "minItems": 3, "uniqueItems": true})",
      R"({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "required": ["child"],)"
      R"( "properties": {"child": {"anyOf": [{"$ref": "#/$defs/node"}, {"const": "leaf"}]}}}}})",
      R"({"type": "object", "minProperties": 2, "patternProperties": {"^x-": {"type": "null"}},)"
      R"( "additionalProperties": false})"};
  const std::pair<std::string, std::string> styles[] = {
      {"schema", "compact"}, {"any", "any"}, {"schema", "indent:2"}, {"any", "spaced"}};
  int seed = 0;
  for (const std::string& schema : schemas) {
    const auto file = write("schema.json", schema);
    for (const auto& [order, style] : styles) {
      const std::vector<std::string> arguments = {
          "sample",  file,  "--max-tokens", "120", "--seed",    std::to_string(seed++),
          "--order", order, "--whitespace", style, "--escapes", "any"};
      const auto result = grammar_cli(arguments);
      ASSERT_EQ(result.code, 0) << schema << result.err;
      EXPECT_EQ(grammar_cli(arguments).out, result.out);
      ASSERT_TRUE(result.out.ends_with('\n'));
      const std::string document = result.out.substr(0, result.out.size() - 1);
      JsonSchemaOptions options;
      options.schema_order = order == "schema";
      options.whitespace = style;
      options.escapes = EscapeStyle::kAny;
      EXPECT_TRUE(accepts(schema, document, options)) << schema << "\n" << document;
      EXPECT_NO_THROW((void)parse_json(document, "document"));
    }
  }
}

/// All in one grammar have more states than it may have; the limit is of one text alone.
TEST_F(GrammarCommandsTest, ManySamplesDoNotUseTheStatesUp) {
  const auto file = write("schema.json", R"({"type": "object", "minProperties": 4})");
  const std::vector<std::string> all = {"sample", file, "-n", "40", "--max-tokens", "60"};
  const auto expected = grammar_cli(all);
  ASSERT_EQ(expected.code, 0) << expected.err;
  std::vector<std::string> bounded = all;
  bounded.insert(bounded.end(), {"--max-states", "3000"});
  EXPECT_EQ(grammar_cli(bounded).out, expected.out);
  bounded.back() = "100";
  EXPECT_THAT(grammar_cli(bounded).err, HasSubstr("need more than 100 states"));
}

TEST_F(GrammarCommandsTest, SeedsGiveDifferentSamples) {
  const auto file = write("schema.json", kPerson);
  EXPECT_NE(grammar_cli({"sample", file, "-n", "5", "--seed", "1"}).out,
            grammar_cli({"sample", file, "-n", "5", "--seed", "2"}).out);
  EXPECT_EQ(split_lines(grammar_cli({"sample", file, "-n", "5"}).out).size(), 5U);
}

TEST_F(GrammarCommandsTest, SchemaNamesComeRequiredFirst) {
  EXPECT_THAT(schema_names(parse_json(R"({"properties": {"a": {"required": ["b"]}, "c": {}},)"
                                      R"( "required": ["c"], "patternProperties": {"^x": {}}})",
                                      "schema")),
              ElementsAre("b", "c", "a", "x", "x0", "x1"));
}

TEST_F(GrammarCommandsTest, StructuredTextsAreSampledAndExplained) {
  const auto tags = write("tags.json", R"({"type": "triggered_tags", "at_least_one": true, "tags": [
      {"begin": {"type": "token", "token": "<pad>"}, "content": {"type": "regex",
       "pattern": "[0-9]{2}"}, "end": ";"}]})");
  const auto sampled =
      grammar_cli({"sample", tags, "--type", "tags", "--max-tokens", "40", "--seed", "3"});
  EXPECT_EQ(sampled.code, 0) << sampled.err;
  EXPECT_THAT(sampled.out, testing::ContainsRegex("<pad>[0-9][0-9];"));
  const auto explained = grammar_cli({"explain", tags, "--type", "tags", "--text", "a<pad>1"});
  EXPECT_THAT(explained.out, HasSubstr("allowed       a<pad>1\n"));
  const auto calls =
      write("calls.json", R"({"style": "llama3", "tools": [{"function": {"name": "get_time"}}]})");
  const auto call = grammar_cli({"explain", calls, "--type", "tool_calls", "--text",
                                 R"({"name": "get_time", "parameters": )"});
  EXPECT_THAT(call.out, HasSubstr(R"(forced        "{}}")"));
}

TEST_F(GrammarCommandsTest, ExplainTakesTokensThatEndTheText) {
  const auto turn =
      write("turn.lark", "start: <start_of_turn> t\nt[capture]: /[a-z]*/ <end_of_turn>");
  const std::string text = "<start_of_turn>ab<end_of_turn>";
  const auto whole = grammar_cli({"explain", turn, "--text", text});
  EXPECT_EQ(whole.code, 0) << whole.err;
  EXPECT_THAT(whole.out, Not(HasSubstr("not allowed")));
  EXPECT_THAT(whole.out, HasSubstr("allowed       " + text + "\ncaptured      t: \"ab"));
  EXPECT_THAT(whole.out, HasSubstr("may end here  yes\n"));
  EXPECT_THAT(whole.out, HasSubstr("tokens        0 of 2048\nwhat may come next:\n"));
  EXPECT_THAT(whole.out, HasSubstr("the text has ended"));
  EXPECT_THAT(grammar_cli({"explain", turn, "--text", text + "c"}).out,
              HasSubstr("not allowed   from byte 30 on: c\nallowed       " + text + "\n"));
  const auto free = write("free.lark", "start: /(.|\\n)*/ <end_of_turn>");
  const auto other = grammar_cli({"explain", free, "--text", "<end_of_turn>c"});
  EXPECT_THAT(other.out, Not(HasSubstr("not allowed"))) << "these letters as other tokens";
  EXPECT_THAT(other.out, HasSubstr("may end here  no\n"));
}

TEST_F(GrammarCommandsTest, NamesOfCapturesAreOneLine) {
  const auto file =
      write("names.lark",
            "start: a b c\na[capture=\"x\\ny\"]: \"a\"\nb[capture=\"a name\"]: \"b\"\n"
            "c[capture=\"k: v\"]: \"c\"");
  EXPECT_THAT(grammar_cli({"explain", file, "--text", "abc"}).out,
              HasSubstr("captured      \"x\\ny\": \"a\"\ncaptured      a name: \"b\"\n"
                        "captured      \"k: v\": \"c\"\n"));
}

TEST_F(GrammarCommandsTest, UnknownTokensAndStylesAreErrors) {
  const auto tags = write("tags.json", R"({"type": "token", "token": "<padd>"})");
  const auto token = grammar_cli({"explain", tags, "--type", "tags"});
  EXPECT_EQ(token.code, 2);
  EXPECT_THAT(token.err, HasSubstr("has no token '<padd>'; near are: <pad>"));
  const auto calls = write("calls.json", R"({"style": "lama3", "tools": []})");
  const auto style = grammar_cli({"sample", calls, "--type", "tool_calls"});
  EXPECT_EQ(style.code, 2);
  EXPECT_THAT(style.err, HasSubstr("did you mean 'llama3'?"));
  EXPECT_EQ(grammar_cli({"sample", calls, "--type", "tool_calls", "--whitespace", "any"}).code, 2);
}

TEST_F(GrammarCommandsTest, ExplainSaysWhatMayCome) {
  const auto file = write("schema.json", kPerson);
  const auto start = grammar_cli({"explain", file});
  EXPECT_EQ(start.code, 0);
  EXPECT_THAT(start.out, HasSubstr(R"(forced        "{\"name\":\"")"));
  EXPECT_THAT(start.out, HasSubstr("a value begins: an object"));
  EXPECT_THAT(start.out, HasSubstr("may end here  no"));
  const auto inside = grammar_cli({"explain", file, "--text", R"({"name":"A)"});
  EXPECT_THAT(inside.out, HasSubstr(R"(allowed       {"name":"A)"));
  EXPECT_THAT(inside.out, HasSubstr("inside a string"));
  EXPECT_THAT(inside.out, HasSubstr(" of 2048: "));
  const auto complete = grammar_cli({"explain", file, "--text", R"({"name":"Ann","age":7})"});
  EXPECT_THAT(complete.out, HasSubstr("may end here  yes"));
  const auto wrong = grammar_cli({"explain", file, "--text", R"({"name":7})"});
  EXPECT_EQ(wrong.code, 0);
  EXPECT_THAT(wrong.out, HasSubstr("not allowed   from byte 8 on: 7}\n"));
  EXPECT_THAT(wrong.out, HasSubstr("allowed       {\"name\":\n"));
  EXPECT_THAT(wrong.out, HasSubstr("a value begins: a string"));
}

}  // namespace
}  // namespace specdec
