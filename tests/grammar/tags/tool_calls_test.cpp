// Texts of each style as its documentation has them; see docs/grammar.md.
#include "grammar/tags/tool_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "core/error.h"
#include "grammar/grammar_matcher.h"
#include "grammar/grammar_source.h"
#include "grammar/tags/delimiters.h"
#include "tests/support/error_message.h"
#include "tests/support/grammar_vocabularies.h"

namespace specdec {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kWeather = R"({"type": "function", "function": {"name": "get_weather",
  "description": "Current weather", "strict": true,
  "parameters": {"type": "object",
    "properties": {"location": {"type": "string", "description": "a city"},
                   "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                   "days": {"type": "integer", "minimum": 1, "maximum": 14}},
    "required": ["location"], "additionalProperties": false}}})";
constexpr const char* kTime = R"({"type": "function", "function": {"name": "get_time"}})";

std::string request(const std::string& style, const std::string& more = "",
                    const std::string& tools = std::string(kWeather) + "," + kTime) {
  return R"({"style": ")" + style + R"(", "tools": [)" + tools + "]" + more + "}";
}

std::shared_ptr<const CompiledGrammar> compile_calls(
    const std::string& json,
    const std::shared_ptr<GrammarVocabulary>& vocabulary = empty_vocabulary()) {
  GrammarSource source;
  source.kind = GrammarKind::kToolCalls;
  source.text = json;
  return compile_grammar(vocabulary, source);
}

/// Tool calls read byte by byte: without a tokenizer, all names are texts.
class ToolCalls {
 public:
  explicit ToolCalls(const std::string& json) : grammar_(compile_calls(json)) {}

  bool is_prefix(std::string_view text) const {
    return grammar_->next(grammar_->start(), text) != Automaton::kDead;
  }
  bool accepts(std::string_view text) const {
    return is_prefix(text) && grammar_->is_complete(grammar_->next(grammar_->start(), text));
  }

 private:
  std::shared_ptr<const CompiledGrammar> grammar_;
};

/// What each style writes: two calls, or one where it has only one; a call of a tool without
/// arguments; and what it refuses.
struct StyleCase {
  const char* style;
  std::vector<std::string> accepted, refused;
};

const std::vector<StyleCase>& style_cases() {
  static const std::vector<StyleCase> cases = {
      {"hermes",
       {"<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"location\": \"Oslo\", "
        "\"unit\": "
        "\"celsius\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"get_time\", \"arguments\": {}}\n"
        "</tool_call>"},
       {"<tool_call>{", "<tool_call>\n{\"name\": \"get_sun",
        "<tool_call>\n{\"name\": \"get_weather\", \"parameters\"",
        "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"location\": \"Oslo\", "
        "\"unit\": "
        "\"kelvin"}},
      {"qwen3",
       {"<think>\nI need the weather.\n</think>\n\n<tool_call>\n{\"name\": \"get_weather\", "
        "\"arguments\": {\"location\": \"Oslo\"}}\n</tool_call>",
        "<tool_call>\n{\"name\": \"get_time\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n"
        "{\"name\": \"get_time\", \"arguments\": {}}\n</tool_call>"},
       {"<think>\n</think>\n\nHello",
        "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {}"}},
      {"qwen3_coder",
       {"<tool_call>\n<function=get_weather>\n<parameter=location>\nOslo, \"N\"\n</parameter>\n"
        "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n"
        "<function=get_time>\n</function>\n</tool_call>"},
       {"<tool_call>\n<function=get_weather>\n</function>",
        "<tool_call>\n<function=get_weather>\n<parameter=location>\nOslo\n</parameter>\n"
        "<parameter=days>\n15"}},
      {"llama3",
       {R"({"name": "get_weather", "parameters": {"location": "San Francisco, CA", "days": 2}})",
        R"({"name": "get_time", "parameters": {}})"},
       {R"({"name": "get_time", "parameters": {}}; {)", R"({"name": "get_time", "arguments)",
        R"({"type": "function)"}},
      {"gemma3",
       {R"({"name": "get_weather", "parameters": {"location": "Oslo"}})"},
       {R"({"name": "get_weather", "parameters": {"location": "Oslo"}} )", "```"}},
      {"gemma4",
       {"<|tool_call>call:get_weather{location:<|\"|>Oslo \"N\"<|\"|>}<tool_call|>"
        "<|tool_call>call:get_time{}<tool_call|>",
        "<|channel>thought\nhm\n<channel|><|tool_call>call:get_weather{days:3,location:<|\"|>a"
        "<|\"|>,unit:<|\"|>celsius<|\"|>}<tool_call|>"},
       {"<|tool_call>call:get_weather{}", "<|tool_call>call:get_weather{location:Oslo",
        "<|tool_call>call:get_weather{location:<|\"|>a<|\"|>,days",
        "<|tool_call>call:get_weather{days:15", "<|tool_call>call:get_weather{\"location"}},
      {"harmony",
       {"<|channel|>analysis<|message|>Need get_weather.<|end|><|start|>assistant<|channel|>"
        "commentary to=functions.get_weather <|constrain|>json<|message|>{\"location\":\"San "
        "Francisco\"}<|call|>",
        "<|channel|>commentary to=functions.get_time <|constrain|>json<|message|>{ }<|call|>"},
       {"<|channel|>commentary to=functions.get_rain",
        "<|channel|>commentary to=functions.get_time <|constrain|>json<|message|>{}<|call|><",
        "{"}},
      {"smollm2",
       {"<tool_call>[{\"name\": \"get_weather\", \"arguments\": {\"location\": \"Oslo\"}}, "
        "{\"name\": "
        "\"get_time\", \"arguments\": {}}]</tool_call>"},
       {"<tool_call>{", "<tool_call>[]", "<tool_call>[{\"name\": \"x"}}};
  return cases;
}

