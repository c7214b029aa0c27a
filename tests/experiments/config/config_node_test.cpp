#include "experiments/config/config_node.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "experiments/config/yaml_writer.h"

namespace specdec {
namespace {

using testing::HasSubstr;

ConfigNode node_of(const std::string& text) {
  return {parse_yaml(text, "a.yaml", true), std::make_shared<ConfigErrors>()};
}

std::string mistakes(const ConfigNode& node) {
  try {
    node.errors()->throw_if_any();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(ConfigNodeTest, ReadsEveryType) {
  const auto node = node_of(
      "i: -3\nu: 18446744073709551615\nd: 2\ne: 1e-3\nt: true\ns: some text\nq: \"8\"\n"
      "list: [1, 2]\nwords: [a, \"1\"]\n");
  EXPECT_EQ(node.get<int64_t>("i", 0), -3);
  EXPECT_EQ(node.get<uint64_t>("u", 0), 18446744073709551615ULL);
  EXPECT_EQ(node.get<double>("d", 0), 2.0);
  EXPECT_EQ(node.get<double>("e", 0), 1e-3);
  EXPECT_TRUE(node.get<bool>("t", false));
  EXPECT_EQ(node.get<std::string>("s", ""), "some text");
  EXPECT_EQ(node.get<std::string>("q", ""), "8");
  EXPECT_EQ(node.get<int64_t>("missing", 7), 7);
  EXPECT_EQ(node.find<int64_t>("missing"), std::nullopt);
  EXPECT_EQ(node.find<int64_t>("i"), -3);
  EXPECT_EQ(node.get_list<int64_t>("list", {}), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(node.get_list<std::string>("words", {}), (std::vector<std::string>{"a", "1"}));
  node.refuse_unknown_keys();
  EXPECT_EQ(mistakes(node), "");
}

struct Mistake {
  std::string value;
  std::string type;  // i, u, d, t, s, l
  std::string expected;
};

TEST(ConfigNodeTest, RefusesValuesOfAnotherType) {
  const std::vector<Mistake> cases = {
      {"1.5", "i", "a.yaml:2: x: expected a whole number, found '1.5'"},
      {"\"1\"", "i", "found the text \"1\""},
      {"abc", "i", "found 'abc'"},
      {"0x10", "i", "found '0x10'"},
      {"99999999999999999999", "i", "99999999999999999999 is too large"},
      {"[1]", "i", "found a list"},
      {"{a: 1}", "i", "found a map"},
      {"", "i", "found nothing"},
      {"101", "i", "101 is not between -10 and 100"},
      {"-1", "u", "expected a whole number of at least 0"},
      {".nan", "d", "expected a finite number"},
      {"nan", "d", "expected a finite number"},
      {".inf", "d", "expected a finite number"},
      {"1e999", "d", "expected a finite number"},
      {"1,5", "d", "expected a finite number"},
      {"yes", "t", "expected true or false, found 'yes'"},
      {"\"true\"", "t", "expected true or false"},
      {"1", "t", "expected true or false"},
      {"[a]", "s", "expected text, found a list"},
      {"null", "s", "expected text, found nothing"},
      {"3", "l", "expected a list, found '3'"},
      {"[1, b]", "l", "a.yaml:2: x[1]: expected a whole number, found 'b'"},
  };
  for (const auto& [value, type, expected] : cases) {
    const auto node = node_of("# line one\nx: " + value + "\n");
    switch (type[0]) {
      case 'i':
        (void)node.get<int64_t>("x", 1, {-10, 100});
        break;
      case 'u':
        (void)node.get<uint64_t>("x", 1);
        break;
      case 'd':
        (void)node.get<double>("x", 1);
        break;
      case 't':
        (void)node.get<bool>("x", true);
        break;
      case 's':
        (void)node.get<std::string>("x", "");
        break;
      default:
        (void)node.get_list<int64_t>("x", {});
    }
    EXPECT_THAT(mistakes(node), HasSubstr(expected)) << value << " as " << type;
  }
}

TEST(ConfigNodeTest, NullIsAbsentToWhoeverAsks) {
  const auto node = node_of("asked: null\nother: null\n");
  EXPECT_FALSE(node.has("asked"));
  node.refuse_unknown_keys();
  EXPECT_EQ(mistakes(node), "a.yaml:2: other: unknown key; known: asked");
}

TEST(ConfigNodeTest, NamesTheNearestKnownKey) {
  const auto node = node_of("max_new_token: 3\nmodel:\n  wieghts: x\nzzzzzzzzzzzz: 1\n");
  (void)node.get<int64_t>("max_new_tokens", 1);
  (void)node.child("model").get<std::string>("weights", "");
  node.refuse_unknown_keys();
  const auto text = mistakes(node);
  EXPECT_THAT(text, HasSubstr("a.yaml:1: max_new_token: unknown key; did you mean "
                              "'max_new_tokens'?"));
  EXPECT_THAT(text, HasSubstr("a.yaml:3: model.wieghts: unknown key; did you mean 'weights'?"));
  EXPECT_THAT(text, HasSubstr("a.yaml:4: zzzzzzzzzzzz: unknown key; known: max_new_tokens, model"));
}

// Reading can stop at a mistake before it comes to a map, whose keys are then not known.
TEST(ConfigNodeTest, KeysOfAMapThatWasNotReadAreNoMistakes) {
  for (const bool other_mistake : {false, true}) {
    const auto node = node_of("model: x\ndrafter:\n  file: y\n");
    const auto drafter = node.child("drafter");
    if (other_mistake) {
      (void)node.child("model");
    } else {
      (void)node.get<std::string>("model", "");
    }
    node.refuse_unknown_keys();
    EXPECT_EQ(mistakes(node), other_mistake ? "a.yaml:1: model: expected a map, found 'x'"
                                            : "a.yaml:3: drafter.file: unknown key; known: ");
  }
}

TEST(ConfigNodeTest, CollectsAllMistakesInTheOrderOfTheFile) {
  const auto node = node_of("a: x\nb: y\nc: z\n");
  (void)node.get<int64_t>("c", 1);
  (void)node.get<bool>("a", true);
  (void)node.require<int64_t>("missing");
  const auto text = mistakes(node);
  EXPECT_LT(text.find("a.yaml:1: a:"), text.find("a.yaml:3: c:"));
  EXPECT_THAT(text, HasSubstr("the key 'missing' is missing; give a whole number"));
}

TEST(ConfigNodeTest, ReadsChildren) {
  const auto node = node_of("list:\n  - {n: 1}\n  - {n: two}\n  - 3\nmap: {x: 1}\nscalar: 5\n");
  const auto children = node.children("list");
  ASSERT_EQ(children.size(), 2U);
  EXPECT_EQ(children[0].get<int64_t>("n", 0), 1);
  EXPECT_EQ(children[1].get<int64_t>("n", 0), 0);
  EXPECT_EQ(children[1].path(), "list[1]");
  EXPECT_EQ(node.child("map").get<int64_t>("x", 0), 1);
  (void)node.child("scalar");
  (void)node.child("gone", false);
  const auto text = mistakes(node);
  EXPECT_THAT(text, HasSubstr("a.yaml:3: list[1].n: expected a whole number"));
  EXPECT_THAT(text, HasSubstr("a.yaml:4: list[2]: expected a map, found '3'"));
  EXPECT_THAT(text, HasSubstr("a.yaml:6: scalar: expected a map"));
  EXPECT_THAT(text, Not(HasSubstr("gone")));
}

TEST(ConfigNodeTest, AComponentMayBeTheNameOfItsType) {
  const auto node = node_of("a: paged\nb: {type: x}\nc: [1]\nd:\n");
  EXPECT_FALSE(node.is_map("a"));
  EXPECT_EQ(node.component("a").require_type({"paged"}), "paged");
  EXPECT_TRUE(node.is_map("a")) << "from now on";
  EXPECT_EQ(node.child("a").require_type({"paged"}), "paged") << "the same node";
  EXPECT_EQ(node.component("b").require_type({"x"}), "x");
  EXPECT_EQ(node.component("d", "usual").require_type({"usual"}), "usual");
  EXPECT_EQ(node.component("gone", "usual").require_type({"usual"}), "usual");
  EXPECT_EQ(write_yaml_flow(*node.component("a").resolved()), "{type: paged}");
  EXPECT_EQ(write_yaml_flow(*node.component("a", "usual").resolved()), "{type: paged}");
  (void)node.component("c");
  (void)node.component("missing");
  const auto text = mistakes(node);
  EXPECT_THAT(text, HasSubstr("a.yaml:3: c: expected a map, found a list"));
  EXPECT_THAT(text, HasSubstr("the key 'missing' is missing; give a map"));
}

TEST(ConfigNodeTest, ComponentsOfAListMayBeNames) {
  const auto node = node_of("list:\n  - suffix\n  - {type: ngram, n: 3}\n  - [x]\nname: suffix\n");
  const auto members = node.components("list");
  ASSERT_EQ(members.size(), 2U);
  EXPECT_EQ(members[0].require_type({"suffix"}), "suffix");
  EXPECT_EQ(members[0].place(), "a.yaml:2");
  EXPECT_EQ(members[1].require_type({"ngram"}), "ngram");
  EXPECT_EQ(members[1].get<int64_t>("n", 0), 3);
  EXPECT_EQ(write_yaml_flow(*node.resolved()), "{list: [{type: suffix}, {type: ngram, n: 3}]}");
  EXPECT_TRUE(node.components("name").empty());
  const auto text = mistakes(node);
  EXPECT_THAT(text, HasSubstr("a.yaml:4: list[2]: expected a map, found a list"));
  EXPECT_THAT(text, HasSubstr("a.yaml:5: name: expected a list, found 'suffix'"));
}

TEST(ConfigNodeTest, KnowsNamesFromNumbers) {
  const auto node = node_of(
      "name: adaptive\nquoted: \"adaptive\"\nnumber: 4\ntext: \"4\"\nflag: true\nmap: {x: 1}\n"
      "nothing:\n");
  EXPECT_TRUE(node.is_name("name"));
  EXPECT_TRUE(node.is_name("quoted"));
  for (const char* key : {"number", "text", "flag", "map", "nothing", "gone"}) {
    EXPECT_FALSE(node.is_name(key)) << key;
  }
}

TEST(ConfigNodeTest, ExplainsNamesBesideTypes) {
  const auto node = node_of("a: {type: q4}\n");
  EXPECT_EQ(node.child("a").require_type({"paged"}, "", {{"q4", "q4 is a format"}}), "");
  EXPECT_EQ(mistakes(node), "a.yaml:1: a: q4 is a format");
}

TEST(ConfigNodeTest, ResolvesWithDefaults) {
  const auto node = node_of("b: {y: 2}\nlist: [{n: 1}]\n");
  (void)node.get<int64_t>("a", 7);
  (void)node.child("b").get<int64_t>("y", 0);
  (void)node.child("b").get<std::string>("z", "some text");
  (void)node.component("c", "fixed").get<std::string>("type", "");
  (void)node.children("list")[0].get<double>("n", 0);
  EXPECT_EQ(write_yaml_flow(*node.resolved()),
            "{a: 7, b: {y: 2, z: \"some text\"}, c: {type: fixed}, list: [{n: 1}]}");
}

TEST(ConfigNodeTest, LooksForPathsInBothFolders) {
  const auto folder = std::filesystem::temp_directory_path() / "specdec_config_node_test";
  std::filesystem::create_directories(folder / "beside");
  const ConfigNode node(parse_yaml("a: beside\nb: nowhere\nc: /no/such\n", "a.yaml", true),
                        std::make_shared<ConfigErrors>(), folder);
  EXPECT_EQ(node.require_path("a"), folder / "beside");
  EXPECT_EQ(node.require_path("b"), "");
  (void)node.require_path("c");
  (void)node.require_path("d");
  const auto text = mistakes(node);
  EXPECT_THAT(text, HasSubstr("neither " + (std::filesystem::current_path() / "nowhere").string()));
  EXPECT_THAT(text, HasSubstr(" nor " + (folder / "nowhere").string()));
  EXPECT_THAT(text, HasSubstr("'/no/such' does not exist"));
  EXPECT_THAT(text, HasSubstr("the key 'd' is missing"));
  std::filesystem::remove_all(folder);
}

constexpr NamedValue<double> kSpeeds[] = {{"slow", 0.5}, {"false", 1.0}, {"fast", 2.0}};

TEST(ConfigNodeTest, ChoosesValuesByTheirNames) {
  const auto node = node_of("a: slow\nb: \"fast\"\nc: false\n");
  EXPECT_EQ(node.choose("a", kSpeeds, 2.0), 0.5);
  EXPECT_EQ(node.choose("b", kSpeeds, 1.0), 2.0);
  EXPECT_EQ(node.choose("c", kSpeeds, 2.0), 1.0) << "a bare false is a name, too";
  EXPECT_EQ(node.choose("missing", kSpeeds, 2.0), 2.0);
  node.refuse_unknown_keys();
  EXPECT_EQ(mistakes(node), "");
  EXPECT_EQ(write_yaml_flow(*node.resolved()), "{a: slow, b: fast, c: \"false\", missing: fast}");
}

TEST(ConfigNodeTest, RefusesNamesThatNoValueHas) {
  const auto node = node_of("a: fastt\nb: quick\nc: [slow]\nd: 1\n");
  for (const char* key : {"a", "b", "c", "d"}) {
    EXPECT_EQ(node.choose(key, kSpeeds, 2.0), 2.0);
  }
  EXPECT_EQ(mistakes(node),
            "a.yaml:1: a: unknown value 'fastt'; did you mean 'fast'? Known: slow, false, fast\n"
            "a.yaml:2: b: unknown value 'quick'; known: slow, false, fast\n"
            "a.yaml:3: c: expected text, found a list\n"
            "a.yaml:4: d: unknown value '1'; known: slow, false, fast");
  EXPECT_THROW(node.choose("e", kSpeeds, 3.0), InternalError) << "a default without a name";
}

TEST(ConfigNodeTest, JoinsAlternatives) {
  EXPECT_EQ(join_alternatives({}), "");
  EXPECT_EQ(join_alternatives({"lru"}), "lru");
  EXPECT_EQ(join_alternatives({"lru", "lfu"}), "lru or lfu");
  EXPECT_EQ(join_alternatives({"false", "true", "never"}), "false, true or never");
}

TEST(ConfigNodeTest, NearestNameIgnoresStrangers) {
  EXPECT_EQ(nearest_name("eagel", {"eagle", "draft_model"}), "eagle");
  EXPECT_EQ(nearest_name("draft_modle", {"eagle", "draft_model"}), "draft_model");
  EXPECT_EQ(nearest_name("something_else", {"eagle", "draft_model"}), "");
  EXPECT_EQ(nearest_name("fp8", {"q8", "fp8_e4m3"}), "fp8_e4m3");
  EXPECT_EQ(nearest_name("PAGED", {"tiered", "paged"}), "paged");
}

}  // namespace
}  // namespace specdec
