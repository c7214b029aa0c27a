// Arrays of different items, of several kinds: every beginning of a text can become one.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "grammar/compiled_grammar.h"
#include "tests/support/grammar_vocabularies.h"

namespace specdec {
namespace {

/// Arrays of different items of several kinds, few of each.
class RandomKinds {
 public:
  explicit RandomKinds(uint32_t seed) : random_(seed) {}

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

/// A text that begins a text of the grammar but is none, and cannot become one; found among the
/// first so many states.
std::optional<std::string> find_dead_end(const CompiledGrammar& grammar, size_t most) {
  std::vector<std::pair<StateId, std::string>> states = {{grammar.start(), ""}};
  std::map<StateId, size_t> known = {{grammar.start(), 0}};
  std::vector<std::vector<size_t>> before(1);
  std::vector<size_t> ending;
  for (size_t at = 0; at < states.size(); ++at) {  // grows meanwhile
    if (at >= most || grammar.is_complete(states[at].first)) {
      ending.push_back(at);
    }
    for (const char byte : std::string(at < most ? R"({}[],:"-.0125abpqxynultrefs)" : "")) {
      const StateId next = grammar.next(states[at].first, std::string_view(&byte, 1));
      if (next == Automaton::kDead) {
        continue;
      }
      const auto [place, fresh] = known.try_emplace(next, states.size());
      if (fresh) {
        states.emplace_back(next, states[at].second + byte);
        before.emplace_back();
      }
      before[place->second].push_back(at);
    }
  }
  std::vector<bool> ends(states.size());
  while (!ending.empty()) {
    const size_t at = ending.back();
    ending.pop_back();
    if (!ends[at]) {
      ends[at] = true;
      ending.insert(ending.end(), before[at].begin(), before[at].end());
    }
  }
  const auto dead = std::ranges::find(ends, false);
  return dead == ends.end() ? std::nullopt : std::optional(states[dead - ends.begin()].second);
}

TEST(UniqueKindsTest, NoDeadEnds) {
  int alive = 0;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    const std::string schema = RandomKinds(seed).schema();
    const auto grammar = compile_json_schema(empty_vocabulary(), schema,
                                             json_options(seed % 2 == 0, "compact"), {}, true);
    if (grammar->start() != Automaton::kDead) {
      ++alive;
      EXPECT_EQ(find_dead_end(*grammar, 400), std::nullopt) << schema << " seed " << seed;
    }
  }
  EXPECT_GT(alive, 150);
}

}  // namespace
}  // namespace specdec