TEST(ToolCallsTest, EveryStyleHasACase) {
  ASSERT_EQ(style_cases().size(), tool_call_styles().size());
  for (const ToolCallStyle& style : tool_call_styles()) {
    EXPECT_EQ(std::ranges::count(style_cases(), style.name, &StyleCase::style), 1) << style.name;
  }
}

TEST(ToolCallsTest, RequiredCallsAreWrittenAsDocumented) {
  for (const StyleCase& test : style_cases()) {
    const ToolCalls calls(request(test.style, R"(, "tool_choice": "required")"));
    EXPECT_FALSE(calls.accepts("")) << test.style;
    for (const std::string& text : test.accepted) {
      EXPECT_TRUE(calls.accepts(text)) << test.style << ": " << text;
    }
    for (const std::string& text : test.refused) {
      EXPECT_FALSE(calls.is_prefix(text)) << test.style << ": " << text;
    }
  }
}

TEST(ToolCallsTest, ByDefaultTheModelChooses) {
  for (const StyleCase& test : style_cases()) {
    const ToolCalls calls(request(test.style));
    const bool is_harmony = std::string(test.style) == "harmony";
    const std::string answer = is_harmony ? "<|channel|>final<|message|>Hello" : "Hello";
    EXPECT_TRUE(calls.accepts(answer)) << test.style;
    for (const std::string& text : test.accepted) {
      EXPECT_TRUE(calls.accepts(text)) << test.style << ": " << text;
      EXPECT_EQ(calls.accepts("I see. " + text), !is_harmony) << test.style << ": " << text;
      EXPECT_FALSE(calls.accepts(text + "x")) << test.style << ": " << text;
    }
  }
}

TEST(ToolCallsTest, ACallThatBeginsMustBeOne) {
  for (const char* style : {"hermes", "qwen3", "qwen3_coder"}) {
    EXPECT_FALSE(ToolCalls(request(style)).is_prefix("a <tool_call> b")) << style;
    EXPECT_FALSE(ToolCalls(request(style, "", kTime)).is_prefix("a <tool_call> b")) << style;
  }
  EXPECT_FALSE(ToolCalls(request("llama3")).is_prefix("a {\"name\": \"x"));
  EXPECT_TRUE(ToolCalls(request("llama3")).accepts("a {\"name"));
  EXPECT_FALSE(ToolCalls(request("gemma4")).is_prefix("<|tool_call>c ll"));
}

TEST(ToolCallsTest, ToolChoice) {
  const ToolCalls none(request("hermes", R"(, "tool_choice": "none")"));
  EXPECT_TRUE(none.accepts("text"));
  EXPECT_FALSE(none.is_prefix("text <tool_call>"));
  const ToolCalls named(request(
      "hermes", R"(, "tool_choice": {"type": "function", "function": {"name": "get_time"}})"));
  const std::string call = "<tool_call>\n{\"name\": \"get_time\", \"arguments\": {}}\n</tool_call>";
  EXPECT_TRUE(named.accepts(call));
  EXPECT_FALSE(named.is_prefix(call + "\n"));
  EXPECT_FALSE(named.is_prefix("<tool_call>\n{\"name\": \"get_w"));
  const ToolCalls single(request("hermes", R"(, "parallel_tool_calls": false)"));
  EXPECT_TRUE(single.accepts(call));
  EXPECT_FALSE(single.is_prefix(call + "\n"));
  EXPECT_TRUE(ToolCalls(request("hermes")).is_prefix(call + "\n"));
}

TEST(ToolCallsTest, WhitespaceOfArguments) {
  const std::string begin = R"({"name": "get_weather", "parameters": )";
  EXPECT_FALSE(ToolCalls(request("llama3")).is_prefix(begin + R"({"location":"a)"));
  EXPECT_TRUE(ToolCalls(request("llama3", R"(, "whitespace": "compact")"))
                  .accepts(begin + R"({"location":"a"}})"));
}

TEST(ToolCallsTest, ParametersAreObjects) {
  const ToolCalls calls(request("llama3", "", R"({"type": "function", "function": {"name": "f",
      "parameters": {"properties": {"a": {"type": "integer"}}}}})"));
  EXPECT_TRUE(calls.accepts(R"({"name": "f", "parameters": {"a": 1}})"));
  EXPECT_FALSE(calls.is_prefix(R"({"name": "f", "parameters": 1)"));
}

std::string arguments_tool(const std::string& parameters) {
  return R"({"type": "function", "function": {"name": "f", "parameters": )" + parameters + "}}";
}

/// Arguments of f as Gemma 4 writes them.
bool gemma_accepts(const std::string& parameters, const std::string& arguments) {
  return ToolCalls(request("gemma4", R"(, "tool_choice": "required")", arguments_tool(parameters)))
      .accepts("<|tool_call>call:f" + arguments + "<tool_call|>");
}

