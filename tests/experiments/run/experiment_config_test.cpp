#include "experiments/run/experiment_config.h"

#include <ATen/Context.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "experiments/run/arms.h"
#include "experiments/run/sweep.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class ExperimentConfigTest : public testing::Test {
 protected:
  ExperimentConfigTest() {
    folder_.write("p.jsonl",
                  "{\"tokens\": [2, 5], \"category\": \"a\"}\n"
                  "{\"tokens\": [2, 7], \"category\": \"b\"}\n"
                  "{\"tokens\": [2, 9], \"category\": \"b\"}\n");
    folder_.write("text.jsonl", "{\"prompt\": \"some text\"}\n");
  }

  /// A config with `lines` after the parts that every config needs.
  std::string text(const std::string& lines, const std::string& strategies = kStrategies) const {
    return fmt::format("model: {{weights: {}}}\n", test_data("gemma3-a").string()) +
           "prompts: {file: p.jsonl}\n" + strategies + lines;
  }
  ExperimentPlan load(const std::string& text, const std::vector<std::string>& sets = {}) const {
    return load_experiment(folder_.write("c.yaml", text), sets, components_);
  }
  std::string message(const std::string& text, const std::vector<std::string>& sets = {}) const {
    try {
      (void)load(text, sets);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "no error";
  }

  static constexpr const char* kStrategies =
      "strategies:\n"
      "  - type: autoregressive\n"
      "  - {name: lookup, type: speculative, drafter: {type: prompt_lookup}}\n";
  TemporaryFolder folder_;
  Components components_ = builtin_components();
};

TEST_F(ExperimentConfigTest, ReadsAMinimalConfig) {
  const auto plan = load(text(""));
  EXPECT_EQ(plan.name, "c");
  ASSERT_EQ(plan.points.size(), 1U);
  const auto& config = plan.points[0].config;
  EXPECT_EQ(config.prompts.prompts.size(), 3U);
  EXPECT_EQ(config.strategies.size(), 2U);
  EXPECT_EQ(config.strategies[0].name, "autoregressive");
  EXPECT_EQ(config.strategies[1].name, "lookup");
  EXPECT_EQ(config.stop.end_ids, (std::vector<Token>{1}));
  EXPECT_THAT(plan.yaml, HasSubstr("max_new_tokens: 128"));
  EXPECT_THAT(plan.yaml, HasSubstr("draft_length: 5"));
  EXPECT_THAT(plan.yaml, HasSubstr("type: exact_match"));
}

TEST_F(ExperimentConfigTest, TheResolvedConfigLoadsAsItself) {
  const auto plan = load(text("seed: 3\nstop: {ids: [3]}\nsweep: {seed: [1, 2]}\n"));
  EXPECT_EQ(load(plan.yaml).yaml, plan.yaml);
}

/// A run's own config leads from its folder to the files that the first one named.
TEST_F(ExperimentConfigTest, TheConfigOfARunFolderLoadsFromAnywhere) {
  const auto plan = load(text("seed: 3\n"));
  EXPECT_THAT(run_config_text(plan, group_arms(plan), "no/such/folder"),
              HasSubstr(folder_.path().filename().string() + "/p.jsonl"));
  const auto run = folder_.path() / "runs" / "a";
  std::filesystem::create_directories(run);
  const auto written = run_config_text(plan, group_arms(plan), run);
  EXPECT_THAT(written, HasSubstr("../../p.jsonl"));
  EXPECT_THAT(written, HasSubstr(test_data("gemma3-a").string())) << "absolute";
  const auto again = load_experiment(folder_.write("runs/a/config.yaml", written), {}, components_);
  EXPECT_EQ(again.points[0].config.prompts.prompts.size(), 3U);
  EXPECT_EQ(again.points[0].config.prompts.file, folder_.path() / "p.jsonl") << "without '..'";
  // Resuming compares the texts: in the same folder the config is the same as its own source.
  EXPECT_EQ(run_config_text(again, group_arms(again), run), written);
}

TEST_F(ExperimentConfigTest, AStrategyWithALossyVerifierIsLossy) {
  const auto promise = [&](const std::string& verifier) {
    return load(text("",
                     "strategies:\n  - {type: speculative, drafter: {type: synthetic}, "
                     "verifier: " +
                         verifier + "}\n"))
        .points[0]
        .config.strategies[0]
        .notes.promise;
  };
  EXPECT_EQ(promise("{type: exact_match}"), Promise::kLossless);
  EXPECT_EQ(promise("{type: block}"), Promise::kLossless);
  EXPECT_EQ(promise("{type: sample_match}"), Promise::kLossless);
  EXPECT_EQ(promise("{type: typical}"), Promise::kLossy);
  EXPECT_EQ(promise("{type: threshold, acc: 0.9}"), Promise::kLossy);
  EXPECT_EQ(promise("{type: synthetic, acceptance: [0.9, 0.5]}"), Promise::kLossy);
  EXPECT_EQ(promise("{type: synthetic, acceptance: 0.9}"), Promise::kLossy);
}

TEST_F(ExperimentConfigTest, ATypesNameAloneIsItsMap) {
  const auto resolved = [&](const std::string& parts) {
    return load(text("", "strategies:\n  - {type: speculative, " + parts + "}\n")).yaml;
  };
  EXPECT_EQ(resolved("drafter: synthetic, verifier: block"),
            resolved("drafter: {type: synthetic}, verifier: {type: block}"));
  EXPECT_EQ(resolved("drafter: prompt_lookup, draft_length: adaptive"),
            resolved("drafter: {type: prompt_lookup}, draft_length: {type: adaptive}"));
  EXPECT_THAT(message(text("",
                           "strategies:\n  - {type: speculative, drafter: prompt_lookup, tree: "
                           "dynamic}\n")),
              HasSubstr("a tree 6 levels deep does not fit"));
  EXPECT_EQ(
      resolved("drafter: {type: cascade, drafters: [suffix, prompt_lookup]}"),
      resolved("drafter: {type: cascade, drafters: [{type: suffix}, {type: prompt_lookup}]}"));
  EXPECT_EQ(load(text("", "strategies: [autoregressive]\n")).yaml,
            load(text("", "strategies: [{type: autoregressive}]\n")).yaml);
}

