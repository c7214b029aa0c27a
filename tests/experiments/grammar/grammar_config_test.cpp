#include "experiments/grammar/grammar_config.h"

#include <gmock/gmock.h>

#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "experiments/config/yaml_writer.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using Kind = GrammarKind;

/// A grammar that is read from the lines under `grammar:`.
class Reading {
 public:
  explicit Reading(const std::string& lines, const std::filesystem::path& folder = {})
      : root_(parse_yaml("grammar:\n" + indented(lines), "a.yaml", true),
              std::make_shared<ConfigErrors>(), folder),
        config_(read_grammar(root_.child("grammar"))) {
    root_.refuse_unknown_keys();
  }

  const GrammarConfig& config() const { return config_; }
  const GrammarSource& source() const { return config_.source; }
  std::string resolved() const { return write_yaml(*root_.resolved()); }
  std::string mistakes() const {
    try {
      root_.errors()->throw_if_any();
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  }

 private:
  static std::string indented(const std::string& lines) {
    std::string text = "  ";
    for (const char c : lines) {
      text += c;
      text += c == '\n' ? "  " : "";
    }
    return text;
  }

  ConfigNode root_;
  GrammarConfig config_;
};

class GrammarConfigTest : public testing::Test {
 protected:
  TemporaryFolder folder_;
};

TEST_F(GrammarConfigTest, JsonSchemaFromAFile) {
  folder_.write("s.json", "{\"$ref\": \"http://a/b\"}");
  folder_.write("r.jsonl", "{\"uri\": \"http://a/b\", \"schema\": {\"type\": \"null\"}}\n");
  const Reading reading(
      "type: json_schema\nfile: s.json\norder: any\nformat: annotate\nwhitespace: any\n"
      "escapes: any\nmax_whitespace: 5\nregistry: r.jsonl\nmax_alternatives: 7\nmax_steps: 8",
      folder_.path());
  EXPECT_EQ(reading.mistakes(), "");
  const GrammarSource& source = reading.source();
  EXPECT_EQ(source.kind, Kind::kJsonSchema);
  EXPECT_EQ(source.text, "{\"$ref\": \"http://a/b\"}");
  EXPECT_EQ(source.name, (folder_.path() / "s.json").string());
  EXPECT_FALSE(source.schema.schema_order);
  EXPECT_FALSE(source.schema.assert_formats);
  EXPECT_EQ(source.schema.whitespace, "any");
  EXPECT_EQ(source.schema.escapes, EscapeStyle::kAny);
  EXPECT_EQ(source.schema.max_whitespace, 5U);
  EXPECT_EQ(source.schema.registry.size(), 1U);
  EXPECT_EQ(source.limits.max_alternatives, 7U);
  EXPECT_EQ(source.limits.max_steps, 8U);
  EXPECT_FALSE(reading.config().per_prompt);
}

TEST_F(GrammarConfigTest, JsonSchemaInPlace) {
  const Reading text("type: json_schema\nschema: '{\"const\": 1.0}'");
  EXPECT_EQ(text.mistakes(), "");
  EXPECT_EQ(text.source().text, "{\"const\": 1.0}");
  EXPECT_TRUE(text.source().schema.schema_order);
  EXPECT_TRUE(text.source().schema.assert_formats);
  EXPECT_EQ(text.source().schema.escapes, EscapeStyle::kMinimal);
  EXPECT_EQ(text.source().schema.max_whitespace, 0U);
  const Reading map(
      "type: json_schema\n"
      "schema:\n  type: object\n  required: [z, \"1\", true]\n"
      "  properties: {z: {enum: [1.50, x, null, \"2\", false]}, a: {maxLength: 3}}");
  EXPECT_THAT(map.mistakes(), HasSubstr("grammar.schema: #/required"));
  const Reading good(
      "type: json_schema\n"
      "schema:\n  type: object\n  required: [z, \"1\"]\n"
      "  properties: {z: {enum: [1.50, x y, null, \"2\", false]}, a: {maxLength: 3}}");
  EXPECT_EQ(good.mistakes(), "");
  EXPECT_EQ(good.source().text,
            "{\"type\":\"object\",\"required\":[\"z\",\"1\"],\"properties\":{\"z\":{\"enum\":[1.50,"
            "\"x y\",null,\"2\",false]},\"a\":{\"maxLength\":3}}}");
}

TEST_F(GrammarConfigTest, JsonSchemaOfEachPrompt) {
  const Reading reading("type: json_schema\nper_prompt: true\nwhitespace: spaced");
  EXPECT_EQ(reading.mistakes(), "");
  EXPECT_TRUE(reading.config().per_prompt);
  EXPECT_EQ(reading.source().text, "");
  EXPECT_EQ(reading.source().schema.whitespace, "spaced");
}

TEST_F(GrammarConfigTest, CanonicalCuts) {
  EXPECT_EQ(Reading("type: regex\npattern: a").source().cuts, Cuts::kAny);
  const Reading reading("type: regex\npattern: a\ncanonical: true");
  EXPECT_EQ(reading.mistakes(), "");
  EXPECT_EQ(reading.source().cuts, Cuts::kCanonical);
}

TEST_F(GrammarConfigTest, RegularExpressions) {
  const Reading pattern("type: regex\npattern: '[A-Z]{3}'");
  EXPECT_EQ(pattern.mistakes(), "");
  EXPECT_EQ(pattern.source().kind, Kind::kRegex);
  EXPECT_EQ(pattern.source().text, "[A-Z]{3}");
  for (const char* end : {"", "\n", "\r\n"}) {
    folder_.write("p.regex", std::string("a+\nb") + end);
    const Reading file("type: regex\nfile: p.regex", folder_.path());
    EXPECT_EQ(file.mistakes(), "");
    EXPECT_EQ(file.source().text, "a+\nb");
  }
}

TEST_F(GrammarConfigTest, GrammarsInGbnfAndLark) {
  const Reading gbnf(
      "type: gbnf\nstart: top\nmax_unrolled: 5\nmax_symbols: 50\n"
      "max_state_items: 60\ntext: |\n  top ::= \"a\" top | \"b\"");
  EXPECT_EQ(gbnf.mistakes(), "");
  EXPECT_EQ(gbnf.source().kind, Kind::kGbnf);
  EXPECT_EQ(gbnf.source().text, "top ::= \"a\" top | \"b\"");
  EXPECT_EQ(gbnf.source().start, "top");
  EXPECT_EQ(gbnf.source().limits.max_unrolled, 5U);
  EXPECT_EQ(gbnf.source().limits.max_symbols, 50U);
  EXPECT_EQ(gbnf.source().limits.max_state_items, 60U);
  folder_.write("g.lark", "start: \"a\"\n");
  const Reading lark("type: lark\nfile: g.lark", folder_.path());
  EXPECT_EQ(lark.mistakes(), "");
  EXPECT_EQ(lark.source().kind, Kind::kLark);
  EXPECT_EQ(lark.source().text, "start: \"a\"\n");
  EXPECT_EQ(lark.source().start, "start");
}

TEST_F(GrammarConfigTest, LarkGrammarsWithSchemasHaveTheirOptions) {
  const Reading lark(
      "type: lark\nwhitespace: spaced\norder: any\nmax_states: 7000\ntext: 'start: %json {} "
      "<|x|>'");
  EXPECT_EQ(lark.mistakes(), "");
  EXPECT_EQ(lark.source().schema.whitespace, "spaced");
  EXPECT_FALSE(lark.source().schema.schema_order);
  EXPECT_EQ(lark.source().limits.max_states, 7000U);
  EXPECT_THAT(lark.config().token_names, ElementsAre("<|x|>"));
  EXPECT_THAT(Reading("type: lark\nwhitespace: spaced\ntext: 'start: \"a\"'").mistakes(),
              HasSubstr("whitespace: unknown key"));
  EXPECT_THAT(Reading("type: lark\ntext: 'start: %json {\"type\": 5}'").mistakes(),
              HasSubstr("text:1:14: "));
}

TEST_F(GrammarConfigTest, Choices) {
  const Reading reading("type: choice\nchoices: [yes, no, \"I do not know\"]");
  EXPECT_EQ(reading.mistakes(), "");
  EXPECT_EQ(reading.source().kind, Kind::kChoice);
  EXPECT_THAT(reading.source().choices, ElementsAre("yes", "no", "I do not know"));
}

TEST_F(GrammarConfigTest, Triggers) {
  folder_.write("s.json", "{\"type\": \"object\"}");
  const Reading reading(
      "type: trigger\ntriggers:\n"
      "  - {begin: <call>, end: </call>, grammar: {type: json_schema, file: s.json}}\n"
      "  - begin: \"#\"\n    grammar: {type: choice, choices: [a, b]}",
      folder_.path());
  EXPECT_EQ(reading.mistakes(), "");
  const auto& triggers = reading.source().triggers;
  ASSERT_EQ(triggers.size(), 2U);
  EXPECT_EQ(triggers[0].begin, "<call>");
  EXPECT_EQ(triggers[0].end, "</call>");
  EXPECT_EQ(triggers[0].grammar.kind, Kind::kJsonSchema);
  EXPECT_EQ(triggers[0].grammar.text, "{\"type\": \"object\"}");
  EXPECT_EQ(triggers[1].end, "");
  EXPECT_THAT(triggers[1].grammar.choices, ElementsAre("a", "b"));
}

TEST_F(GrammarConfigTest, ScalarsOfSchemasAreThoseOfYaml) {
  const Reading reading(
      "type: json_schema\nschema:\n"
      "  enum: [+1, 007, -.5, 5., 1.e3, 0x1F, 0o17, 1e3, True, FALSE, ~, null]\n"
      "  examples: [\"True\", '+1', yes, 1.2.3, 1..5, 2024-01-01, 0x, -0x1, +, ., 1_000, .inf, "
      "5.a]");
  EXPECT_EQ(reading.mistakes(), "");
  const std::string schema =
      R"({"enum":[1,7,-0.5,5,1e3,31,15,1e3,true,false,null,null],"examples":["True","+1","yes",)"
      R"("1.2.3","1..5","2024-01-01","0x","-0x1","+",".","1_000",".inf","5.a"]})";
  EXPECT_EQ(reading.source().text, schema);
  // What the run folder records says the same.
  const std::string again = reading.resolved();
  const ConfigNode root(parse_yaml(again, "a.yaml", true), std::make_shared<ConfigErrors>(), {});
  EXPECT_EQ(read_grammar(root.child("grammar")).source.text, schema) << again;
}

TEST_F(GrammarConfigTest, StructuredTexts) {
  const Reading reading(
      "type: tags\nwhitespace: spaced\nstructure:\n  type: triggered_tags\n  at_least_one: true\n"
      "  tags:\n    - {begin: <a>, content: {type: json_schema, json_schema: {type: integer}}, "
      "end: {type: token, token: <end>}}");
  EXPECT_EQ(reading.mistakes(), "");
  EXPECT_EQ(reading.source().schema.whitespace, "spaced");
  EXPECT_EQ(reading.source().text,
            R"({"type":"triggered_tags","at_least_one":true,"tags":[{"begin":"<a>","content":)"
            R"({"type":"json_schema","json_schema":{"type":"integer"}},"end":{"type":"token",)"
            R"("token":"<end>"}}]})");
  folder_.write("t.json", R"({"type": "structural_tag", "format": {"type": "any_text"}})");
  EXPECT_EQ(Reading("type: tags\nfile: t.json", folder_.path()).mistakes(), "");
}

TEST_F(GrammarConfigTest, ToolCalls) {
  folder_.write("tools.json", R"([{"type": "function", "function": {"name": "f"}}])");
  const Reading file("type: tool_calls\nstyle: hermes\ntools: tools.json\ntool_choice: required",
                     folder_.path());
  EXPECT_EQ(file.mistakes(), "");
  EXPECT_EQ(file.source().text,
            R"({"style":"hermes","tool_choice":"required","tools":[{"type":"function","function":)"
            R"({"name":"f"}}]})");
  EXPECT_EQ(file.config().tools, R"([{"type":"function","function":{"name":"f"}}])");
  const Reading inline_tools(
      "type: tool_calls\nstyle: llama3\ntools: [{function: {name: f}}]\n"
      "tool_choice: {function: {name: f}}\nparallel_tool_calls: false\nwhitespace: compact");
  EXPECT_EQ(inline_tools.mistakes(), "");
  EXPECT_THAT(inline_tools.source().text, HasSubstr(R"("parallel_tool_calls":false)"));
  EXPECT_EQ(inline_tools.config().tools, R"([{"function":{"name":"f"}}])");
}

TEST_F(GrammarConfigTest, ResolvedYamlHoldsDefaults) {
  EXPECT_THAT(Reading("type: json_schema\nschema: 'true'").resolved(),
              AllOf(HasSubstr("order: schema"), HasSubstr("whitespace: compact"),
                    HasSubstr("schema: \"true\""), HasSubstr("max_steps: 3000000")));
  EXPECT_THAT(Reading("type: gbnf\ntext: 'root ::= \"a\"'").resolved(), HasSubstr("start: root"));
}

TEST_F(GrammarConfigTest, MistakesNameKeyAndPlace) {
  folder_.write("bad.json", "{\n \"type\": }");
  folder_.write("bad.gbnf", "root ::= \"a\"\n)");
  folder_.write("bad.jsonl", "7");
  const std::pair<std::string, std::string> cases[] = {
      {"file: x", "a.yaml:2: grammar: the key 'type' is missing"},
      {"type: xml",
       "a.yaml:2: grammar: unknown type 'xml'; known: json_schema, regex, gbnf, lark, "
       "choice, trigger, tags, tool_calls"},
      {"type: json_schema", "has none of the keys 'schema', 'file', 'per_prompt: true'; give one"},
      {"type: json_schema\nfile: bad.json\nper_prompt: true", "has more than one of the keys"},
      {"type: json_schema\nfile: bad.json\nschema: 'true'", "has more than one of the keys"},
      {"type: json_schema\nper_prompt: 1", "a.yaml:3: grammar.per_prompt: expected true or false"},
      {"type: json_schema\nfile: no.json", "a.yaml:3: grammar.file: 'no.json' does not exist"},
      {"type: json_schema\nfile: bad.json", "bad.json:2:10: this is no JSON value"},
      {"type: json_schema\nschema: '{'", "a.yaml:3: grammar.schema: schema:1:2: "},
      {"type: json_schema\nschema: {type: x}",
       "a.yaml:3: grammar.schema: #/type: \"x\" is no type"},
      {"type: json_schema\nschema: 'false'", "grammar.schema: no JSON value satisfies this schema"},
      {"type: json_schema\nschema: [1]", "a.yaml:3: grammar.schema: expected text, found a list"},
      {"type: json_schema\nschema: 'true'\norder: all",
       "grammar.order: unknown value 'all'; did you mean 'any'? Known: schema, any"},
      {"type: json_schema\nschema: 'true'\nformat: no",
       "grammar.format: unknown value 'no'; known: assert, annotate"},
      {"type: json_schema\nschema: 'true'\nescapes: no",
       "grammar.escapes: unknown value 'no'; did you mean 'any'? Known: minimal, any"},
      {"type: json_schema\nschema: 'true'\nwhitespace: tabs",
       "a.yaml:4: grammar.whitespace: white space 'tabs' is not known; known: compact"},
      {"type: json_schema\nschema: 'true'\nregistry: no", "grammar.registry: 'no' does not exist"},
      {"type: json_schema\nschema: 'true'\nregistry: bad.jsonl", "bad.jsonl:1: "},
      {"type: json_schema\nschema: 'true'\nmax_steps: 0", "grammar.max_steps: 0 is not between"},
      {"type: json_schema\nschema: 'true'\nmax_alternatives: -1", "grammar.max_alternatives: "},
      {"type: json_schema\nschema: 'true'\nmax_step: 9",
       "grammar.max_step: unknown key; did you "
       "mean 'max_steps'?"},
      {"type: regex", "grammar: has none of the keys 'pattern', 'file'; give one"},
      {"type: regex\npattern: a\nfile: b", "has more than one of the keys 'pattern', 'file'"},
      {"type: regex\npattern: '(a'", "a.yaml:3: grammar.pattern: pattern '(a', character 1: "},
      {"type: regex\npattern: a\ntext: b", "grammar.text: unknown key"},
      {"type: gbnf", "grammar: has none of the keys 'text', 'file'; give one"},
      {"type: gbnf\nfile: bad.gbnf", "bad.gbnf:2:1: expected another part"},
      {"type: gbnf\ntext: 'root ::= x'", "a.yaml:3: grammar.text: text:1:10: 'x' used but not "},
      {"type: gbnf\ntext: 'root ::= \"a\"'\nstart: top", "there is no rule 'top'"},
      {"type: gbnf\ntext: 'root ::= \"a\"'\nmax_symbols: 0",
       "grammar.max_symbols: 0 is not between"},
      {"type: lark\ntext: 'start: x'",
       "a.yaml:3: grammar.text: text:1:8: 'x' used but not defined"},
      {"type: choice", "a.yaml:2: grammar: the key 'choices' is missing; give a list of texts"},
      {"type: choice\nchoices: a", "grammar.choices: expected a list, found 'a'"},
      {"type: choice\nchoices: []", "a.yaml:3: grammar.choices: there is no choice"},
      {"type: choice\nchoices: [a, [b]]", "grammar.choices[1]: expected text, found a list"},
      {"type: trigger", "grammar: the key 'triggers' is missing; give a list"},
      {"type: trigger\ntriggers: []", "a.yaml:3: grammar.triggers: there is no trigger"},
      {"type: trigger\ntriggers:\n  - {begin: a}",
       "a.yaml:4: grammar.triggers[0]: the key 'grammar' is missing; give a map"},
      {"type: trigger\ntriggers:\n  - {grammar: {type: regex, pattern: a}}",
       "a.yaml:4: grammar.triggers[0]: the key 'begin' is missing"},
      {"type: trigger\ntriggers:\n  - {begin: '', grammar: {type: regex, pattern: a}}",
       "grammar.triggers: trigger 1: the begin tag must not be empty"},
      {"type: trigger\ntriggers:\n  - {begin: a, grammar: {type: regex, pattern: '('}}",
       "a.yaml:4: grammar.triggers[0].grammar.pattern: pattern '(', character 1: "},
      {"type: trigger\ntriggers:\n  - {begin: a, grammar: {type: json_schema, per_prompt: true}}",
       "grammar.triggers[0].grammar.per_prompt: only a whole grammar"},
      {"type: regex\npattern: a\ncanonical: maybe",
       "a.yaml:4: grammar.canonical: expected true or false"},
      {"type: trigger\ntriggers:\n  - {begin: a, grammar: {type: regex, pattern: a, canonical: "
       "true}}",
       "grammar.triggers[0].grammar.canonical: belongs to the whole grammar"},
      {"type: trigger\ntriggers:\n  - {begin: a, grammar: {type: json_schema, schema: {}, "
       "max_mask_bytes: 9}}",
       "grammar.triggers[0].grammar.max_mask_bytes: belongs to the whole grammar"},
      {"type: regex\npattern: '(?=.*ab)(?=.*cd).{3,5}'\nmax_regex_states: 1",
       "grammar.pattern: texts of 3 characters or more take an automaton of more than 1 states"},
      {"type: json_schema\nschema: 'true'\nmax_whitespace: 5",
       "grammar.max_whitespace: max_whitespace is 5, but whitespace is compact"},
      {"type: tags\nmax_whitespace: 5\nstructure: {type: json_schema, json_schema: {}}",
       "grammar.structure: max_whitespace is 5, but no schema in it has the whitespace 'any'"},
      {"type: tool_calls\nstyle: hermes\nmax_whitespace: 5\n"
       "tools: [{type: function, function: {name: f}}]",
       "grammar.tools: max_whitespace is 5, but no schema in it has the whitespace 'any'"},
      {"type: tags", "has none of the keys 'structure', 'file'; give one"},
      {"type: tags\nstructure: {type: any}",
       "a.yaml:3: grammar.structure: #/type: there is no format of the type 'any'"},
      {"type: tool_calls\nstyle: hermes", "a.yaml:2: grammar: the key 'tools' is missing"},
      {"type: tool_calls\nstyle: herms\ntools: [{name: f}]",
       "a.yaml:4: grammar.tools: #/style: there is no style 'herms'; did you mean 'hermes'?"},
      {"type: tool_calls\nstyle: hermes\ntools: none.json",
       "grammar.tools: 'none.json' does not exist"},
      {"type: trigger\ntriggers:\n  - {begin: a, ends: b, grammar: {type: regex, pattern: a}}",
       "grammar.triggers[0].ends: unknown key; did you mean 'end'?"},
  };
  for (const auto& [lines, expected] : cases) {
    EXPECT_THAT(Reading(lines, folder_.path()).mistakes(), HasSubstr(expected)) << lines;
  }
}

TEST_F(GrammarConfigTest, OneMistakeIsReportedOnce) {
  for (const char* lines :
       {"type: json_schema", "type: regex\npattern: '('", "type: choice\nchoices: a",
        "type: trigger\ntriggers:\n  - {grammar: {type: regex, pattern: a}}",
        "type: trigger\ntriggers:\n  - {begin: a, grammar: {type: regex, pattern: '('}}",
        "type: json_schema\nschema: 'true'\nwhitespace: tabs"}) {
    EXPECT_THAT(Reading(lines).mistakes(), AllOf(Not(""), Not(HasSubstr("\n")))) << lines;
  }
}

TEST_F(GrammarConfigTest, AllMistakesComeAtOnce) {
  EXPECT_THAT(
      Reading("type: json_schema\nschema: '{'\norder: all\nformat: no\nother: 1").mistakes(),
      AllOf(HasSubstr("a.yaml:3: grammar.schema: "), HasSubstr("a.yaml:4: grammar.order: "),
            HasSubstr("a.yaml:5: grammar.format: "),
            HasSubstr("a.yaml:6: grammar.other: unknown key")));
}

TEST_F(GrammarConfigTest, EndingsSayTheKind) {
  EXPECT_EQ(grammar_kind_of_file("a/b.json"), Kind::kJsonSchema);
  EXPECT_EQ(grammar_kind_of_file("b.regex"), Kind::kRegex);
  EXPECT_EQ(grammar_kind_of_file("b.c.gbnf"), Kind::kGbnf);
  EXPECT_EQ(grammar_kind_of_file("b.lark"), Kind::kLark);
  for (const char* file : {"b", "b.", "json", "b.txt", "b.choice", "b.trigger", "b.json_schema"}) {
    EXPECT_EQ(grammar_kind_of_file(file), std::nullopt) << file;
  }
}

}  // namespace
}  // namespace specdec