TEST(ToolCallsTest, ArgumentsOfGemma4) {
  const std::string schema = R"({"type": "object", "properties": {
      "b": {"type": "array", "items": {"type": "string", "maxLength": 2}, "maxItems": 2},
      "a": {"type": ["number", "null"]}, "C": {"$ref": "#/$defs/c"},
      "d": {"anyOf": [{"type": "boolean"}, {"const": "x"}]}},
      "required": ["b"], "$defs": {"c": {"type": "object", "properties": {
        "x": {"type": "integer"}, "y": {"type": "string", "pattern": "^\"+$"}}}}})";
  EXPECT_TRUE(gemma_accepts(schema, "{b:[]}"));
  EXPECT_TRUE(gemma_accepts(schema, "{a:-1.5,b:[<|\"|>é日<|\"|>,<|\"|><|\"|>],C:{},d:true}"));
  EXPECT_TRUE(gemma_accepts(schema, "{a:null,b:[],C:{y:<|\"|>\"\"<|\"|>},d:<|\"|>x<|\"|>}"));
  EXPECT_TRUE(gemma_accepts(schema, "{b:[],C:{x:1,y:<|\"|>\"<|\"|>}}"));
  EXPECT_FALSE(gemma_accepts(schema, "{a:1}"));
  EXPECT_FALSE(gemma_accepts(schema, "{b:[],a:1}"));  // sorted
  EXPECT_FALSE(gemma_accepts(schema, "{b:[<|\"|>abc<|\"|>]}"));
  EXPECT_FALSE(gemma_accepts(schema, "{b:[<|\"|>a<|\"|>,<|\"|>b<|\"|>,<|\"|>c<|\"|>]}"));
  EXPECT_FALSE(gemma_accepts(schema, "{b:[],C:{y:<|\"|><|\"|>}}"));
  EXPECT_FALSE(gemma_accepts(schema, "{b:[],}"));
  EXPECT_FALSE(gemma_accepts(schema, "{b:[],e:1}"));
}

/// Optional integers p0, p1, ...; or other values.
std::string optional_properties(int count, const std::string& value = R"({"type": "integer"})") {
  std::string members;
  for (int i = 0; i < count; ++i) {
    members += (i == 0 ? "\"p" : ", \"p") + std::to_string(i) + "\": " + value;
  }
  return R"({"type": "object", "properties": {)" + members + "}}";
}

TEST(ToolCallsTest, OptionalArgumentsOfGemma4InAllCombinations) {
  const std::string mixed = R"({"properties": {"a": {"type": "null"}, "b": {"type": "null"},
      "c": {"type": "null"}}, "required": ["b"]})";
  for (int chosen = 0; chosen < 8; ++chosen) {
    std::string all, mix;
    for (int i = 0; i < 3; ++i) {
      if ((chosen >> i & 1) != 0) {
        all += (all.empty() ? "p" : ",p") + std::to_string(i) + ":1";
        mix += (mix.empty() ? "" : ",") + std::string(1, static_cast<char>('a' + i)) + ":null";
      }
    }
    EXPECT_TRUE(gemma_accepts(optional_properties(3), "{" + all + "}")) << all;
    EXPECT_EQ(gemma_accepts(mixed, "{" + mix + "}"), (chosen & 2) != 0) << mix;
  }
  EXPECT_FALSE(gemma_accepts(optional_properties(3), "{,p1:1}"));
  EXPECT_FALSE(gemma_accepts(optional_properties(3), "{p1:1,p0:1}"));
}

TEST(ToolCallsTest, ManyOptionalArgumentsOfGemma4) {
  const std::string objects = optional_properties(60, optional_properties(50));
  EXPECT_TRUE(gemma_accepts(objects, "{p0:{p1:1,p49:2},p59:{}}"));
  EXPECT_FALSE(gemma_accepts(objects, "{p0:{p49:2,p1:1}}"));
  std::string tools;
  for (int i = 0; i < 128; ++i) {
    tools += (i == 0 ? "" : ",") + std::string(R"({"type": "function", "function": {"name": "f)") +
             std::to_string(i) + R"(", "parameters": )" + optional_properties(20) + "}}";
  }
  EXPECT_TRUE(ToolCalls(request("gemma4", "", tools))
                  .accepts("<|tool_call>call:f127{p0:1,p19:2}<tool_call|>"));
}

/// Copies of the definitions would be 2^24.
TEST(ToolCallsTest, ValuesThatReferToOneAnotherAreWrittenOnce) {
  std::string definitions = R"("d0": {"type": "integer"})";
  for (int i = 1; i < 25; ++i) {
    const std::string ref = R"({"$ref": "#/$defs/d)" + std::to_string(i - 1) + "\"}";
    definitions += ", \"d" + std::to_string(i) + R"(": {"type": "object", "properties": {"a": )" +
                   ref + R"(, "b": )" + ref + "}}";
  }
  const std::string parameters = R"({"type": "object", "properties": {"x": {"$ref": "#/$defs/d24"}},
      "$defs": {)" + definitions +
                                 "}}";
  EXPECT_TRUE(gemma_accepts(parameters, "{x:{a:{b:{}},b:{}}}"));
  EXPECT_FALSE(gemma_accepts(parameters, "{x:{a:{b:1}}}"));
}

/// Arguments of f as Qwen 3 Coder writes them.
bool qwen_accepts(const std::string& parameters, const std::string& arguments) {
  return ToolCalls(
             request("qwen3_coder", R"(, "tool_choice": "required")", arguments_tool(parameters)))
      .accepts("<tool_call>\n<function=f>\n" + arguments + "</function>\n</tool_call>");
}

TEST(ToolCallsTest, ReferencesMeanPartsOfTheParameters) {
  const std::string list = R"({"properties": {"a": {"type": "integer"},
      "b/%": {"type": "array", "items": {"$ref": "#/properties/a"}}}, "required": ["b/%"]})";
  EXPECT_TRUE(qwen_accepts(list, "<parameter=b/%>\n[1, 2]\n</parameter>\n"));
  EXPECT_FALSE(qwen_accepts(list, "<parameter=b/%>\n[\"x\"]\n</parameter>\n"));
  const std::string nested = R"({"properties": {"a": {"type": "object",
      "properties": {"next": {"$ref": "#"}}, "additionalProperties": false}},
      "additionalProperties": false})";
  EXPECT_TRUE(qwen_accepts(nested, "<parameter=a>\n{\"next\": {\"a\": {}}}\n</parameter>\n"));
  EXPECT_FALSE(qwen_accepts(nested, "<parameter=a>\n{\"next\": {\"next\": {}}}\n</parameter>\n"));
  const std::string defined = R"({"$ref": "#/$defs/all", "$defs": {"n": {"type": "null"},
      "all": {"type": "object", "properties": {"a": {"type": "array",
        "items": {"$ref": "#/$defs/n"}}}}}})";
  EXPECT_TRUE(qwen_accepts(defined, "<parameter=a>\n[null]\n</parameter>\n"));
  EXPECT_FALSE(qwen_accepts(defined, "<parameter=a>\n[1]\n</parameter>\n"));
  const std::string escaped = R"({"properties": {"a": {"$ref": "#/$defs/x~1y%20~0"}},
      "$defs": {"x/y ~": {"type": "integer"}}})";
  EXPECT_TRUE(gemma_accepts(escaped, "{a:1}"));
  EXPECT_TRUE(qwen_accepts(escaped, "<parameter=a>\n1\n</parameter>\n"));
}