TEST_F(ExperimentConfigTest, RefusesVerifierOptionsOutOfRange) {
  const auto with = [&](const std::string& verifier) {
    return message(text("",
                        "strategies:\n  - {type: speculative, drafter: {type: synthetic}, "
                        "verifier: " +
                            verifier + "}\n"));
  };
  EXPECT_THAT(with("{type: typical, epsilon: 0}"), HasSubstr("must be above 0"));
  EXPECT_THAT(with("{type: threshold, acc: 1.5}"), HasSubstr("acc"));
  EXPECT_THAT(with("{type: synthetic}"), HasSubstr("acceptance"));
  EXPECT_THAT(with("{type: synthetic, acceptance: []}"), HasSubstr("the list is empty"));
  EXPECT_THAT(with("{type: synthetic, acceptance: [0.5, 2]}"), HasSubstr("acceptance[1]"));
}

TEST_F(ExperimentConfigTest, SelectsPrompts) {
  EXPECT_EQ(load(text(""), {"prompts.categories=[b]"}).points[0].config.prompts.prompts.size(), 2U);
  EXPECT_EQ(load(text(""), {"prompts.limit=1"}).points[0].config.prompts.prompts.size(), 1U);
  const auto all = load(text("")).points[0].config.prompts.prompts;
  const auto rest = load(text(""), {"prompts.skip=1"}).points[0].config.prompts.prompts;
  ASSERT_EQ(rest.size() + 1, all.size());
  EXPECT_EQ(rest[0].id, all[1].id);
}

TEST_F(ExperimentConfigTest, SelectsTheFirstPromptsOfEachCategory) {
  std::string lines;
  for (const char* category : {"a", "a", "a", "b", "c", "c", "a"}) {
    lines += fmt::format("{{\"tokens\": [2, 3], \"category\": \"{}\"}}\n", category);
  }
  folder_.write("p.jsonl", lines);
  const auto ids = [&](const std::vector<std::string>& overrides) {
    std::string found;
    const auto plan = load(text(""), overrides);
    for (const Prompt& prompt : plan.points[0].config.prompts.prompts) {
      found += prompt.id;
    }
    return found;
  };
  EXPECT_EQ(ids({"prompts.per_category=2"}), "12456");
  EXPECT_EQ(ids({"prompts.per_category=1"}), "145");
  EXPECT_EQ(ids({"prompts.per_category=1", "prompts.skip=1", "prompts.limit=2"}), "24");
  EXPECT_THAT(message(text(""), {"prompts.per_category=-1"}), HasSubstr("per_category: -1"));
}

TEST_F(ExperimentConfigTest, RefusesMistakesWithTheirPlace) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"sed: 1\n", "c.yaml:6: sed: unknown key; did you mean 'seed'?"},
      {"seed: -1\n", "c.yaml:6: seed: expected a whole number of at least 0"},
      {"seed: 99999999999999999999999\n", "is too large"},
      {"repeats: 0\n", "c.yaml:6: repeats: 0 is not between 1"},
      {"repeats: \"3\"\n", "found the text \"3\""},
      {"max_new_tokens: 0\n", "c.yaml:6: max_new_tokens: 0 is not between 1"},
      {"max_new_tokens: many\n", "expected a whole number, found 'many'"},
      {"threads: 5000\n", "c.yaml:6: threads: "},
      {"warm_up: -1\n", "c.yaml:6: warm_up: "},
      {"sampling: {temperature: -1}\n", "c.yaml:6: sampling.temperature: -1"},
      {"sampling: {temperature: .nan}\n", "expected a finite number"},
      {"sampling: {top_p: 1.5}\n", "sampling.top_p: 1.5 is not between 0 and 1"},
      {"sampling: {top_k: -3}\n", "sampling.top_k: -3"},
      {"sampling: {min_p: 2}\n", "sampling.min_p: 2"},
      {"sampling: {repetition_penalty: 0}\n", "c.yaml:6: sampling"},
      {"sampling: {logit_bias: {600: 1}}\n",
       "c.yaml:6: sampling.logit_bias: token 600 lies outside the model's vocabulary of 512"},
      {"sampling: {logit_bias: {7: much}}\n", "'much' of token '7' is no bias"},
      {"sampling: {logit_bias: {7: .inf}}\n", "'.inf' of token '7' is no bias"},
      {"sampling: {logit_bias: {7: .nan}}\n", "'.nan' of token '7' is no bias"},
      {"sampling: {logit_bias: {7: 1, \"07\": 1}}\n", "has a bias already, by its other name"},
      {"sampling: {logit_bias: {the: 1}}\n", "has no tokenizer: name tokens by their ids"},
      {"sampling: {logit_bias: [7]}\n", "sampling.logit_bias: expected a map of tokens"},
      {"sampling: {tempreture: 1}\n", "did you mean 'temperature'?"},
      {"sampling: 3\n", "c.yaml:6: sampling: expected a map"},
      {"stop: {ids: [999]}\n", "c.yaml:6: stop.ids[0]: 999 is not between 0 and 511"},
      {"stop: {strings: [x]}\n", "has no tokenizer, so text cannot stop it"},
      {"stop: {strings: [\"\"]}\n", "an empty text would stop"},
      {"stop: {ids: 3}\n", "c.yaml:6: stop.ids: expected a list"},
      {"sweep: {seed: 3}\n", "c.yaml:6: sweep.seed: expected a list of values, found '3'"},
      {"sweep: {seed: []}\n", "sweep.seed: the list of values is empty"},
      {"sweep: [1]\n", "c.yaml:6: sweep: expected a map"},
      {"sweep: {sede: [1]}\n", "c.yaml:6: sede: unknown key; did you mean 'seed'?"},
      {"sweep: {strategies.nobody.draft_length: [1]}\n",
       "c.yaml:6: sweep.strategies.nobody.draft_length: 'nobody' names no item of 'strategies'"},
      {"sweep: {strategies.lookup.draft_length: [1, 0]}\n", "draft_length: 0 is not between 1"},
      {"sweep: {name: [a, b]}\n", "this key cannot be swept"},
      {"sweep: {quality.margin: [0.1, 0.2]}\n",
       "quality.margin: this key cannot be swept: all rows"},
      {"sweep: {loops: [keep, cut]}\n", "loops: this key cannot be swept"},
      {"loops: drop\n", "c.yaml:6: loops: unknown value 'drop'; known: keep, cut"},
      {"prefix_cache: {states: all}\n",
       "prefix_cache.states: unknown value 'all'; known: keep, recompute"},
      {"sweep: {seed: [1, 1]}\n", "two points of the sweep are called 'seed=1'"},
      {"model: {}\n", "c.yaml:6: the key 'model' is given twice (first at "},
  };
  for (const auto& [lines, expected] : cases) {
    EXPECT_THAT(message(text(lines)), HasSubstr(expected)) << lines;
  }
}

