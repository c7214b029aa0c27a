// Long texts of schemas with arrays. Takes minutes: only with SPECDEC_LONG_WALKS=1.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "core/error.h"
#include "grammar/compiled_grammar.h"
#include "grammar/schema/json_value.h"
#include "tests/support/grammar_vocabularies.h"
#include "tests/support/grammar_walk.h"

namespace specdec {
namespace {

TEST(ArrayWalksTest, NoTextOf500BytesIsADeadEnd) {
  if (std::getenv("SPECDEC_LONG_WALKS") == nullptr) {
    GTEST_SKIP() << "SPECDEC_LONG_WALKS is not set";
  }
  int schemas = 0;
  for (const char* file : {"jsonschemabench_subset.jsonl", "samples.jsonl"}) {
    for (const std::string& line : grammar_data(file)) {
      const JsonValue parsed = parse_json(line, file);
      const JsonValue* schema = parsed.find("schema");
      const std::string text = schema == nullptr ? "" : to_json(*schema);
      if (text.find("\"array\"") == std::string::npos) {
        continue;
      }
      ++schemas;
      const auto grammar =
          compile_json_schema(empty_vocabulary(), text, json_options(false, "compact"), {}, true);
      GrammarWalk walk(*grammar, text, static_cast<uint32_t>(schemas));
      for (size_t wild = 100; wild <= 500; wild += 100) {
        const auto whole = walk.text(wild);
        ASSERT_TRUE(whole || walk.lost()) << text << " is dead after " << walk.begun();
      }
    }
  }
  EXPECT_GT(schemas, 20);
}

}  // namespace
}  // namespace specdec