TEST(ToolCallsTest, ValuesThatANotationCannotWriteAreErrors) {
  const auto error = [](const std::string& style, const std::string& parameters) {
    return error_message<GrammarError>(
        [&] { compile_calls(request(style, "", arguments_tool(parameters))); });
  };
  EXPECT_THAT(error("qwen3_coder", R"({"properties": {"a": {"enum": ["x\n</parameter>\ny"]}}})"),
              HasSubstr("contains '</parameter>', which ends values"));
  EXPECT_THAT(error("gemma4", R"({"properties": {"a": {"const": "<|\"|>"}}})"),
              HasSubstr("contains '<|\"|>', which ends calls"));
  for (const char* style : {"gemma4", "qwen3_coder"}) {
    EXPECT_THAT(error(style, R"({"properties": {"": {"type": "null"}}})"),
                HasSubstr("the name '' cannot be written"));
  }
  const std::string two_types = R"({"properties": {"a": {"$ref": "#/$defs/a", "type": "string"}},
                                   "$defs": {"a": {"type": "null"}}})";
  EXPECT_THAT(error("qwen3_coder", two_types), HasSubstr("a 'type' other than that of the '$ref'"));
  EXPECT_TRUE(gemma_accepts(two_types, "{}"));
  EXPECT_FALSE(gemma_accepts(two_types, "{a:null}"));
  EXPECT_THAT(error("gemma4", R"({"properties": {"a": {"type": "array",
                                  "items": {"type": "null"}, "minItems": 2, "maxItems": 0}}})"),
              HasSubstr("('f')"));
}

TEST(ToolCallsTest, PropertiesOfSeveralParts) {
  const std::string parts = R"({"properties": {"a": {"type": "integer"}},
      "allOf": [{"$ref": "#/$defs/b"}, {"type": "object", "required": ["a"]}], "$defs": {"b":
      {"type": "object", "properties": {"b": {"allOf": [{"$ref": "#/$defs/n"}], "title": "n"}},
       "required": ["b"]}, "n": {"type": "boolean"}}})";
  EXPECT_TRUE(gemma_accepts(parts, "{a:1,b:true}"));
  EXPECT_FALSE(gemma_accepts(parts, "{b:true}") || gemma_accepts(parts, "{a:1}"));
  EXPECT_FALSE(gemma_accepts(parts, "{a:1,b:2}"));
  EXPECT_TRUE(
      qwen_accepts(parts, "<parameter=a>\n1\n</parameter>\n<parameter=b>\nfalse\n</parameter>\n"));
  EXPECT_FALSE(qwen_accepts(parts, "<parameter=a>\n1\n</parameter>\n"));
  const std::string others = R"({"required": ["x"], "additionalProperties": {"type": "null"}})";
  EXPECT_TRUE(gemma_accepts(others, "{x:null}"));
  EXPECT_FALSE(gemma_accepts(others, "{}") || gemma_accepts(others, "{x:1}"));
  EXPECT_TRUE(qwen_accepts(others, "<parameter=x>\nnull\n</parameter>\n"));
  const std::string within = R"({"properties": {"o": {"allOf": [{"type": "object",
      "properties": {"s": {"type": "integer"}}, "required": ["s"]}, {"type": "object"}]}}})";
  EXPECT_TRUE(gemma_accepts(within, "{o:{s:1}}"));
  EXPECT_FALSE(gemma_accepts(within, "{o:{}}"));
  EXPECT_TRUE(qwen_accepts(within, "<parameter=o>\n{\"s\": 1}\n</parameter>\n"));
  EXPECT_FALSE(qwen_accepts(within, "<parameter=o>\n{}\n</parameter>\n"));
}

TEST(ToolCallsTest, PropertiesThatCannotBeWrittenAreErrors) {
  const auto error = [](const std::string& parameters) {
    EXPECT_EQ(error_message<GrammarError>(
                  [&] { compile_calls(request("gemma4", "", arguments_tool(parameters))); }),
              "no error");
    return error_message<GrammarError>(
        [&] { compile_calls(request("qwen3_coder", "", arguments_tool(parameters))); });
  };
  const std::string a = R"({"properties": {"a": {"type": "null"}}})";
  EXPECT_THAT(error(R"({"allOf": [)" + a + "," + a + "]}"),
              HasSubstr("#/allOf/1/properties/a: a name that two parts"));
  EXPECT_THAT(error(R"({"allOf": [)" + a + R"(], "additionalProperties": false})"),
              HasSubstr("#/additionalProperties: 'additionalProperties' with an allOf"));
  EXPECT_THAT(error(R"({"allOf": [{"minProperties": 1}]})"),
              HasSubstr("#/allOf/0: the keyword 'minProperties'"));
  EXPECT_THAT(error(R"({"required": ["x"], "patternProperties": {"x": {"type": "null"}}})"),
              HasSubstr("the keyword 'patternProperties' cannot be enforced"));
  EXPECT_THAT(error(R"({"properties": {"a": {"allOf": [{"type": "string"}, {"minLength": 1}]}}})"),
              HasSubstr("#/properties/a: an allOf of several schemas"));
}