TEST_F(ExperimentConfigTest, RefusesStrategiesThatCannotWork) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{type: speculative, drafter: {type: eagel}}",
       "c.yaml:4: strategies[0].drafter: unknown type 'eagel'; did you mean 'eagle'? Known: "},
      {"{type: speculativ}",
       "c.yaml:4: strategies[0]: unknown type 'speculativ'; did you mean 'speculative'? Known: "},
      {"{type: suffix}",
       "c.yaml:4: strategies[0]: 'suffix' is a drafter, not a strategy: give {type: speculative, "
       "drafter: {type: suffix}}"},
      {"{name: x}", "c.yaml:4: strategies[0]: the key 'type' is missing; known: autoregressive, "},
      {"{type: [speculative]}", "c.yaml:4: strategies[0].type: expected text, found a list"},
      {"{type: autoregressive, draft_length: 3}",
       "strategies[0].draft_length: unknown key; known: type, name"},
      {"{type: speculative}", "strategies[0]: the key 'drafter' is missing; give a map"},
      {"{type: speculative, drafter: [prompt_lookup]}", "strategies[0].drafter: expected a map"},
      {"{type: speculative, drafter: prompt_lokup}",
       "strategies[0].drafter: unknown type 'prompt_lokup'; did you mean 'prompt_lookup'?"},
      {"{type: speculative, drafter: prompt_lookup, verifier: exact_mach}",
       "strategies[0].verifier: unknown type 'exact_mach'; did you mean 'exact_match'?"},
      {"{type: speculative, draft_length: 0, drafter: {type: prompt_lookup}}",
       "strategies[0].draft_length: 0 is not between 1"},
      {"{type: speculative, draft_length: {type: fixd}, drafter: {type: prompt_lookup}}",
       "strategies[0].draft_length: unknown type 'fixd'; did you mean 'fixed'? Known: adaptive, "
       "fixed, heuristic. See 'specdec list'."},
      {"{type: speculative, draft_length: {type: heuristic, min: 9}, drafter: {type: "
       "prompt_lookup}}",
       "must not decrease"},
      {"{type: speculative, drafter: {type: prompt_lookup, min_ngram: 20}}",
       "min_ngram: 20 is more than max_ngram"},
      {"{type: speculative, drafter: {type: prompt_lookup, ngram: 2}}", "did you mean"},
      {"{type: speculative, drafter: {type: draft_model}}",
       "strategies[0].drafter: the key 'weights' is missing"},
      {"{type: speculative, drafter: {type: draft_model, weights: nowhere}}",
       "strategies[0].drafter.weights: 'nowhere' does not exist: neither "},
      {"{type: speculative, drafter: {type: draft_model, weights: " +
           test_data("gemma2-a").string() + "}}",
       "the draft model's vocabulary has 384 entries, the target's 512"},
      {"5", "strategies[0]: unknown type '5'"},
      {"[5]", "strategies[0]: expected a map, found a list"},
      {"{type: speculative, draft_length: adaptiv, drafter: prompt_lookup}",
       "strategies[0].draft_length: unknown type 'adaptiv'; did you mean 'adaptive'?"},
  };
  for (const auto& [strategy, expected] : cases) {
    EXPECT_THAT(message(text("", "strategies:\n  - " + strategy + "\n")), HasSubstr(expected))
        << strategy;
  }
}

