// Experiments and generations under a grammar, from config to report.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/tokenizers/tokenizer.h"
#include "experiments/run/experiment.h"
#include "experiments/run/run_folder.h"
#include "experiments/run/schema_validity.h"
#include "grammar/grammar_matcher.h"
#include "grammar/grammar_source.h"
#include "tests/experiments/cli/cli_result.h"
#include "tests/experiments/run/text_model.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using testing::HasSubstr;

/// A model that writes nonsense is a good test of a grammar.
class ConstrainedTest : public testing::Test {
 protected:
  ConstrainedTest() {
    write_text_model(folder_.path() / "model");
    folder_.write(
        "p.jsonl",
        R"({"id": "flag", "prompt": "yes", "schema": {"enum": ["yes", "no", {"a": [1]}]}})"
        "\n"
        R"({"id": "size", "prompt": "12", "schema": {"type": "object", "properties": )"
        R"({"size": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": )"
        R"(["size"], "additionalProperties": false}})"
        "\n");
  }

  static constexpr const char* kGrammar = "grammar: {type: json_schema, per_prompt: true}\n";
  static constexpr const char* kStrategies =
      "strategies:\n"
      "  - {name: plain, type: autoregressive, grammar: {forced: false}}\n"
      "  - {name: plain_forced, type: autoregressive}\n"
      "  - name: unmasked\n"
      "    type: speculative\n"
      "    drafter: {type: draft_model, weights: model}\n"
      "    grammar: {mask_drafts: false, forced: false}\n"
      "  - {name: masked, type: speculative, drafter: {type: draft_model, weights: model}}\n"
      "  - {name: lookup, type: speculative, drafter: {type: recycling}, tree: {type: dynamic, "
      "depth: 3}}\n";

  std::string config(const std::string& lines = "", const std::string& grammar = kGrammar,
                     const std::string& strategies = kStrategies) {
    return folder_.write("c.yaml",
                         "model: {weights: model}\nprompts: {file: p.jsonl}\n"
                         "max_new_tokens: 60\n" +
                             grammar + strategies + lines);
  }
  Report run(const std::string& file, const std::string& out = "out") {
    const auto plan = load_experiment(file, {}, components_);
    return run_experiment(plan, {.out = folder_.path() / out, .quiet = true, .command = "test"},
                          log_);
  }
  std::string mistakes(const std::string& file) {
    try {
      (void)load_experiment(file, {}, components_);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "no error";
  }

  TemporaryFolder folder_;
  Components components_ = builtin_components();
  std::ostringstream log_;
};

TEST_F(ConstrainedTest, AllStrategiesGiveTheSameTextsOfTheSchemas) {
  const Report report = run(config());
  std::map<std::string, std::set<std::vector<Token>>> outputs;
  for (const GenerationRecord& record : load_records(folder_.path() / "out")) {
    outputs[record.key.prompt_id].insert(record.generation.tokens);
    EXPECT_EQ(record.generation.stop_reason, StopReason::kGrammarEnd) << record.text;
    EXPECT_EQ(record.generation.log_allowed.size(), record.generation.tokens.size());
    EXPECT_GT(record.compile_seconds, 0.0);
    EXPECT_FALSE(nlohmann::json::parse(record.text, nullptr, false).is_discarded()) << record.text;
  }
  ASSERT_EQ(outputs.size(), 2U);
  for (const auto& [prompt, texts] : outputs) {
    EXPECT_EQ(texts.size(), 1U) << prompt;
  }
  EXPECT_TRUE(report.summary.divergences.empty());
  for (const SummaryRow& row : report.summary.rows) {
    EXPECT_EQ(complete_share(row.counts), 1.0) << row.strategy;
    EXPECT_LT(log_allowed_per_token(row.counts).value(), 0.0) << row.strategy;
  }
  std::ostringstream table;
  write_table(table, report);
  EXPECT_THAT(table.str(), HasSubstr("free / constrained / forced"));
}

TEST_F(ConstrainedTest, AnswersAreCheckedAgainstSchemasWithAndWithoutAGrammar) {
  const std::string sweep = "sweep: {grammar: [null, {type: json_schema, per_prompt: true}]}\n";
  const Report report =
      run(config(sweep, "", "strategies:\n  - {name: plain, type: autoregressive}\n"));
  for (const GenerationRecord& record : load_records(folder_.path() / "out")) {
    const bool constrained = record.generation.stop_reason == StopReason::kGrammarEnd;
    EXPECT_EQ(record.is_valid, constrained) << record.text;
  }
  const auto& rows = report.summary.rows;
  ASSERT_GE(rows.size(), 2U);
  EXPECT_EQ(rows[0].valid_share, 0.0) << "the model writes nonsense";
  EXPECT_EQ(rows[1].valid_share, 1.0);
  EXPECT_FALSE(rows[0].plain);
  EXPECT_EQ(rows[1].plain->valid->questions, 2);
  EXPECT_EQ(rows[1].plain->valid->first_share, 0.0);
  std::ostringstream table;
  write_table(table, report);
  EXPECT_THAT(table.str(), HasSubstr("valid, plain arm (points)"));
}