TEST(ToolCallsTest, StringsThatAreTooLongAreRefusedAtOnce) {
  for (const char* least : {"1e26", "1000000"}) {
    const std::string parameters =
        R"({"properties": {"a": {"type": "string", "minLength": )" + std::string(least) + "}}}";
    EXPECT_THAT(error_message<GrammarError>(
                    [&] { compile_calls(request("qwen3_coder", "", arguments_tool(parameters))); }),
                AllOf(HasSubstr("#/properties/a: texts of "),
                      HasSubstr("use smaller counts, or raise max_regex_states")));
  }
}

TEST(ToolCallsTest, ManyPartsOfAnObject) {
  std::string parts;
  for (int i = 0; i < 100; ++i) {
    const std::string name = "p" + std::to_string(i);
    parts += (i == 0 ? "" : ",") +
             (R"({"type": "object", "properties": {")" + name + R"(": {"type": "null"}}})");
  }
  EXPECT_TRUE(gemma_accepts(R"({"allOf": [)" + parts + "]}", "{p0:null,p99:null}"));
}

/// Each part stands twice in the next one.
std::string doubled_parts(const std::string& first) {
  std::string definitions = R"("x0": )" + first;
  for (int i = 1; i < 30; ++i) {
    const std::string ref = R"({"$ref": "#/$defs/x)" + std::to_string(i - 1) + "\"}";
    definitions += ", \"x" + std::to_string(i) + R"(": {"allOf": [)" + ref + "," + ref + "]}";
  }
  return R"({"properties": {"a": {"$ref": "#/$defs/x29"}}, "$defs": {)" + definitions + "}}";
}

TEST(ToolCallsTest, PartsThatDoubleAreRefusedAtOnce) {
  const std::string whole =
      R"({"allOf": [{"$ref": "#/$defs/x29"}],)" + doubled_parts(R"({"type": "object"})").substr(1);
  EXPECT_THAT(error_message<GrammarError>([&] { qwen_accepts(whole, ""); }),
              HasSubstr("an object whose allOf has more than 1000 parts cannot be written"));
  EXPECT_THAT(error_message<GrammarError>(
                  [&] { qwen_accepts(doubled_parts(R"({"type": "string"})"), ""); }),
              HasSubstr("an allOf of several schemas that are not all objects"));
  EXPECT_TRUE(gemma_accepts(doubled_parts(R"({"type": "object"})"), "{a:{b:[]}}"));
  EXPECT_FALSE(gemma_accepts(doubled_parts(R"({"type": "string"})"), "{a:1}"));
}

/// From every place of the arguments, in the middle of characters too.
TEST(ToolCallsTest, WaysOutEndTheCall) {
  const std::string tool = arguments_tool(
      R"({"properties": {"s": {"type": "string", "minLength": 4, "pattern": "^[^a]*$"}},
          "required": ["s"]})");
  for (const auto& [style, begin, end] :
       {std::tuple("gemma4", "<|tool_call>call:f{s:<|\"|>", "<|\"|>}<tool_call|>"),
        std::tuple("qwen3_coder", "<tool_call>\n<function=f>\n<parameter=s>\n",
                   "\n</parameter>\n</function>\n</tool_call>")}) {
    const auto grammar = compile_calls(request(style, R"(, "tool_choice": "required")", tool));
    const std::string call = std::string(begin) + "é日😀é" + end;
    for (size_t size = 0; size <= call.size(); ++size) {
      StateId state = grammar->next(grammar->start(), std::string_view(call).substr(0, size));
      for (int parts = 0; !grammar->is_complete(state); ++parts) {
        const std::string way = grammar->completion(state).value_or("");
        ASSERT_FALSE(way.empty() || parts == 50) << style << " after " << size;
        state = grammar->next(state, way);
      }
    }
  }
}

/// What would cut a value for those who read calls.
TEST(ToolCallsTest, StringsHaveNoDelimiters) {
  for (const char* schema : {R"({"type": "string"})", R"({"type": "string", "minLength": 3})",
                             R"({"type": "string", "pattern": "^a[^]*b$"})"}) {
    const std::string one = std::string(R"({"properties": {"s": )") + schema + "}}";
    const auto qwen = [&](const std::string& text) {
      return qwen_accepts(one, "<parameter=s>\n" + text + "\n</parameter>\n");
    };
    EXPECT_TRUE(qwen("a\n</parameter \n<b") && qwen("a<parameter></b") && qwen("a\n\nb"));
    for (const std::string delimiter :
         {"</parameter>", "\n</parameter>\n", "<parameter=", "</function>", "</tool_call>"}) {
      EXPECT_FALSE(qwen("a" + delimiter + "b")) << schema << delimiter;
    }
    const auto gemma = [&](const std::string& text) {
      return gemma_accepts(one, "{s:<|\"|>" + text + "<|\"|>}");
    };
    EXPECT_TRUE(gemma("a\"}<|b"));
    for (const std::string delimiter : {"<|\"|>", "<tool_call|>", "<|tool_call>"}) {
      EXPECT_FALSE(gemma("a" + delimiter + "b")) << schema << delimiter;
    }
  }
  const std::string two = R"({"properties": {"s": {"type": "string"}, "t": {"type": "string"}},
                              "required": ["s", "t"]})";
  EXPECT_TRUE(qwen_accepts(two, "<parameter=s>\n\n</parameter>\n<parameter=t>\nx\n</parameter>\n"));
  EXPECT_FALSE(qwen_accepts(two,
                            "<parameter=s>\na\n</parameter>\nb\n</parameter>\n<parameter=t>\n"
                            "x\n</parameter>\n"));
}