/// Which keys it may have depends on its type.
TEST_F(ExperimentConfigTest, KeysOfAnUnknownTypeAreNoMistakes) {
  const std::vector<std::string> blocks = {
      "{type: speculativ, drafter: {type: x}, draft_length: 3}",
      "{drafter: {type: suffix}}",
      "{type: speculative, drafter: {type: eagel, weights: w, sample: true}}",
      "{type: speculative, drafter: {weights: w, sample: true}}",
      "{type: speculative, drafter: {type: suffix}, verifier: {type: typicl, epsilon: 0.1}}",
      "{type: speculative, drafter: {type: suffix}, tree: {type: dynamc, nodes: 3}}",
      "{type: speculative, drafter: {type: suffix}, draft_length: {type: fixd, length: 3}}",
  };
  for (const auto& block : blocks) {
    const auto found = message(text("", "strategies:\n  - " + block + "\n"));
    EXPECT_EQ(std::count(found.begin(), found.end(), '\n'), 0) << found;
  }
  const auto grammar = message(text("grammar: {type: jsn_schema, schema: {type: object}}\n"));
  EXPECT_THAT(grammar, HasSubstr("did you mean 'json_schema'? Known: "));
  EXPECT_THAT(grammar, Not(HasSubstr("unknown key")));
}

TEST_F(ExperimentConfigTest, TokensThatAGrammarNamesAreLookedUp) {
  const auto found = [&](const std::string& token) {
    const std::string config =
        fmt::format("model: {{weights: {}}}\nprompts: {{file: text.jsonl}}\n{}",
                    SPECDEC_SOURCE_DIR "/models/target", kStrategies);
    return message(config + "grammar:\n  type: lark\n  text: |\n    start: \"a\"\n      | " +
                   token);
  };
  EXPECT_EQ(found("<[7]>"), "no error");
  EXPECT_THAT(
      found("<|nope|>"),
      HasSubstr("grammar: text:2:5: the vocabulary of 2048 tokens has no token '<|nope|>'"));
  EXPECT_THAT(found("<[2048]>"), HasSubstr("text:2:5: the vocabulary"));
}

TEST_F(ExperimentConfigTest, AMistakeIsReportedOnce) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"tree: {type: static}", "strategies[0].tree: a static tree is given by 'paths'"},
      {"tree: {type: static, widths: []}",
       "strategies[0].tree: a draft tree needs a node beside its root"},
      {"tree: {type: static, widths: [2, 0]}", "strategies[0].tree.widths[1]: 0 is not between"},
      {"tree: {type: static, paths: [[x]]}", "strategies[0].tree.paths: a path is a list of ranks"},
      {"tree: {type: optimal, depth: 2}", "strategies[0].tree: the key 'acceptance' is missing"},
      {"draft_length: {type: adaptive, initial: 9, max: 3}",
       "strategies[0].draft_length: adaptive needs 1 <= initial <= max"},
  };
  for (const auto& [shape, expected] : cases) {
    const auto found = message(
        text("", "strategies:\n  - {type: speculative, drafter: {type: suffix}, " + shape + "}\n"));
    EXPECT_THAT(found, HasSubstr(expected));
    EXPECT_EQ(std::count(found.begin(), found.end(), '\n'), 0) << found;
  }
}

TEST_F(ExperimentConfigTest, KnownKeysAreAllNamed) {
  const auto found = message(text("zzzzzzzz: 1\n"));
  for (const char* key : {"grammar", "trace", "sweep", "quality", "strategies"}) {
    EXPECT_THAT(found, HasSubstr(std::string(", ") + key));
  }
  EXPECT_THAT(message(text("grammars: {type: regex}\n")), HasSubstr("did you mean 'grammar'?"));
  EXPECT_THAT(message(text("traces: {depth: 3}\n")), HasSubstr("did you mean 'trace'?"));
}

TEST_F(ExperimentConfigTest, RefusesImpossibleCombinations) {
  const std::string exact =
      "strategies:\n  - type: speculative\n    drafter: {type: prompt_lookup}\n"
      "    verifier: {type: exact_match}\n";
  EXPECT_THAT(message(text("sampling: {temperature: 0.8}\n", exact)),
              HasSubstr("c.yaml:6: strategies[0].verifier: exact_match compares with greedy"));
  EXPECT_THAT(message(text("", "strategies: [{type: autoregressive}, {type: autoregressive}]\n")),
              HasSubstr("two strategies are called 'autoregressive'"));
  EXPECT_THAT(message(text("", "strategies: []\n")), HasSubstr("no strategy to run"));
  EXPECT_THAT(message(text("", "")), HasSubstr("the key 'strategies' is missing"));
}

