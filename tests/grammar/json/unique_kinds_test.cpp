// Arrays of different items, of several kinds: every beginning of a text can become one.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <string>
#include <vector>

#include "grammar/compiled_grammar.h"
#include "tests/grammar/dead_end.h"
#include "tests/support/grammar_vocabularies.h"

namespace specdec {
namespace {

/// Arrays of different items of several kinds, few of each.
class RandomUniqueKinds {
 public:
  explicit RandomUniqueKinds(uint32_t seed) : random_(seed) {}

  std::string schema() {
    const std::string list = array(2);
    return below(3) > 0 ? list
                        : R"({"type":"object","properties":{"p":)" + list + R"(,"q":)" + item(1) +
                              R"(},"required":["p"],"additionalProperties":false})";
  }

 private:
  uint32_t below(uint32_t count) { return static_cast<uint32_t>(random_() % count); }

  std::string array(int depth) {
    std::string text = R"({"type":"array","uniqueItems":true,"items":)" + item(depth);
    text += below(3) == 0 ? R"(,"prefixItems":[)" + item(1) + "," + item(1) + "]" : "";
    text += below(4) == 0 ? R"(,"contains":)" + item(1) : "";
    return text + fmt::format(R"(,"minItems":{},"maxItems":3}})", below(4));
  }

  std::string item(int depth) {
    const uint32_t kind = below(depth > 1 ? 6 : 4);
    if (kind < 2) {
      return R"({"enum":[)" + several(2 + below(3), [&] { return value(); }) + "]}";
    }
    if (kind < 4) {
      return fmt::format(R"({{"{}":[{}]}})", kind == 2 ? "anyOf" : "oneOf",
                         several(2 + below(2), [&] { return subschema(); }));
    }
    const std::string part = item(depth - 1);
    return kind == 4 ? R"({"anyOf":[{"const":"x"},)" + array(depth - 1) + "]}"
                     : R"({"type":"object","properties":{"a":)" + part +
                           R"(,"b":{"type":"null"}},"additionalProperties":false})";
  }

  template <class Make>
  std::string several(uint32_t count, const Make& make) {
    std::string text = make();
    for (uint32_t i = 1; i < count; ++i) {
      text += "," + make();
    }
    return text;
  }

  std::string subschema() {
    static const std::vector<std::string> kSchemas = {
        R"({"type":"null"})", R"({"type":"boolean"})",
        R"({"type":"object","properties":{"a":{"type":"boolean"}},"required":["a"],"additionalProperties":false})",
        R"({"type":"array","items":{"type":"boolean"},"maxItems":1})"};
    const uint32_t which = below(static_cast<uint32_t>(kSchemas.size()) + 2);
    return which < kSchemas.size() ? kSchemas[which] : R"({"const":)" + value() + "}";
  }

  std::string value() {
    static const std::vector<std::string> kValues = {"null",
                                                     "true",
                                                     "1",
                                                     "12",
                                                     "0.5",
                                                     R"("x")",
                                                     R"("xy")",
                                                     "{}",
                                                     R"({"a":1})",
                                                     R"({"a":true})",
                                                     "[]",
                                                     R"({"a":1,"b":"x"})",
                                                     "[1]",
                                                     "[\"x\"]",
                                                     R"({"b":{"a":1}})"};
    return kValues[below(static_cast<uint32_t>(kValues.size()))];
  }

  std::mt19937 random_;
};

TEST(UniqueKindsTest, NoDeadEnds) {
  int alive = 0;
  for (uint32_t seed = 0; seed < 70; ++seed) {
    const std::string schema = RandomUniqueKinds(seed).schema();
    const auto grammar = compile_json_schema(empty_vocabulary(), schema,
                                             json_options(seed % 2 == 0, "compact"), {}, true);
    if (grammar->start() != Automaton::kDead) {
      ++alive;
      EXPECT_EQ(find_dead_end(*grammar, 400), std::nullopt) << schema << " seed " << seed;
    }
  }
  EXPECT_GT(alive, 50);
}

}  // namespace
}  // namespace specdec