TEST(ToolCallsTest, NestedValuesHaveNoDelimiters) {
  const auto accepts = [](const std::string& schema, const std::string& value) {
    return qwen_accepts(R"({"properties": {"s": )" + schema + R"(}, "$defs": {"n": {"items":
                        {"$ref": "#/$defs/n"}}, "s": {"type": "string"}}})",
                        "<parameter=s>\n" + value + "\n</parameter>\n");
  };
  const std::string array = R"({"type": "array"})", object = R"({"type": "object"})";
  for (const std::string delimiter : {"</parameter>", "<parameter=", "</function>"}) {
    EXPECT_FALSE(accepts(array, "[\"" + delimiter + "\"]"));
    EXPECT_FALSE(accepts(array, "[[{\"x\": \"a" + delimiter + "\"}]]"));
    EXPECT_FALSE(accepts(object, "{\"a\": \"" + delimiter + "\"}"));
    EXPECT_FALSE(accepts(object, "{\"" + delimiter + "\": 1}"));
    EXPECT_FALSE(
        accepts(R"({"type": "array", "items": {"$ref": "#/$defs/s"}})", "[\"" + delimiter + "\"]"));
    EXPECT_FALSE(accepts(R"({"type": "array", "items": {"$ref": "#/$defs/n"}})",
                         "[[\"" + delimiter + "\"]]"));
    EXPECT_FALSE(accepts(R"({"type": "object", "allOf": [{"required": ["a"]}],
                             "additionalProperties": {"type": "string"}})",
                         "{\"a\": \"" + delimiter + "\"}"));
  }
  EXPECT_TRUE(accepts(array, R"([["</param", {"</p": "<b>", "1": null}], 1.5])"));
  EXPECT_TRUE(accepts(R"({"type": "array", "items": {"$ref": "#/$defs/n"}})", R"([["</p"]])"));
  EXPECT_TRUE(accepts(R"({"type": "array", "items": {"$ref": "#/$defs/s"}})", R"(["<"])"));
  const std::string none = R"({"type": "object", "properties": {"a": {}},
                               "unevaluatedProperties": false, "$schema":)";
  EXPECT_TRUE(accepts(none + R"("https://json-schema.org/draft/2020-12/schema"})", R"({"a": 1})"));
  EXPECT_FALSE(accepts(none + R"("https://json-schema.org/draft/2020-12/schema"})", R"({"b": 1})"));
  const std::string old = R"({"type": "object", "$schema":
                              "http://json-schema.org/draft-04/schema#"})";
  EXPECT_TRUE(accepts(old, R"({"a": 1})"));
  EXPECT_FALSE(accepts(old, R"({"</function>": 1})"));
}

TEST(ToolCallsTest, WhatExcludesADelimiterIsNoError) {
  for (const char* schema :
       {R"({"type": "string", "not": {"pattern": "</tool_call>"}})",
        R"({"type": "string", "not": {"const": "</tool_call>"}})",
        R"({"type": "string", "if": {"pattern": "</tool_call>"}, "then": false})"}) {
    const ToolCalls calls(
        request("hermes", R"(, "tool_choice": "required")",
                arguments_tool(std::string(R"({"properties": {"a": )") + schema + "}}")));
    EXPECT_TRUE(calls.is_prefix("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"b\"}}"))
        << schema;
    EXPECT_FALSE(
        calls.is_prefix("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"</tool_call>\""))
        << schema;
  }
}

TEST(ToolCallsTest, LimitsKeepTheirReason) {
  const auto& styles = tool_call_styles();
  const auto hermes = std::ranges::find(styles, "hermes", &ToolCallStyle::name);
  const SchemaCheck check = [](const JsonValue& schema) {
    if (schema.find("not") != nullptr) {
      throw GrammarError("more than 7 states");
    }
  };
  EXPECT_EQ(error_message<GrammarError>([&] {
              (void)without_delimiters(*hermes, parse_json(R"({"minLength": 9})", "test"), check);
            }),
            "more than 7 states");
}

TEST(ToolCallsTest, WhatNeedsADelimiterIsAnError) {
  const auto error = [](const std::string& style, const std::string& schema) {
    return error_message<GrammarError>([&] {
      compile_calls(request(style, "", arguments_tool(R"({"properties": {"a": )" + schema + "}}")));
    });
  };
  const std::string pattern = R"({"type": "string", "pattern": "x</tool_call>"})";
  for (const char* style : {"hermes", "qwen3", "smollm2", "qwen3_coder"}) {
    EXPECT_THAT(error(style, pattern),
                AllOf(HasSubstr("parameters ('f')"), HasSubstr("#/properties/a"),
                      HasSubstr("every text that {\"pattern\":\"x</tool_call>\""),
                      HasSubstr("none can be written")))
        << style;
    EXPECT_THAT(error(style, R"({"type": "array", "items": {"enum": ["</tool_call>"]}})"),
                HasSubstr("'</tool_call>' contains '</tool_call>', which ends calls"));
    EXPECT_EQ(error(style, R"({"type": "string", "pattern": "x(</tool_call>)?"})"), "no error");
    EXPECT_EQ(error(style, R"({"type": "integer", "title": "</tool_call>"})"), "no error");
  }
  for (const char* style : {"llama3", "gemma3", "harmony"}) {
    EXPECT_EQ(error(style, pattern), "no error");
  }
  EXPECT_THAT(error("gemma4", R"({"type": "string", "pattern": "<[|]\"[|]>"})"),
              HasSubstr("none can be written"));
  EXPECT_THAT(error("hermes", R"({"type": "object", "properties": {"</tool_call>": {}}})"),
              HasSubstr("rename it"));
  EXPECT_THAT(error("qwen3_coder", R"({"type": "string", "pattern": "(x"})"),
              HasSubstr("pattern '(x'"));
}

/// A keyword restricts values of its own type; other names restrict none.
TEST(ToolCallsTest, KeywordsThatRestrictNothingAreNoErrors) {
  for (const char* style : {"gemma4", "qwen3_coder"}) {
    const auto error = [&](const std::string& property) {
      return error_message<GrammarError>([&] {
        compile_calls(
            request(style, "", arguments_tool(R"({"properties": {"a": )" + property + "}}")));
      });
    };
    for (const char* property :
         {R"({"type": "integer", "format": "int64", "maxLength": 3})",
          R"({"type": ["string", "null"], "maxLength": 30, "format": "date", "minimum": 1})",
          R"({"type": "string", "x-order": 1, "nullable": true, "properties": {}})",
          R"({"type": "integer", "enum": [1, 2], "format": "int32"})",
          R"({"type": "array", "items": {"type": "null"}, "pattern": "x"})",
          R"({"type": "object", "properties": {}, "minItems": 3})"}) {
      EXPECT_EQ(error(property), "no error") << style << ": " << property;
    }
    if (style == std::string("gemma4")) {
      continue;
    }
    EXPECT_THAT(error(R"({"type": "string", "not": {"maxLength": 3}})"), HasSubstr("'not'"));
    EXPECT_THAT(error(R"({"type": "string", "enum": ["ab"], "maxLength": 1})"),
                HasSubstr("'maxLength'"));
    EXPECT_THAT(error(R"({"type": ["integer", "string"], "enum": ["ab"], "maxLength": 1})"),
                HasSubstr("'maxLength'"));
    EXPECT_THAT(error(R"({"enum": ["ab"], "maxLength": 1})"), HasSubstr("'maxLength'"));
    EXPECT_THAT(error(R"({"type": "number", "enum": [3], "minimum": 4})"), HasSubstr("'minimum'"));
    EXPECT_THAT(error(R"({"type": "integer", "const": 3, "maximum": 2})"), HasSubstr("'maximum'"));
  }
  const std::string of_types = R"({"properties": {
      "a": {"type": ["string", "null"], "maxLength": 2, "minimum": 5},
      "n": {"type": "integer", "format": "int64", "minimum": 1, "x-unit": "s"}}})";
  EXPECT_TRUE(gemma_accepts(of_types, "{a:<|\"|>ab<|\"|>,n:1}"));
  EXPECT_TRUE(gemma_accepts(of_types, "{a:null}"));
  EXPECT_FALSE(gemma_accepts(of_types, "{a:<|\"|>abc<|\"|>}"));
  EXPECT_FALSE(gemma_accepts(of_types, "{n:0}"));
}

TEST(ToolCallsTest, WhatANotationCannotEnforceIsAnError) {
  const auto error = [](const std::string& style, const std::string& parameters) {
    return error_message<GrammarError>(
        [&] { compile_calls(request(style, "", arguments_tool(parameters))); });
  };
  EXPECT_THAT(error("qwen3_coder", R"({"type": "object", "patternProperties": {}})"),
              AllOf(HasSubstr("/tools/0/function/parameters ('f')"),
                    HasSubstr("the keyword 'patternProperties' cannot be enforced in the style")));
  EXPECT_THAT(error("qwen3_coder", R"({"properties": {"abcdefghij": {"anyOf": [{"$ref": "#/$defs/a"}
                                       ]}}, "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]},
                                       "b": {"not": {"type": "null"}}}})"),
              HasSubstr("/abcdefghij/"));
  EXPECT_THAT(
      error("gemma4", R"({"properties": {"a": {"type": "integer", "minimum": 2, "maximum": 1}}})"),
      HasSubstr("no JSON value satisfies"));
}

