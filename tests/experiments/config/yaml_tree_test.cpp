#include "experiments/config/yaml_tree.h"

#include <gmock/gmock.h>

#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "experiments/config/yaml_writer.h"
#include "tests/support/error_message.h"

namespace specdec {
namespace {

using testing::HasSubstr;

std::string message_of(const std::string& text) {
  try {
    (void)parse_yaml(text, "a.yaml", true);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(YamlTreeTest, KeepsOrderPlacesAndQuotes) {
  const auto tree = parse_yaml("b: 1\na:\n  - x\n  - \"2\"\nempty:\n", "a.yaml", true);
  ASSERT_EQ(tree->entries.size(), 3U);
  EXPECT_EQ(tree->entries[0].key, "b");
  EXPECT_EQ(tree->entries[1].place, "a.yaml:2");
  const auto& list = *tree->entries[1].value;
  ASSERT_EQ(list.items.size(), 2U);
  EXPECT_EQ(list.items[1]->place, "a.yaml:4");
  EXPECT_TRUE(list.items[1]->quoted);
  EXPECT_FALSE(list.items[0]->quoted);
  EXPECT_EQ(tree->entries[2].value->kind, YamlTree::Kind::kNull);
}

TEST(YamlTreeTest, QuotesEndWhereTheyShould) {
  const auto tree =
      parse_yaml("é: 'it''s'\nb: \"x\\\"y\\\\\"\nc: ''\nd: ['a', \"\"]", "a.yaml", true);
  EXPECT_EQ(tree->find("é")->value->text, "it's");
  EXPECT_EQ(tree->find("b")->value->text, "x\"y\\");
  EXPECT_EQ(tree->find("c")->value->text, "");
  EXPECT_EQ(tree->find("d")->value->items.size(), 2U);
}

TEST(YamlTreeTest, AnEmptyDocumentIsAnEmptyMap) {
  for (const char* text : {"", "\n\n", "# only a comment\n"}) {
    EXPECT_EQ(parse_yaml(text, "a.yaml", true)->kind, YamlTree::Kind::kMap) << text;
  }
}

TEST(YamlTreeTest, RefusesWhatConfigsDoNotNeed) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"a: 1\nb: 2\na: 3\n", "a.yaml:3: the key 'a' is given twice (first at a.yaml:1)"},
      {"a: {b: 1, b: 2}\n", "a.yaml:1: the key 'b' is given twice"},
      {"a: &x 1\nb: *x\n", "a.yaml:1: anchors"},
      {"a: 1\nb: *x\n", "a.yaml:2: "},
      {"a: 1\n<<: {b: 2}\n", "a.yaml:2: merge keys"},
      {"a: !!int 1\n", "a.yaml:1: tags"},
      {"a: 1\n---\nb: 2\n", "several YAML documents"},
      {"? [1, 2]\n: 3\n", "a.yaml:1: a key must be a plain word"},
      {"a:\n\t- 1\n", "tabs"},
      {"a: 'open\n", "a.yaml:1: a quote is not closed"},
      {"ü: é\nb: 'it''s\n", "a.yaml:2: a quote is not closed"},
      {"a: \"open\\\"\nb: 2\n", "a.yaml:1: a quote is not closed"},
      {"'a: 1\n", "a.yaml:1: "},
      {"a: 1\n b: 2\n", "a.yaml:2: "},
      {std::string("a: 1\0b", 6), "NUL"},
      {"a: 1\nname: caf\xE9\n", "a.yaml:2: holds bytes that are no UTF-8; save the text as UTF-8"},
  };
  for (const auto& [text, expected] : cases) {
    EXPECT_THAT(message_of(text), HasSubstr(expected)) << text;
  }
}

TEST(YamlTreeTest, AValueOfTheCommandLineHasNoLines) {
  const auto mistake = [](const std::string& text) {
    return error_message<ConfigError>([&] { (void)parse_yaml(text, "--cache", false); });
  };
  EXPECT_EQ(mistake("{a: 1, a: 2}"), "--cache: the key 'a' is given twice");
  EXPECT_THAT(mistake("{a: 1}, b"), testing::AllOf(HasSubstr("holds more text behind the end"),
                                                   testing::Not(HasSubstr("documents"))));
}

TEST(YamlTreeTest, SaysWhichBracketIsOpen) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"a: [1, 2\n", "a.yaml:1: this '[' is never closed: ']' is missing"},
      {"{a: 1\n", "a.yaml:1: this '{' is never closed: '}' is missing"},
      {"a: 1\nb: {c: d\ne: {f: g}\nh:\n  - i\n", "a.yaml:2: this '{' is never closed"},
      {"a:\n  - {b: {c: d}\n  - {e: f}\n", "a.yaml:2: this '{' is never closed"},
      {"a: {b: [1,\n 2}\n", "a.yaml:2: '}' where the '[' of line 1 is still open"},
      {"a: {b: c}}\n", "a.yaml:1: a '}' too many"},
      // Not in quotes, comments, block scalars or words:
      {"a: '['\nb: \"{\"\nc: d # {\ne: f[g\nh: [i\n", "a.yaml:5: this '['"},
      {"a: |\n  { text\n\n  [\nb: it's {\nc: {d: don't, e: 'x'''}\nf: [\n", "a.yaml:7: this '['"},
      {"a: 'it''s {'\nb c\nd: 1\n", "a.yaml:"},
  };
  for (const auto& [text, expected] : cases) {
    EXPECT_THAT(message_of(text), HasSubstr(expected)) << text;
  }
  EXPECT_THAT(message_of("a: 'it''s {'\nb c\nd: 1\n"), testing::Not(HasSubstr("closed")));
}

