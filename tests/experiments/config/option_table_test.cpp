#include "experiments/config/option_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/support/error_message.h"

namespace specdec {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Sizes {
  int64_t nodes = 16;
  double margin = 0.25;
};

/// An option of every type.
struct TestOptions : Sizes {
  bool persist = true;
  std::optional<bool> sample = {};
  std::optional<int64_t> limit = {};
  std::vector<double> acceptance = {0.5, 0.25};
  double share = 0.5;
  int64_t layers = 0;
  std::filesystem::path weights;
  char order = 'b';
};

constexpr NamedValue<char> kTestOrders[] = {{"depth", 'd'}, {"breadth", 'b'}, {"best", 'p'}};

OptionTable<TestOptions> test_options() {
  return OptionTable<TestOptions>()
      .add("nodes", &TestOptions::nodes, "drafted tokens", {1, 64})
      .add("margin", &TestOptions::margin, "of speed")
      .add("persist", &TestOptions::persist, "outlives a request")
      .renamed("keep", "persist")
      .add("sample", &TestOptions::sample, "draws", {}, "where the shape allows it")
      .add("limit", &TestOptions::limit, "of nodes", {1, 9})
      .add("acceptance", &TestOptions::acceptance, "by rank", {0.0, 1.0})
      .add_share("share", &TestOptions::share, "of the mass")
      .require("layers", &TestOptions::layers, "of the target", {1})
      .require("weights", &TestOptions::weights, "a folder")
      .add_choice("order", &TestOptions::order, "of the nodes", kTestOrders)
      .describe({{"tree", "none", "{type: ...}", "a shape"}});
}

struct TableReading {
  TestOptions options;
  std::string mistakes;
};

TableReading read_table(const std::string& yaml) {
  const auto errors = std::make_shared<ConfigErrors>();
  const ConfigNode node(parse_yaml(yaml, "c.yaml", false), errors, SPECDEC_SOURCE_DIR);
  TableReading reading{test_options().read(node), ""};
  node.ignore("tree");
  node.refuse_unknown_keys();
  if (!errors->empty()) {
    reading.mistakes = error_message<ConfigError>([&] { errors->throw_if_any(); });
  }
  return reading;
}

TEST(OptionTableTest, ReadsEveryTypeAndKeepsDefaults) {
  const auto all = read_table(
      "{nodes: 8, margin: 2, persist: false, sample: true, acceptance: [1, 0], share: 1, layers: "
      "3, "
      "weights: models, order: best}");
  EXPECT_EQ(all.mistakes, "");
  EXPECT_EQ(all.options.nodes, 8);
  EXPECT_EQ(all.options.margin, 2.0);
  EXPECT_FALSE(all.options.persist);
  EXPECT_EQ(all.options.sample, true);
  EXPECT_THAT(all.options.acceptance, ElementsAre(1.0, 0.0));
  EXPECT_EQ(all.options.share, 1.0);
  EXPECT_EQ(all.options.layers, 3);
  EXPECT_EQ(all.options.weights.filename(), "models");
  EXPECT_EQ(all.options.order, 'p');

  const auto few = read_table("{layers: 1, weights: models}");
  EXPECT_EQ(few.mistakes, "");
  EXPECT_EQ(few.options.nodes, 16);
  EXPECT_EQ(few.options.margin, 0.25);
  EXPECT_TRUE(few.options.persist);
  EXPECT_EQ(few.options.sample, std::nullopt);
  EXPECT_EQ(few.options.limit, std::nullopt);
  EXPECT_THAT(few.options.acceptance, ElementsAre(0.5, 0.25));
  EXPECT_EQ(few.options.share, 0.5);
  EXPECT_EQ(few.options.order, 'b');
}

TEST(OptionTableTest, NotesAllMistakesAndKeepsTheDefaults) {
  const auto wrong =
      read_table("{nodes: 65, keep: true, acceptance: [2], share: 0, node: 1, order: wide}");
  for (const char* message :
       {"nodes: 65 is not between 1 and 64", "keep: is now called 'persist'",
        "acceptance[0]: 2 is not between 0 and 1", "share: must be above 0",
        "the key 'layers' is missing",
        "the key 'weights' is missing; give the folder of a model or head", "did you mean 'nodes'",
        "order: unknown value 'wide'; known: depth, breadth, best"}) {
    EXPECT_THAT(wrong.mistakes, HasSubstr(message));
  }
  EXPECT_EQ(wrong.options.nodes, 16);
  EXPECT_EQ(wrong.options.share, 0.5);
  EXPECT_EQ(wrong.options.order, 'b');
}

TEST(OptionTableTest, DescribesWhatItReads) {
  std::vector<std::string> lines;
  for (const OptionHelp& help : test_options().help()) {
    lines.push_back(help.name + " | " + help.fallback + " | " + help.values + " | " + help.meaning);
  }
  EXPECT_THAT(
      lines,
      ElementsAre("nodes | 16 | 1 to 64 | drafted tokens", "margin | 0.25 |  | of speed",
                  "persist | true | true or false | outlives a request",
                  "sample | where the shape allows it | true or false | draws",
                  "limit | none | 1 to 9 | of nodes", "acceptance | [0.5, 0.25] | 0 to 1 | by rank",
                  "share | 0.5 | above 0, to 1 | of the mass",
                  "layers |  | 1 or more | of the target", "weights |  |  | a folder",
                  "order | breadth | depth, breadth or best | of the nodes",
                  "tree | none | {type: ...} | a shape"));
}

}  // namespace
}  // namespace specdec