TEST(SchemaValidityTest, ReadsEverySpellingOfAValue) {
  SchemaValidity validity;
  const std::string schema =
      R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},)"
      R"( "required": ["a"], "additionalProperties": false})";
  EXPECT_EQ(validity.satisfies(schema, R"({"a":1})"), true);
  EXPECT_EQ(validity.satisfies(schema, "\n{ \"b\": \"\\u0041\",\n  \"a\": -2 }\n"), true);
  EXPECT_EQ(validity.satisfies(schema, R"({"a":1.5})"), false);
  EXPECT_EQ(validity.satisfies(schema, R"({"a":1} and more)"), false);
  EXPECT_EQ(validity.satisfies(schema, R"({"a":1)"), false) << "it was cut off";
  EXPECT_EQ(validity.satisfies(schema, " "), false);
  EXPECT_EQ(validity.satisfies(R"({"type": "tuple"})", "1"), std::nullopt) << "not supported";
  EXPECT_EQ(validity.satisfies("false", "1"), false) << "nothing satisfies it";
}

TEST_F(ConstrainedTest, CorrectionsAreNamedAndCounted) {
  const std::string strategies =
      "strategies:\n"
      "  - {name: rejection, type: autoregressive, grammar: {correction: rejection, samples: 2}}\n"
      "  - {name: asap, type: autoregressive, grammar: {correction: asap, samples: 3}}\n";
  const std::string file = config("sampling: {temperature: 1}\n", kGrammar, strategies);
  const Report report = run(file);
  EXPECT_FALSE(report.strategies[0].lossy);
  EXPECT_TRUE(report.strategies[1].lossy);
  std::map<std::string, int64_t> outputs;
  std::map<std::string, int64_t> samples;
  for (const GenerationRecord& record : load_records(folder_.path() / "out")) {
    const bool rejection = record.key.strategy == "rejection";
    if (record.generation.stop_reason == StopReason::kNoneAccepted) {
      EXPECT_TRUE(record.generation.tokens.empty());
      EXPECT_EQ(record.generation.samples, rejection ? 2 : 3);
    } else {
      EXPECT_LE(record.generation.samples, rejection ? 2 : 3);
    }
    outputs[record.key.strategy] += 1;
    samples[record.key.strategy] += record.generation.samples;
  }
  for (const SummaryRow& row : report.summary.rows) {
    EXPECT_EQ(row.counts.grammar_outputs, outputs[row.strategy]) << row.strategy;
    EXPECT_EQ(row.counts.samples, samples[row.strategy]) << row.strategy;
  }
}

TEST_F(ConstrainedTest, RefusesMistakes) {
  EXPECT_THAT(mistakes(config("", "", kStrategies)), HasSubstr("this run has none"));
  EXPECT_THAT(mistakes(config("", kGrammar,
                              "strategies:\n  - {type: autoregressive, grammar: {correction: "
                              "rejection}}\n")),
              HasSubstr("temperature above 0"));
  EXPECT_THAT(mistakes(config("", kGrammar,
                              "strategies:\n  - {type: autoregressive, grammar: {correction: "
                              "magic}}\n")),
              HasSubstr("known: none, rejection, importance, asap"));
  EXPECT_THAT(mistakes(config("", kGrammar,
                              "strategies:\n  - {type: speculative, drafter: {type: synthetic}, "
                              "verifier: {type: synthetic, acceptance: 0.5}}\n")),
              HasSubstr("accepts any token"));
  folder_.write("p.jsonl", "{\"id\": \"bare\", \"prompt\": \"yes\"}\n");
  EXPECT_THAT(mistakes(config()), HasSubstr("prompt 'bare' has no 'schema'"));
  folder_.write("p.jsonl",
                "{\"id\": \"bare\", \"prompt\": \"a\"}\n{\"id\": \"b\", \"prompt\": \"a\"}\n"
                "{\"id\": \"c\", \"prompt\": \"a\"}\n");
  EXPECT_THAT(mistakes(config()), HasSubstr("prompt 'bare' and 2 more have no 'schema'"));
  folder_.write("p.jsonl",
                "{\"id\": \"bad\", \"prompt\": \"yes\", \"schema\": {\"type\": \"tuple\"}}\n");
  EXPECT_THAT(mistakes(config()), HasSubstr("prompt bad"));
}

TEST_F(ConstrainedTest, GenerateTakesAGrammar) {
  folder_.write("g.gbnf", "root ::= \"x\" [0-9]{2,4}");
  const auto model = (folder_.path() / "model").string();
  const auto file = (folder_.path() / "g.gbnf").string();
  for (const std::string& grammar : {file, fmt::format("{{type: gbnf, file: {}}}", file),
                                     std::string("{type: regex, pattern: "
                                                 "'x[0-9]{2,4}'}")}) {
    const auto result = cli({"generate", model, "--prompt", "12", "--json", "--grammar", grammar,
                             "--strategy", "{type: speculative, drafter: {type: prompt_lookup}}"});
    ASSERT_EQ(result.code, 0) << result.err;
    const auto json = nlohmann::json::parse(result.out);
    EXPECT_THAT(json["text"].get<std::string>(), testing::MatchesRegex("x[0-9]+"));
    EXPECT_LT(json["statistics"]["log_allowed"].get<double>(), 0.0);
  }
  const auto unknown = cli(
      {"generate", model, "--prompt", "12", "--grammar", (folder_.path() / "p.jsonl").string()});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("the file's ending"));
}

}  // namespace
}  // namespace specdec