TEST_F(ExperimentConfigTest, RefusesModelsAndPrompts) {
  const auto set = [&](const std::string& override) { return message(text(""), {override}); };
  EXPECT_THAT(set("model.weights=nowhere"), HasSubstr("--set model.weights=nowhere: model.weights: "
                                                      "'nowhere' does not exist"));
  EXPECT_THAT(set("model.weights=" + folder_.path().string()), HasSubstr("config.json"));
  EXPECT_THAT(set("model.type=gema"), HasSubstr("unknown type 'gema'; did you mean 'gemma'?"));
  EXPECT_THAT(set("model.dtype=float31"), HasSubstr("unknown dtype 'float31'"));
  EXPECT_THAT(set("model.kv_dtype=float16"), HasSubstr("unknown kv_dtype 'float16'"));
  EXPECT_THAT(message(text(""), {"model.kv_dtype=bfloat16", "model.dtype=float64"}),
              HasSubstr("needs float32 activations, but dtype is float64"));
  EXPECT_THAT(set("model.cache.type=page"), HasSubstr("unknown type 'page'; did you mean 'paged'"));
  EXPECT_THAT(set("model.cache={type: paged, pages: 3}"), HasSubstr("pages: unknown key"));
  EXPECT_THAT(
      set("model.cache={type: tiered, format: q4, exact_recent: 8, lossy: true}"),
      AllOf(HasSubstr("is not for a cache of type tiered"), Not(HasSubstr("internal error"))));
  EXPECT_THAT(set("model.cache={type: paged, rotation: hadamrd}"),
              HasSubstr("rotation: unknown value 'hadamrd'; did you mean 'hadamard'?"));
  EXPECT_THAT(set("model.cache={type: paged, format: q9, exact_recent: 8, lossy: true}"),
              AllOf(HasSubstr("unknown format 'q9'"), Not(HasSubstr("keeps them as they are"))));
  EXPECT_THAT(set("model.max_pages=3"), HasSubstr("is now called 'cache: {type: paged"));
  EXPECT_THAT(set("model.device=tpu"), HasSubstr("unknown device 'tpu'"));
  EXPECT_THAT(set("model.max_length=100000"), HasSubstr("max_position_embeddings (512)"));
  EXPECT_THAT(set("prompts.file=nowhere.jsonl"), HasSubstr("'nowhere.jsonl' does not exist"));
  EXPECT_THAT(set("prompts.file=text.jsonl"), HasSubstr("has no tokenizer"));
  EXPECT_THAT(set("prompts.file=c.yaml"), HasSubstr("c.yaml:1: not valid JSON at column "));
  EXPECT_THAT(set("prompts.categories=[z]"), HasSubstr("no prompt has the category 'z'"));
  EXPECT_THAT(set("prompts.limit=-1"), HasSubstr("prompts.limit: -1"));
  EXPECT_THAT(set("prompts.skip=9"), HasSubstr("9 prompts are skipped of"));
  EXPECT_THAT(set("trace.depth=0"), HasSubstr("trace.depth: 0"));
  folder_.write("big.jsonl", "{\"tokens\": [2, 512]}\n");
  EXPECT_THAT(set("prompts.file=big.jsonl"), HasSubstr("holds the id 512"));
}

TEST_F(ExperimentConfigTest, TypesAreTheFamiliesThatInspectPrints) {
  const auto set = [&](const std::string& type) {
    return message(text(""), {"model.type=" + type});
  };
  for (const char* type : {"auto", "gemma", "gemma3", "gemma3_text"}) {
    EXPECT_EQ(set(type), "no error") << type;
  }
  for (const char* type : {"gemma2", "llama", "mistral", "qwen2", "qwen3"}) {
    EXPECT_THAT(set(type), HasSubstr(fmt::format("is {}, but the checkpoint is of the family "
                                                 "gemma3_text",
                                                 type)));
  }
  const std::string qwen = "model.weights=" + test_data("qwen2-a").string();
  for (const char* type : {"qwen2", "llama"}) {
    EXPECT_THAT(message(text(""), {qwen, std::string("model.type=") + type}),
                Not(HasSubstr("model.type")))
        << type;
  }
}

TEST_F(ExperimentConfigTest, RoundedActivationsNeedWeightsInBlocks) {
  const auto set = [&](std::vector<std::string> sets) {
    sets.emplace_back("model.activations=int8");
    return message(text(""), sets);
  };
  EXPECT_THAT(set({}), HasSubstr("int8 needs weights in blocks, which are multiplied as integers, "
                                 "and this model has none: set dtype: int8"));
  EXPECT_THAT(set({"model.dtype=stored"}), HasSubstr("this model has none"));
  EXPECT_THAT(set({"model.dtype=float32"}), HasSubstr("int8 needs weights in blocks"));
  EXPECT_EQ(set({"model.dtype=int8"}), "no error");
  const std::string weights = "model.weights=" + test_data("gguf/").string();
  EXPECT_EQ(set({weights + "llama-q4_1.gguf"}), "no error");
  EXPECT_THAT(set({weights + "llama-f16.gguf"}), HasSubstr("this model has none"));
  const auto drafting = [&](const std::string& draft) {
    return set({weights + "llama-q4_1.gguf",
                "strategies=[{type: autoregressive}, {type: speculative, drafter: {type: "
                "draft_model, weights: " +
                    test_data("gguf/" + draft).string() + "}}]"});
  };
  EXPECT_EQ(drafting("llama-q4_1.gguf"), "no error");
  EXPECT_THAT(drafting("llama-f16.gguf"),
              HasSubstr("strategies[1].drafter.weights: model.activations are the draft model's "
                        "too: int8 needs weights in blocks"));
}

TEST_F(ExperimentConfigTest, LogitsOfAnyWidthAreConsistentOnTheCpuOnly) {
  EXPECT_EQ(message(text(""), {"model.verify_consistent=true"}), "no error");
  const auto refused = message(text(""), {"model.verify_consistent=true", "model.device=cuda"});
  EXPECT_THAT(refused, HasSubstr("verify_consistent: is true, but that device 'cuda'"));
  EXPECT_THAT(message(text(""), {"model.device=cuda"}), Not(HasSubstr("verify_consistent")));
  EXPECT_THAT(message(text(""), {"model.device=tpu"}),
              HasSubstr("unknown device 'tpu'; known: cpu, cuda, cuda:N, mps"));
  if (!at::hasMPS()) {
    EXPECT_THAT(message(text(""), {"model.device=mps"}),
                HasSubstr("device 'mps' is an Apple GPU: it needs macOS on Apple silicon"));
  }
  EXPECT_NE(message(text(""), {"model.verify_consistent=perhaps"}), "no error");
}