TEST(ToolCallsTest, OneOfOverlappingTypesIsAnError) {
  const auto x_of = [](const std::string& keyword, const std::string& schemas) {
    return R"({"type": "object", "properties": {"x": {")" + keyword + R"(": )" + schemas + "}}}";
  };
  for (const std::string style : {"qwen3_coder"}) {
    for (const std::string types :
         {R"([{"type": ["string", "null"]}, {"type": "string"}])",
          R"([{"type": "null"}, {"type": ["integer", "null"]}])",
          R"([{"type": ["string", "number"]}, {"type": ["integer", "null"]}])",
          R"([{"type": "integer"}, {"type": "number"}])", R"([{"enum": ["a"]}, {"enum": ["b"]}])",
          R"([{"$ref": "#/$defs/a"}, {"type": ["string", "boolean"]}])"}) {
      const std::string tool = arguments_tool(R"({"$defs": {"a": {"type": ["string", "null"]}}, )" +
                                              x_of("oneOf", types).substr(1));
      EXPECT_THAT(
          error_message<GrammarError>([&] { compile_calls(request(style, "", tool)); }),
          AllOf(HasSubstr("#/properties/x/oneOf/"), HasSubstr("types that overlap cannot be")));
    }
  }
  const std::string overlap =
      x_of("oneOf", R"([{"type": ["string", "null"]}, {"type": "string"}])");
  EXPECT_TRUE(gemma_accepts(overlap, "{x:null}"));
  EXPECT_FALSE(gemma_accepts(overlap, "{x:<|\"|>a<|\"|>}"));
  const std::string apart = R"([{"type": ["string", "null"]}, {"type": ["number", "boolean"]}])";
  for (const std::string arguments : {"{x:<|\"|>a<|\"|>}", "{x:null}", "{x:1.5}", "{x:true}"}) {
    EXPECT_TRUE(gemma_accepts(x_of("oneOf", apart), arguments)) << arguments;
  }
  EXPECT_TRUE(gemma_accepts(x_of("anyOf", R"([{"type": ["string", "null"]}, {"type": "string"}])"),
                            "{x:null}"));
}

TEST(ToolCallsTest, TokensOfTheVocabularyAreTokens) {
  const std::vector<std::string> pieces = {"",  "",          "<tool_call>", "</tool_call>",
                                           "<", "tool_call>"};
  std::vector<std::string> bytes = pieces;
  for (int byte = 0; byte < 256; ++byte) {
    bytes.emplace_back(1, static_cast<char>(byte));
  }
  const auto vocabulary = std::make_shared<GrammarVocabulary>(
      std::vector<std::string_view>(bytes.begin(), bytes.end()), std::vector{kTinyEnd});
  GrammarMatcher matcher(compile_calls(request("hermes"), vocabulary));
  EXPECT_TRUE(matcher.mask().allows(2));
  EXPECT_FALSE(matcher.mask().allows(3));
  EXPECT_TRUE(matcher.mask().allows(4));
  ASSERT_TRUE(matcher.accept(2));
  EXPECT_EQ(matcher.forced_bytes(), "\n{\"name\": \"get_");
  ASSERT_TRUE(matcher.accept_bytes("\n{\"name\": \"get_time\", \"arguments\": {}}\n"));
  EXPECT_EQ(matcher.mask().tokens(), std::vector<Token>{3});
  EXPECT_FALSE(matcher.accept(4));
  ASSERT_TRUE(matcher.accept(3));
  EXPECT_TRUE(matcher.is_complete());
  matcher.rollback(2);
  EXPECT_FALSE(matcher.mask().allows(3));
}

TEST(ToolCallsTest, ParametersThatAreNoSchemaOfAnObjectAreErrors) {
  for (const ToolCallStyle& style : tool_call_styles()) {
    const auto error = [&](const std::string& parameters) {
      return error_message<GrammarError>(
          [&] { compile_calls(request(style.name, "", arguments_tool(parameters))); });
    };
    for (const char* wrong : {"5", "[]", R"({"type": "string"})", R"({"type": "array"})",
                              R"({"type": ["string", "null"]})", R"({"properties": [1, 2]})",
                              R"({"required": "a"})", R"({"$ref": 5})", "false"}) {
      EXPECT_THAT(error(wrong), HasSubstr("#/tools/0/function/parameters ('f')"))
          << style.name << ": " << wrong;
    }
    EXPECT_THAT(error(R"({"properties": {"a": {"enum": "abc"}}})"),
                HasSubstr("#/properties/a/enum: must be a list"))
        << style.name;
    EXPECT_EQ(error(R"({"type": ["object", "null"]})"), "no error") << style.name;
  }
}

TEST(ToolCallsTest, WrongRequestsAreErrors) {
  const auto error = [](const std::string& json) {
    return error_message<GrammarError>([&] { compile_calls(json); });
  };
  EXPECT_THAT(error(request("herms")),
              AllOf(HasSubstr("there is no style 'herms'; did you mean 'hermes'?"),
                    HasSubstr("gemma3, gemma4, harmony, hermes, llama3, qwen3, qwen3_coder")));
  EXPECT_THAT(error(request("xyz")), HasSubstr("there is no style 'xyz'; known: gemma3"));
  EXPECT_THAT(error(request("hermes", "", "")),
              AllOf(HasSubstr("#/tools: there is no tool"), HasSubstr(R"("tool_choice": "none")")));
  EXPECT_THAT(error(R"({"style": 5, "tools": []})"), HasSubstr("#/style: 5 is no text"));
  EXPECT_THAT(error(request("hermes", R"(, "whitespace": "foo")")),
              HasSubstr("#/whitespace: white space 'foo' is not known"));
  EXPECT_THAT(error(request("hermes", "", std::string(kTime) + "," + kTime)),
              HasSubstr("there are two tools 'get_time'"));
  EXPECT_THAT(error(request("hermes", R"(, "tool_choice": "always")")),
              HasSubstr("'always' is not known; known: auto, required, none"));
  EXPECT_THAT(error(request("hermes", R"(, "tool_choice": {"function": {"name": "f"}})")),
              HasSubstr("there is no tool 'f'; there are get_weather, get_time"));
  EXPECT_THAT(error(request("hermes", R"(, "tols": 1)")), HasSubstr("the key 'tols' is unknown"));
  EXPECT_THAT(error(request("hermes", "", R"({"type": "retrieval", "name": "x"})")),
              HasSubstr("#/tools/0: a tool of the type 'retrieval'"));
  EXPECT_THAT(error(request("hermes", "", R"({"function": {"name": "a b"}})")),
              HasSubstr("#/tools/0/function/name: 'a b' is no name"));
  EXPECT_THAT(
      error(request("hermes", "", arguments_tool(R"({"properties": {"a": {"type": "int"}}})"))),
      AllOf(HasSubstr("#/tools/0/function/parameters ('f'): #/properties/a/type"),
            HasSubstr("int")));
}

}  // namespace
}  // namespace specdec
