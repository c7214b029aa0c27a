// SchemaStore's schemas with their examples, where a copy of its repository is found: only with
// SPECDEC_SCHEMASTORE=folder.
#include "tests/support/schema_store.h"

#include <gtest/gtest.h>

#include <iostream>

#include "core/error.h"
#include "grammar/compiled_grammar.h"
#include "tests/support/grammar_vocabularies.h"
#include "tests/support/grammar_walk.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

struct StoreOutcome {
  int schemas = 0, examples = 0;
  std::vector<std::string> refused;  ///< schemas, with the reason
  std::vector<std::string> wrong;    ///< examples that are not decided as they should be
};

StoreOutcome check_store(const std::filesystem::path& folder) {
  StoreOutcome outcome;
  for (const StoredSchema& stored : read_schema_store(folder)) {
    ++outcome.schemas;
    std::shared_ptr<const CompiledGrammar> grammar;
    try {
      grammar = compile_json_schema(empty_vocabulary(), stored.schema,
                                    json_options(false, "compact"), {}, true);
    } catch (const GrammarError& error) {
      outcome.refused.push_back(stored.name + ": " + error.what());
      continue;
    }
    for (const bool valid : {true, false}) {
      for (const auto& [file, text] : valid ? stored.valid : stored.invalid) {
        ++outcome.examples;
        if (accepts(*grammar, text) != valid) {
          outcome.wrong.push_back(file);
        }
      }
    }
  }
  return outcome;
}

TEST(SchemaStoreTest, ExamplesAreDecidedAsTheyShouldBe) {
  const auto folder = schema_store_folder();
  if (!folder) {
    GTEST_SKIP() << "set SPECDEC_SCHEMASTORE to a copy of SchemaStore's repository";
  }
  const StoreOutcome outcome = check_store(*folder);
  std::cout << outcome.schemas << " schemas, " << outcome.refused.size() << " refused, "
            << outcome.examples << " examples\n";
  for (const std::string& reason : outcome.refused) {
    std::cout << reason << "\n";
  }
  EXPECT_GT(outcome.schemas, 0);
  EXPECT_LE(outcome.refused.size() * 10, static_cast<size_t>(outcome.schemas));
  EXPECT_EQ(outcome.wrong, std::vector<std::string>());
}

/// The check itself, on a store of two schemas.
TEST(SchemaStoreTest, WrongExamplesAreFound) {
  const TemporaryFolder folder;
  for (const char* place : {"src/schemas/json", "src/test/a", "src/negative_test/a"}) {
    std::filesystem::create_directories(folder.path() / place);
  }
  folder.write("src/schemas/json/a.json", R"({"type": "array", "items": {"type": "integer"}})");
  folder.write("src/schemas/json/b.json", R"({"type": 7})");
  folder.write("src/test/a/right.json", "[1, 2]\n");
  folder.write("src/test/a/wrong.json", R"(["a"])");
  folder.write("src/test/a/comment.json", "[1] // no JSON");
  folder.write("src/negative_test/a/right.json", R"({})");
  folder.write("src/negative_test/a/wrong.json", "[]");
  const StoreOutcome outcome = check_store(folder.path());
  EXPECT_EQ(outcome.schemas, 2);
  EXPECT_EQ(outcome.examples, 4);
  ASSERT_EQ(outcome.refused.size(), 1U);
  EXPECT_TRUE(outcome.refused[0].starts_with("b: "));
  EXPECT_EQ(outcome.wrong, std::vector<std::string>(
                               {(folder.path() / "src/test/a/wrong.json").string(),
                                (folder.path() / "src/negative_test/a/wrong.json").string()}));
}

}  // namespace
}  // namespace specdec