TEST_F(ExperimentConfigTest, MetalReadsSomeLossyCaches) {
  const auto on = [&](const std::string& device, const std::string& type,
                      const std::string& format) {
    std::vector<std::string> overrides = {"model.device=" + device, "model.cache.type=" + type,
                                          "model.cache.lossy=true"};
    if (!format.empty()) {
      overrides.push_back("model.cache.format=" + format);
    }
    return message(text(""), overrides);
  };
  EXPECT_EQ(on("cpu", "paged", "q8"), "no error");
  EXPECT_THAT(on("mps", "paged", "q8"), Not(HasSubstr("is for")));
  EXPECT_THAT(on("mps", "paged", "q3"), HasSubstr("q3 is for float32 activations on the CPU and "
                                                  "CUDA, but device is mps"));
  EXPECT_THAT(
      message(text(""), {"model.device=mps",
                         "model.cache={type: paged, format: q8, exact_recent: 8, lossy: true}"}),
      HasSubstr("cache.exact_recent: is for the CPU and CUDA, but device is mps"));
  EXPECT_THAT(on("mps", "paged", "kivi4"), HasSubstr("kivi4 is for float32 activations on the CPU "
                                                     "and CUDA, but device is mps"));
  EXPECT_THAT(on("mps", "window", ""),
              HasSubstr("type: window is for the CPU and CUDA, but device is mps"));
  EXPECT_THAT(on("cuda", "paged", "q8"), Not(HasSubstr("float32 activations")));
  EXPECT_THAT(on("cuda", "window", "q4"), Not(HasSubstr("is for the CPU and CUDA")));
}

TEST_F(ExperimentConfigTest, SomeCachesAreForTheCpuOnly) {
  EXPECT_EQ(message(text(""), {"model.cache={type: tiered}"}), "no error");
  EXPECT_THAT(message(text(""), {"model.cache={type: tiered}", "model.device=mps"}),
              HasSubstr("tiered is for the CPU and CUDA, but device is mps"));
  EXPECT_THAT(message(text(""), {"model.cache={type: tiered, host_megabytes: 3}"}),
              HasSubstr("host_megabytes: is for a GPU"));
  for (const char* cache :
       {"paged", "tiered", "tracing", "compressed, lossy: true",
        "paged, format: q4, exact_recent: 8, lossy: true", "paged, format: kivi2, lossy: true"}) {
    EXPECT_THAT(
        message(text(""), {fmt::format("model.cache={{type: {}}}", cache), "model.device=cuda"}),
        Not(HasSubstr("is for the CPU")));
  }
}

TEST_F(ExperimentConfigTest, CachesThatLayersRuleOutAreMistakes) {
  const auto on = [&](const std::string& key, const std::string& cache) {
    return message(text("", fmt::format("strategies: [{{type: speculative, drafter: {{type: "
                                        "draft_model, weights: {}/models/recurrent_draft}}}}]\n",
                                        SPECDEC_SOURCE_DIR)),
                   {fmt::format("model.weights={}/models/target", SPECDEC_SOURCE_DIR),
                    fmt::format("{}cache={}", key, cache)});
  };
  EXPECT_EQ(on("strategies.0.drafter.", "{type: paged, format: q4}"), "no error");
  EXPECT_THAT(on("strategies.0.drafter.", "{type: paged, format: q3}"),
              HasSubstr("drafter.cache: a key/value cache in q3 takes heads of a multiple of 8 "
                        "dimensions, and the model has heads of 28"));
  EXPECT_THAT(on("model.", "{type: paged, format: q3, lossy: true}"),
              HasSubstr("strategies[0].drafter.weights: a key/value cache in q3"));
  EXPECT_THAT(on("model.", "{type: paged, page_size: 1000000, megabytes: 1}"),
              HasSubstr("model.cache: a key/value cache of 1048576 bytes holds no page"));
}

TEST_F(ExperimentConfigTest, CachesShareNoEvents) {
  const auto with = [&](const std::string& events, const std::string& drafter) {
    return message(
        text("", fmt::format("strategies: [{{type: speculative, drafter: {{type: draft_model, "
                             "weights: {}, cache: {{type: tracing, events: {}}}}}}}]\n",
                             test_data("gemma3-a").string(), drafter)),
        {fmt::format("model.cache={{type: tracing, events: {}}}", events), "sweep={seed: [0, 1]}"});
  };
  const std::string beside = (folder_.path() / "a.jsonl").string();
  EXPECT_EQ(with(beside, "b.jsonl"), "no error");
  EXPECT_EQ(with("a.jsonl", "a.jsonl"), "no error") << "one in the current folder";
  EXPECT_THAT(with(beside, "a.jsonl"),
              HasSubstr("a.jsonl is written for model.cache.events already"));
  EXPECT_THAT(with("~/a.jsonl", "b.jsonl"), HasSubstr("'~' stands for no folder"));
  EXPECT_THAT(with(folder_.path().string(), "b.jsonl"), HasSubstr("is a folder: name a file"));
}

TEST_F(ExperimentConfigTest, FilesThatAreWrittenLieBesideTheConfig) {
  const std::string source = fmt::format(
      "model:\n  weights: {}\n  memory_limit: 700kB\n  layer_file: l.layers\n"
      "  cache: {{type: tracing, events: ev.jsonl}}\nprompts: {{file: p.jsonl}}\n{}",
      test_data("gemma3-a").string(), kStrategies);
  const auto layer_file = [](const ExperimentPlan& plan) {
    return plan.points[0].config.model.memory.layer_file;
  };
  const auto plan = load(source);
  EXPECT_EQ(layer_file(plan), folder_.path() / "l.layers");
  const auto run = folder_.path() / "runs" / "a";
  std::filesystem::create_directories(run);
  const auto written = run_config_text(plan, group_arms(plan), run);
  EXPECT_THAT(written, AllOf(HasSubstr(R"(layer_file: "../../l.layers")"),
                             HasSubstr(R"(events: "../../ev.jsonl")")));
  const auto again = load_experiment(folder_.write("runs/a/config.yaml", written), {}, components_);
  EXPECT_EQ(layer_file(again), folder_.path() / "l.layers") << "without '..'";
  EXPECT_EQ(run_config_text(again, group_arms(again), run), written);
  EXPECT_EQ(layer_file(load(source, {"--layer-file model.layer_file=l.layers"})), "l.layers")
      << "in the current folder";
}

