// Public test suites, byte by byte: the official one of JSON Schema, and a part of JSONSchemaBench.
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "core/error.h"
#include "grammar/compiled_grammar.h"
#include "grammar/schema/json_value.h"
#include "tests/support/grammar_vocabularies.h"
#include "tests/support/grammar_walk.h"

namespace specdec {
namespace {

using Names = std::set<std::string>;

struct Outcome {
  int groups = 0;
  int right = 0;
  Names not_right;  ///< groups that are not compiled, or refuse or accept what they should not
  Names accepted;   ///< groups that accept something invalid
};

JsonSchemaOptions suite_options(bool assert_formats) {
  JsonSchemaOptions options = json_options(false, "compact");
  options.assert_formats = assert_formats;
  for (const std::string& line : grammar_data("jsts_remotes.jsonl")) {
    const JsonValue remote = parse_json(line, "remote");
    options.registry.add(remote.find("uri")->text, to_json(*remote.find("schema")));
  }
  return options;
}

std::string name_of(const JsonValue& group) {
  const JsonValue* id = group.find("id");
  return id != nullptr ? id->text
                       : group.find("file")->text + ": " + group.find("description")->text;
}

bool accepts_value(const CompiledGrammar& grammar, const JsonValue& value) {
  return accepts(grammar, to_json(value));
}

/// Draft 7's own schemas do not all say that they are.
std::string as_draft(JsonValue schema, const std::string& draft) {
  if (!draft.empty() && schema.is(JsonValue::Type::kObject) && schema.find("$schema") == nullptr) {
    schema.members.insert(schema.members.begin(),
                          {"$schema", parse_json('"' + draft + '"', "draft")});
  }
  return to_json(schema);
}

void check_group(const JsonValue& group, const std::string& draft, const JsonSchemaOptions& options,
                 Outcome& outcome) {
  const std::string name = name_of(group);
  ++outcome.groups;
  try {
    const auto grammar = compile_json_schema(
        empty_vocabulary(), as_draft(*group.find("schema"), draft), options, {}, true);
    bool right = true;
    for (const JsonValue& test : group.find("tests")->items) {
      const bool accepted = accepts_value(*grammar, *test.find("data"));
      const bool valid = test.find("valid")->is(JsonValue::Type::kTrue);
      right = right && accepted == valid;
      if (accepted && !valid) {
        outcome.accepted.insert(name);
      }
    }
    outcome.right += right ? 1 : 0;
    if (!right) {
      outcome.not_right.insert(name);
    }
  } catch (const GrammarError&) {
    outcome.not_right.insert(name);
  }
}

Outcome check_suite(const std::string& file, const std::string& draft, bool optional) {
  const JsonSchemaOptions options = suite_options(optional);
  Outcome outcome;
  for (const std::string& line : grammar_data(file)) {
    const JsonValue group = parse_json(line, file);
    if (group.find("file")->text.starts_with("optional/") == optional) {
      check_group(group, draft, options, outcome);
    }
  }
  return outcome;
}

Outcome check_bench(const std::vector<std::string>& lines) {
  JsonSchemaOptions options = json_options(false, "compact");
  Outcome outcome;
  for (const std::string& line : lines) {
    check_group(parse_json(line, "jsonschemabench"), "", options, outcome);
  }
  return outcome;
}

constexpr const char* kDraft7 = "http://json-schema.org/draft-07/schema#";

Names operator+(Names a, const Names& b) {
  a.insert(b.begin(), b.end());
  return a;
}

/// Formats whose languages leave out some texts (see grammar/regex/string_format.h).
const Names kFormats = {
    "optional/format/ecmascript-regex.json: ECMA 262 named groups and backreferences are valid",
    "optional/format/hostname.json: validation of A-label (punycode) host names",
    "optional/format/idn-email.json: validation of an internationalized e-mail addresses",
    "optional/format/idn-hostname.json: validation of internationalized host names",
    "optional/format/idn-hostname.json: validation of separators in internationalized host names"};

/// contentEncoding and contentMediaType are annotations.
const Names kContent = {
    "optional/content.json: validation of binary string-encoding",
    "optional/content.json: validation of binary-encoded media type documents",
    "optional/content.json: validation of string-encoded content based on media type"};

TEST(JsonSuiteTest, Draft202012) {
  const Outcome outcome = check_suite("jsts_draft2020-12.jsonl.gz", "", false);
  EXPECT_EQ(outcome.groups, 383);
  EXPECT_EQ(outcome.accepted, Names());
  EXPECT_EQ(outcome.not_right, Names());
}

TEST(JsonSuiteTest, Draft7) {
  const Outcome outcome = check_suite("jsts_draft7.jsonl.gz", kDraft7, false);
  EXPECT_EQ(outcome.groups, 257);
  EXPECT_EQ(outcome.accepted, Names());
  EXPECT_EQ(outcome.not_right, Names());
}

TEST(JsonSuiteTest, Draft202012Optional) {
  const Outcome outcome = check_suite("jsts_draft2020-12.jsonl.gz", "", true);
  EXPECT_EQ(outcome.groups, 78);
  EXPECT_EQ(outcome.accepted, Names());
  EXPECT_EQ(outcome.not_right, kFormats);
}

TEST(JsonSuiteTest, Draft7Optional) {
  const Outcome outcome = check_suite("jsts_draft7.jsonl.gz", kDraft7, true);
  EXPECT_EQ(outcome.groups, 64);
  EXPECT_EQ(outcome.accepted, kContent);
  EXPECT_EQ(outcome.not_right, kFormats + kContent);
}

TEST(JsonSuiteTest, PartOfJsonSchemaBench) {
  const Outcome outcome = check_bench(grammar_data("jsonschemabench_subset.jsonl.gz"));
  EXPECT_EQ(outcome.groups, 43);
  EXPECT_EQ(outcome.accepted, Names());
  EXPECT_EQ(outcome.not_right, Names());
}

/// All that was drawn, where it lies beside the repository.
TEST(JsonSuiteTest, JsonSchemaBench) {
  std::ifstream file(SPECDEC_SOURCE_DIR "/../shared/schemas/jsonschemabench_dev.jsonl");
  if (!file) {
    GTEST_SKIP() << "no ../shared/schemas/jsonschemabench_dev.jsonl beside the repository";
  }
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(line);
  }
  const Outcome outcome = check_bench(lines);
  EXPECT_EQ(outcome.accepted, Names());
  EXPECT_EQ(outcome.not_right, Names());
}

}  // namespace
}  // namespace specdec
