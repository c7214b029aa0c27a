// The probes of the keyword table in docs/grammar.md, byte by byte; what the lines say:
// bench/peers/grammar_keywords.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"
#include "grammar/compiled_grammar.h"
#include "grammar/schema/json_value.h"
#include "tests/support/grammar_vocabularies.h"

namespace specdec {
namespace {

using ::testing::HasSubstr;

std::vector<JsonValue> keyword_probes() {
  std::vector<JsonValue> probes;
  for (const std::string& line : grammar_data("keyword_probes.jsonl.gz")) {
    probes.push_back(parse_json(line, "keyword_probes.jsonl"));
  }
  return probes;
}

/// A probe's text, or "" when it has none of that name.
std::string text_of(const JsonValue& probe, std::string_view name) {
  const JsonValue* value = probe.find(name);
  return value == nullptr ? "" : value->text;
}

/// The instances below `name`, as they are written and as texts of their own.
std::vector<std::string> instances(const JsonValue& probe, const std::string& name) {
  std::vector<std::string> texts;
  if (const JsonValue* values = probe.find(name)) {
    for (const JsonValue& value : values->items) {
      texts.push_back(to_json(value));
    }
  }
  if (const JsonValue* values = probe.find(name + "_text")) {
    for (const JsonValue& value : values->items) {
      texts.push_back(value.text);
    }
  }
  return texts;
}

JsonSchemaOptions probe_options(const JsonValue& probe) {
  JsonSchemaOptions options = json_options(false, "compact");
  if (const JsonValue* registry = probe.find("registry")) {
    for (const JsonValue& document : registry->items) {
      options.registry.add(document.find("uri")->text, to_json(*document.find("schema")));
    }
  }
  return options;
}

/// What is said of specdec in the table; `error` gets the message when the schema is refused.
std::string outcome(const JsonValue& probe, std::string& error) {
  const auto valid = instances(probe, "valid");
  const auto invalid = instances(probe, "invalid");
  const bool wrong_schema = valid.empty() && invalid.empty();
  try {
    const auto grammar = compile_json_schema(empty_vocabulary(), to_json(*probe.find("schema")),
                                             probe_options(probe), {}, true);
    const auto accepts = [&](const std::string& text) {
      return grammar->is_complete(grammar->next(grammar->start(), text));
    };
    const bool narrow = !std::all_of(valid.begin(), valid.end(), accepts);
    const bool ignored = wrong_schema || std::any_of(invalid.begin(), invalid.end(), accepts);
    return narrow && ignored ? "both" : narrow ? "too narrow" : ignored ? "ignored" : "right";
  } catch (const GrammarError& thrown) {
    error = thrown.what();
    return wrong_schema ? "right" : "error";
  }
}

TEST(KeywordProbesTest, EachIsRightOrWhatItSays) {
  for (const JsonValue& probe : keyword_probes()) {
    const std::string said = text_of(probe, "specdec");
    std::string error;
    EXPECT_EQ(outcome(probe, error), said.empty() ? "right" : said)
        << text_of(probe, "id") << ": " << error;
    EXPECT_THAT(error, HasSubstr(text_of(probe, "error"))) << text_of(probe, "id");
  }
}

}  // namespace
}  // namespace specdec