TEST_F(ExperimentConfigTest, FilesThatCannotBeWrittenAreMistakes) {
  const auto with = [&](const std::string& file) {
    return message(text(""), {"model.memory_limit=700kB", "model.layer_file=" + file});
  };
  EXPECT_THAT(with("no/such/l.layers"),
              HasSubstr("model.layer_file: no/such/l.layers lies in no folder that is there: make "
                        "no/such, or name another file"));
  EXPECT_THAT(with("/dev/full"), HasSubstr("model.layer_file: /dev/full is a device or pipe"));
  EXPECT_THAT(with(folder_.path().string()), HasSubstr("is a folder: name a file"));
  EXPECT_EQ(with((folder_.path() / "l.layers").string()), "no error");
}

TEST_F(ExperimentConfigTest, OverridesNameTheirText) {
  EXPECT_THAT(message(text(""), {"max_new_tokens=none"}),
              HasSubstr("--set max_new_tokens=none: max_new_tokens: expected a whole number"));
  EXPECT_THAT(message(text(""), {"nonsense"}), HasSubstr("--set nonsense: expected key=value"));
  EXPECT_THAT(message(text(""), {"=3"}), HasSubstr("expected key=value"));
  EXPECT_THAT(message(text(""), {"--dtype model.dtype=int7"}),
              HasSubstr("--dtype int7: model.dtype: "));
  EXPECT_THAT(message(text(""), {"a=[1"}), HasSubstr("--set a=[1: "));
  EXPECT_THAT(message(text(""), {"strategies.9.type=x"}), HasSubstr("'9' names no item"));
  // What keys make together is the override's doing, not that of the map's line.
  EXPECT_THAT(message(text("sampling: {temperature: 1}\n"), {"sampling.top_p=0"}),
              HasSubstr("--set sampling.top_p=0: sampling.top_p: is 0; it must be above 0"));
  EXPECT_THAT(
      message(text("",
                   "strategies:\n  - {type: speculative, drafter: {type: suffix}, "
                   "draft_length: {type: heuristic, max: 9}}\n"),
              {"strategies.0.draft_length.min=8"}),
      HasSubstr("--set strategies.0.draft_length.min=8: strategies[0].draft_length: min (8)"));
  const auto plan = load(text(""), {"strategies.lookup.draft_length=8", "strategies.0.name=plain",
                                    "sampling.temperature=0.5", "seed=4", "seed=5"});
  EXPECT_THAT(plan.yaml, HasSubstr("draft_length: 8"));
  EXPECT_EQ(plan.points[0].config.strategies[0].name, "plain");
  EXPECT_EQ(plan.points[0].config.sampling.temperature, 0.5);
  EXPECT_EQ(plan.points[0].config.seed, 5U);
}

TEST_F(ExperimentConfigTest, ReportsAllMistakesAtOnce) {
  const auto text_of_errors = message(text("sed: 1\nrepeats: x\nstop: {ids: [-1]}\n"), {"a=b"});
  EXPECT_THAT(text_of_errors, HasSubstr("c.yaml:6: sed"));
  EXPECT_THAT(text_of_errors, HasSubstr("c.yaml:7: repeats"));
  EXPECT_THAT(text_of_errors, HasSubstr("c.yaml:8: stop.ids[0]"));
  EXPECT_THAT(text_of_errors, HasSubstr("--set a=b: a: unknown key"));
}

TEST_F(ExperimentConfigTest, ASweepIsAGrid) {
  const auto plan = load(
      text("sweep: {strategies.lookup.draft_length: [1, 2], sampling.temperature: [0, 0.5, 1]}\n"));
  ASSERT_EQ(plan.points.size(), 6U);
  EXPECT_EQ(plan.points[1].label, "draft_length=1, temperature=0.5");
  EXPECT_EQ(plan.points[5].label, "draft_length=2, temperature=1");
  EXPECT_EQ(plan.points[5].config.sampling.temperature, 1.0);
  EXPECT_THAT(plan.points[5].config.strategies[1].yaml, HasSubstr("draft_length: 2"));
  // Only what is not a strategy's own makes another workload.
  EXPECT_EQ(plan.points[0].config.workload, plan.points[3].config.workload);
  EXPECT_NE(plan.points[0].config.workload, plan.points[1].config.workload);
  EXPECT_EQ(plan.points[0].config.strategies[0].yaml, plan.points[3].config.strategies[0].yaml);
}

TEST_F(ExperimentConfigTest, BiasesAreReadByIdAndText) {
  const auto plan = load(text("sampling: {logit_bias: {7: -2.5, 9: -.inf, 3: 1}}\n"));
  const double never = -std::numeric_limits<double>::infinity();
  EXPECT_EQ(plan.points[0].config.sampling.logit_bias,
            (LogitBias{{3, 1.0}, {7, -2.5}, {9, never}}));
  EXPECT_EQ(load(plan.yaml).points[0].config.sampling.logit_bias,
            plan.points[0].config.sampling.logit_bias);
  EXPECT_TRUE(load(text("")).points[0].config.sampling.logit_bias.empty());
}