TEST(YamlTreeTest, SyntaxErrorsSayWhatToDo) {
  EXPECT_THAT(message_of("a: b: c\n"), HasSubstr("quote a text that holds ': '"));
  for (const std::string line : {"seed 1", "seed:1", "seed = 1", "seed:\u00A01"}) {
    for (const std::string rest : {"\nmodel: {g: h}\n", "  # c: d\n\n# e: f\nmodel: {g: h}\n"}) {
      EXPECT_THAT(message_of("name: a\n" + line + rest),
                  HasSubstr("a.yaml:2: a line without ': ', where a key is"))
          << line << rest;
    }
  }
  EXPECT_THAT(message_of("a: 1\n- b\n"), HasSubstr("a.yaml:2: this line is indented like"));
  EXPECT_THAT(message_of("a: 1\nb: c: d\n"), HasSubstr("a.yaml:2: a ':' that cannot begin"));
  EXPECT_THAT(message_of("a:\n  b: 1\n c: 2\n"), HasSubstr("a.yaml:3: this line is indented"));
  EXPECT_THAT(message_of("a: @b\n"), HasSubstr("quote the text"));
}

TEST(YamlTreeTest, RefusesBombs) {
  EXPECT_THAT(message_of(std::string(100000, '[')), HasSubstr("too many open brackets"));
  std::string deep;
  for (int i = 0; i < 40; ++i) {
    deep += std::string(static_cast<size_t>(i), ' ') + "a:\n";
  }
  EXPECT_THAT(message_of(deep + std::string(40, ' ') + "b: 1\n"), HasSubstr("nested deeper"));
  std::string dashes;
  for (int i = 0; i < 5000; ++i) {
    dashes += "- ";
  }
  EXPECT_THAT(message_of(dashes + "1\n"), HasSubstr("a.yaml"));
  std::string many = "a: [";
  for (int i = 0; i < 20000; ++i) {
    many += "1,";
  }
  EXPECT_THAT(message_of(many + "1]\n"), HasSubstr("more than 10000 values"));
  std::string large(size_t{5} << 20U, 'x');
  large.insert(0, "a: ");
  EXPECT_THAT(message_of(large), HasSubstr("larger than"));
}

TEST(YamlTreeTest, SetsAtDottedPaths) {
  const auto root =
      parse_yaml("a: 1\nlist: [{name: x, n: 1}, {name: y, n: 2}]\nnothing:\n", "a.yaml", true);
  const auto set = [&](const std::string& path, const std::string& value) {
    set_at_path(*root, path, parse_yaml(value, "--set", false), "--set " + path);
  };
  set("list.1.n", "5");
  set("list.x.n", "[7]");
  set("new.inner", "text");
  set("nothing.here", "true");
  EXPECT_EQ(write_yaml_flow(*root),
            "{a: 1, list: [{name: x, n: [7]}, {name: y, n: 5}], nothing: {here: true}, new: "
            "{inner: text}}");
}

TEST(YamlTreeTest, ItemsWithoutANameGoByTheirType) {
  const auto root = parse_yaml(
      "list: [{type: a}, {type: b}, {type: b}, {name: c, type: a}, {type: d, name: b}, {n: 1}]\n",
      "a.yaml", true);
  const auto set = [&](const std::string& path) {
    set_at_path(*root, path, YamlTree::scalar("5", false), "--set");
  };
  set("list.a.n");
  set("list.b.n");
  EXPECT_EQ(write_yaml_flow(*root),
            "{list: [{type: a, n: 5}, {type: b}, {type: b}, {name: c, type: a}, {type: d, name: b, "
            "n: 5}, {n: 1}]}");
  const auto twice = parse_yaml("list: [{type: b}, {type: b}, {n: 1}]\n", "a.yaml", true);
  EXPECT_THAT([&] { set_at_path(*twice, "list.b.n", YamlTree::scalar("1", false), "--set"); },
              testing::ThrowsMessage<ConfigError>(
                  HasSubstr("'b' names no item of 'list'; it has 3 items: b, b, 2")));
}

TEST(YamlTreeTest, RefusesPathsThatLeadNowhere) {
  const auto root = parse_yaml("a: 1\nlist: [{name: x}, {name: y}]\n", "a.yaml", true);
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"list.2.n", "--set: '2' names no item of 'list'; it has 2 items: x, y"},
      {"list.z.n", "'z' names no item of 'list'"},
      {"a.b", "'a' is a value, so 'b' is not in it"},
      {"a..b", "not a dotted path"},
      {"", "not a dotted path"},
      {"list.", "not a dotted path"},
  };
  for (const auto& [path, expected] : cases) {
    try {
      set_at_path(*root, path, YamlTree::scalar("1", false), "--set");
      ADD_FAILURE() << path;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr(expected));
    }
  }
}

TEST(YamlWriterTest, WritesWhatParsesBack) {
  const std::string text =
      "a: 1\n"
      "\"odd key: x\": \"line\\nbreak \\\"quoted\\\" \\\\ \\t \\x07 ü\"\n"
      "list:\n"
      "  - - 1\n"
      "    - 2\n"
      "  - x: true\n"
      "    y: null\n"
      "  - []\n"
      "  - {}\n"
      "  - \"8\"\n"
      "  - \"true\"\n"
      "  - \"\"\n"
      "number: -1e-05\n";
  const auto tree = parse_yaml(text, "a.yaml", true);
  EXPECT_EQ(write_yaml(*tree), text);
  EXPECT_EQ(write_yaml(*parse_yaml(write_yaml(*tree), "b", false)), text);
  const auto flow = write_yaml_flow(*tree);
  EXPECT_EQ(write_yaml(*parse_yaml(flow, "b", false)), text) << flow;
}

}  // namespace
}  // namespace specdec
