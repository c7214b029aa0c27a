// Long texts of schemas with arrays. Takes minutes: only with SPECDEC_LONG_WALKS=1.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "core/error.h"
#include "grammar/compiled_grammar.h"
#include "grammar/schema/json_value.h"
#include "tests/support/grammar_vocabularies.h"
#include "tests/support/grammar_walk.h"
#include "tests/support/schema_store.h"

namespace specdec {
namespace {

/// Walks a schema that has arrays; false for others, and those that are refused.
bool walk_arrays(const std::string& schema, int seed) {
  if (schema.find("\"array\"") == std::string::npos) {
    return false;
  }
  std::shared_ptr<const CompiledGrammar> grammar;
  try {
    grammar =
        compile_json_schema(empty_vocabulary(), schema, json_options(false, "compact"), {}, true);
  } catch (const GrammarError&) {
    return false;
  }
  GrammarWalk walk(*grammar, schema, static_cast<uint32_t>(seed));
  for (size_t wild = 100; wild <= 500; wild += 100) {
    const auto whole = walk.text(wild);
    EXPECT_TRUE(whole || walk.lost()) << schema << " is dead after " << walk.begun();
  }
  return true;
}

std::vector<std::string> lines_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(line);
  }
  return lines;
}

/// Walks through the schemas in tests/data and those that are found: ../shared/schemas,
/// SchemaStore.
TEST(ArrayWalksTest, NoTextOf500BytesIsADeadEnd) {
  if (std::getenv("SPECDEC_LONG_WALKS") == nullptr) {
    GTEST_SKIP() << "SPECDEC_LONG_WALKS is not set";
  }
  std::vector<std::string> lines = grammar_data("jsonschemabench_subset.jsonl.gz");
  for (const auto& more :
       {grammar_data("samples.jsonl"),
        lines_of(SPECDEC_SOURCE_DIR "/../shared/schemas/jsonschemabench_dev.jsonl")}) {
    lines.insert(lines.end(), more.begin(), more.end());
  }
  int schemas = 0;
  for (const std::string& line : lines) {
    const JsonValue parsed = parse_json(line, "");
    const JsonValue* schema = parsed.find("schema");
    schemas += schema != nullptr && walk_arrays(to_json(*schema), schemas) ? 1 : 0;
  }
  EXPECT_GT(schemas, 20);
  if (const auto folder = schema_store_folder()) {
    for (const StoredSchema& stored : read_schema_store(*folder)) {
      schemas += walk_arrays(stored.schema, schemas) ? 1 : 0;
    }
  }
  std::cout << schemas << " schemas with arrays\n";
}

}  // namespace
}  // namespace specdec