TEST_F(ExperimentConfigTest, ActiveLayersMakeAnotherModel) {
  EXPECT_THAT(message(text(""), {"model.active_layers=99"}),
              HasSubstr("model.active_layers: active_layers is 99, but the model has"));
  const auto plan = load(text("sweep: {model.active_layers: [0, 2]}\n"));
  ASSERT_EQ(plan.points.size(), 2U);
  EXPECT_EQ(plan.points[1].config.model.active_layers.count, 2);
  EXPECT_NE(model_key(plan.points[0].config), model_key(plan.points[1].config));
  // Two layers leave no more to draft with.
  const std::string drafter =
      "strategies:\n  - {type: speculative, drafter: {type: self, layers: 3}}\n";
  EXPECT_EQ(message(text("", drafter)), "no error");
  EXPECT_THAT(message(text("", drafter), {"model.active_layers=2"}), HasSubstr("drafter"));
}

TEST_F(ExperimentConfigTest, CudaGraphsAreANumber) {
  EXPECT_EQ(load(text("")).points[0].config.model.cuda_graphs, TransformerOptions{}.graphs);
  const auto plan = load(text("sweep: {model.cuda_graphs: [0, 8]}\n"));
  ASSERT_EQ(plan.points.size(), 2U);
  EXPECT_EQ(plan.points[0].config.model.cuda_graphs, 0);
  EXPECT_NE(model_key(plan.points[0].config), model_key(plan.points[1].config));
  EXPECT_THAT(message(text(""), {"model.cuda_graphs=-1"}), HasSubstr("model.cuda_graphs"));
  EXPECT_THAT(message(text(""), {"model.cuda_graphs=false"}), HasSubstr("model.cuda_graphs"));
}

TEST_F(ExperimentConfigTest, PrefillGraphsAreANumberToo) {
  EXPECT_EQ(load(text("")).points[0].config.model.prefill_graphs, 0);
  const auto plan = load(text("sweep: {model.prefill_graphs: [2, 4]}\n"));
  ASSERT_EQ(plan.points.size(), 2U);
  EXPECT_EQ(plan.points[1].config.model.prefill_graphs, 4);
  EXPECT_NE(model_key(plan.points[0].config), model_key(plan.points[1].config));
  EXPECT_THAT(message(text(""), {"model.prefill_graphs=-1"}), HasSubstr("model.prefill_graphs"));
}

TEST_F(ExperimentConfigTest, PrefillProductsOfALibraryNeedCudaAndWholePrompts) {
  EXPECT_EQ(message(text(""), {"model.prefill_products=exact"}), "no error");
  EXPECT_THAT(message(text(""), {"model.prefill_products=cublas"}),
              HasSubstr("unknown products 'cublas'; known: exact, library"));
  const std::string library = "model.prefill_products=library";
  for (const std::string device : {"cpu", "mps"}) {
    EXPECT_THAT(
        message(text(""), {library, "model.device=" + device}),
        HasSubstr("model.prefill_products: library is cuBLAS, for device: cuda, not '" + device));
  }
  // Without a GPU the device is one more mistake.
  const auto on_cuda = [&](const std::string& set, const std::string& strategies = kStrategies) {
    return message(text("", strategies), {library, "model.device=cuda", set});
  };
  EXPECT_THAT(on_cuda("model.dtype=bfloat16"), Not(HasSubstr("prefill_products")));
  EXPECT_THAT(on_cuda("seed=1"),  // as stored
              HasSubstr("model.prefill_products: library multiplies no float32, in which all "
                        "matrices of this model's layers are: choose dtype: bfloat16"));
  EXPECT_THAT(on_cuda("model.dtype=float32"), HasSubstr("leave out dtype: float32"));
  EXPECT_THAT(on_cuda("model.verify_consistent=true"), HasSubstr("verify_consistent forbids"));
  EXPECT_THAT(on_cuda("prefix_cache.megabytes=8"), HasSubstr("leave one of them out"));
  EXPECT_THAT(on_cuda("seed=1", "strategies: [{type: beam_search}]\n"),
              HasSubstr("beam search reads parts of texts again"));
  ExperimentConfig config = load(text("")).points[0].config;
  const std::string key = model_key(config);
  config.model.library_products = true;
  EXPECT_NE(model_key(config), key);
}

TEST_F(ExperimentConfigTest, SweptKeysAreConditionsOrChoices) {
  for (const char* key : {"sampling.temperature", "sampling.top_p", "model.weights", "model.dtype",
                          "model.kv_dtype", "model.device", "grammar.json_schema", "prompts.file",
                          "threads", "max_new_tokens", "seed", "stop.ids"}) {
    EXPECT_TRUE(is_condition(key)) << key;
  }
  for (const char* key : {"strategies", "strategies.1.draft_length", "strategies.draft.drafter",
                          "strategies.draft.verifier.type", "trace.depth", "log.overlap"}) {
    EXPECT_FALSE(is_condition(key)) << key;
  }
  const auto plan =
      load(text("sweep: {strategies.lookup.draft_length: [1, 2], max_new_tokens: [3, 4]}\n"));
  EXPECT_EQ(plan.points[2].condition, "max_new_tokens=3");
  EXPECT_EQ(plan.points[2].choice, "draft_length=2");
}

TEST_F(ExperimentConfigTest, BrokenYamlIsAnErrorWithItsLine) {
  EXPECT_THAT(message("a: [1\n"), HasSubstr("c.yaml:"));
  EXPECT_THAT(message("- 1\n"), HasSubstr("a config is a map of keys"));
  EXPECT_THAT(message("just text\n"), HasSubstr("a config is a map of keys"));
  EXPECT_THAT(message(""), HasSubstr("the key 'model' is missing"));
  EXPECT_THROW((void)load_experiment(folder_.path(), {}, components_), ConfigError);
  EXPECT_THROW((void)load_experiment(folder_.path() / "no.yaml", {}, components_), ConfigError);
}

}  // namespace
}  // namespace specdec
