// The drafter `self` with an adapter, and other heads of the base, as configs name them.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <set>

#include "core/error.h"
#include "core/families/model.h"
#include "core/transformer/adapters/lora_writer.h"
#include "core/transformer/heads/eagle_head.h"
#include "tests/experiments/run/run_fixture.h"
#include "tests/support/error_message.h"
#include "tests/support/golden.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

class BuiltinSelfTest : public RunFixture {
 protected:
  /// A random adapter of the first layers of a model, in a folder of the test's.
  void write_adapter(const std::filesystem::path& model, int64_t layers, const char* name) {
    save_lora(random_lora(*load_model(model), {.rank = 2, .alpha = 1.0, .layers = layers}, 3),
              folder_.path() / name, at::kFloat);
  }

  /// A config of plain decoding and of these strategies.
  void write_config(const std::string& model, const std::string& strategies) {
    folder_.write("p.jsonl", "{\"tokens\": [2, 5, 9, 5, 9, 40, 41]}\n{\"tokens\": [2, 7]}\n");
    folder_.write("c.yaml",
                  "model: " + model +
                      "\nprompts: {file: p.jsonl}\nmax_new_tokens: 24\nwarm_up: 0\n"
                      "stop: {ignore_eos: true}\nstrategies:\n  - type: autoregressive\n" +
                      strategies);
  }

  std::string plan_error() {
    return error_message<ConfigError>(
        [&] { (void)load_experiment(folder_.path() / "c.yaml", {}, components_); });
  }

  std::string path(const char* name) const { return (folder_.path() / name).string(); }
};

TEST_F(BuiltinSelfTest, TheShippedTargetsTokensAreKeptByAnyAdapter) {
  const std::string target = SPECDEC_SOURCE_DIR "/models/target";
  write_adapter(target, 3, "lora");
  const std::string drafter = ", drafter: {type: self, layers: 3, adapter: lora}}\n";
  write_config(
      "{weights: " + target + "}",
      "  - {name: chain, type: speculative, draft_length: 3" + drafter +
          "  - {name: static, type: speculative, tree: {type: static, paths: [[0], [1], [0, 0]]}" +
          drafter + "  - {name: dynamic, type: speculative, tree: {type: dynamic, nodes: 4}" +
          drafter +
          "  - {name: adaptive, type: speculative, draft_length: {type: adaptive, initial: 2, max: "
          "3}, "
          "drafter: {type: self, layers: 3, adapter: {path: lora, scale: 0.25}}}\n");
  const Report report = run();
  EXPECT_TRUE(report.summary.divergences.empty());
  std::map<std::string, std::set<std::vector<Token>>> by_prompt;
  std::map<std::string, int64_t> drafted;
  for (const GenerationRecord& record : records()) {
    by_prompt[record.key.prompt_id].insert(record.generation.tokens);
    for (const StepStatistics& step : record.generation.steps) {
      drafted[record.key.strategy] += step.drafted;
    }
  }
  for (const auto& [id, different] : by_prompt) {
    EXPECT_EQ(different.size(), 1U) << id;
  }
  for (const char* name : {"chain", "static", "dynamic", "adaptive"}) {
    EXPECT_GT(drafted[name], 10) << name;
  }
  EXPECT_EQ(report.environment.weights.at(path("lora")).size(), 16U) << "its fingerprint";
  EXPECT_THAT(report.environment.warnings, Not(Contains(HasSubstr("with adapters"))));
}

TEST_F(BuiltinSelfTest, DraftsByUpperHalvesAndFollowingCachesKeepTheTargetsTokens) {
  const std::string self = ", type: speculative, draft_length: 3, drafter: {type: self, ";
  write_config("{weights: " SPECDEC_SOURCE_DIR
               "/models/target, cache: {type: paged, format: hierarchical, lossy: true}}",
               "  - {name: halves" + self + "upper_half: true}}\n" + "  - {name: layers" + self +
                   "upper_half: true, layers: 4}}\n" + "  - {name: q3" + self +
                   "cache: {type: paged, format: q3, rotation: hadamard}}}\n"
                   "  - {name: dynamic, type: speculative, tree: {type: dynamic, nodes: 4}, "
                   "drafter: {type: self, upper_half: true}}\n");
  const Report report = run();
  EXPECT_TRUE(report.summary.divergences.empty());
  std::map<std::string, std::set<std::vector<Token>>> by_prompt;
  std::map<std::string, int64_t> accepted;
  for (const GenerationRecord& record : records()) {
    by_prompt[record.key.prompt_id].insert(record.generation.tokens);
    for (const StepStatistics& step : record.generation.steps) {
      accepted[record.key.strategy] += step.accepted;
    }
  }
  for (const auto& [id, different] : by_prompt) {
    EXPECT_EQ(different.size(), 1U) << id;
  }
  for (const char* name : {"halves", "q3", "dynamic"}) {
    EXPECT_GT(accepted[name], 10) << name;
  }
}

TEST_F(BuiltinSelfTest, UpperHalvesNeedACacheThatHasThem) {
  const auto refused = [&](const std::string& cache, const std::string& drafter) {
    write_config(
        "{weights: " + test_data("gemma3-a").string() + cache + "}",
        "  - {type: speculative, draft_length: 2, drafter: {type: self, " + drafter + "}}\n");
    return plan_error();
  };
  const std::string halves = ", cache: {type: paged, format: hierarchical, lossy: true}";
  EXPECT_EQ(refused(halves, "upper_half: true"), "no error");
  EXPECT_THAT(refused("", "upper_half: true"),
              AllOf(HasSubstr("drafter.upper_half"), HasSubstr("format: hierarchical")));
  EXPECT_THAT(refused(", cache: {type: paged, format: q8, lossy: true}", "upper_half: true"),
              HasSubstr("which has none"));
  EXPECT_THAT(refused(halves, "upper_half: true, cache: {type: paged, format: q4}"),
              HasSubstr("leave out layers, skip, upper_half and adapter"));
  EXPECT_THAT(refused(", device: cuda" + halves, "upper_half: true"),
              Not(HasSubstr("hierarchical")));
  EXPECT_THAT(refused(", device: mps" + halves, "upper_half: true"),
              Not(HasSubstr("hierarchical")));
  EXPECT_THAT(refused("", "cache: {type: paged}"), HasSubstr("is exact, so drafts would cost"));
  EXPECT_THAT(refused("", "cache: {type: paged, format: [q4]}"), Not(HasSubstr("is exact")));
  EXPECT_THAT(refused("", "cache: {type: paged, format: q3, rotation: fourier}"),
              HasSubstr("known: none, hadamard"));
}

TEST_F(BuiltinSelfTest, AllLayersHaveNoAdapterOfTheirOwn) {
  const std::string target = test_data("gemma3-a").string();
  write_adapter(target, 1, "lora");
  const auto refused = [&](const std::string& drafter) {
    write_config(
        "{weights: " + target + ", cache: {type: paged, format: hierarchical, lossy: true}}",
        "  - {type: speculative, draft_length: 2, drafter: {type: self, upper_half: true, "
        "adapter: lora" +
            drafter + "}}\n");
    return plan_error();
  };
  const int64_t all = load_model(target)->config.num_layers;
  for (const std::string& layers : {std::string(), fmt::format(", layers: {}", all)}) {
    EXPECT_THAT(refused(layers), AllOf(HasSubstr("drafter.adapter"),
                                       HasSubstr("give 'layers' or 'skip' beside upper_half")));
  }
  EXPECT_EQ(refused(fmt::format(", layers: {}", all - 1)), "no error");
  EXPECT_EQ(refused(", skip: [1]"), "no error");
}

TEST_F(BuiltinSelfTest, ACacheOfItsOwnFollowsNoRecurrentLayers) {
  const auto refused = [&](const std::string& drafter) {
    write_config(
        "{weights: " + test_data("recurrentgemma-a").string() + "}",
        "  - {type: speculative, draft_length: 2, drafter: {type: self, " + drafter + "}}\n");
    return plan_error();
  };
  EXPECT_THAT(refused("cache: {type: paged, format: q8}"),
              AllOf(HasSubstr("drafter.cache"), HasSubstr("recurrent layers")));
  EXPECT_EQ(refused("layers: 2"), "no error");
  EXPECT_THAT(refused("layers: [0, 1]"),
              AllOf(HasSubstr("expected a whole number"), Not(HasSubstr("all of the target's"))));
}

TEST_F(BuiltinSelfTest, ACacheOfItsOwnIsCheckedAsTheTargetsIs) {
  const std::string target = test_data("gemma3-a").string();
  const auto refused = [&](const std::string& options, const std::string& drafter) {
    write_config("{weights: " + target + options + "}",
                 "  - {type: speculative, draft_length: 2, drafter: {" + drafter + "}}\n");
    return plan_error();
  };
  for (const std::string& drafter :
       {std::string("type: self"), "type: draft_model, weights: " + target}) {
    const auto with_cache = [&](const std::string& options, const std::string& cache) {
      return refused(options, drafter + ", cache: {" + cache + "}");
    };
    EXPECT_EQ(with_cache("", "type: paged, format: q3"), "no error");
    EXPECT_THAT(with_cache(", device: cuda", "type: paged, format: q3, rotation: hadamard"),
                Not(HasSubstr("drafter.cache")));
    EXPECT_THAT(with_cache(", device: mps", "type: paged, format: q3"),
                HasSubstr("drafter.cache.format: q3 is for float32 activations on the CPU and "
                          "CUDA, but device is mps"));
    EXPECT_THAT(with_cache(", device: mps", "type: tiered"),
                HasSubstr("drafter.cache.type: tiered is for the CPU and CUDA, but device is mps"));
    EXPECT_THAT(with_cache(", device: cuda", "type: tiered, format: q8"),
                Not(HasSubstr("drafter.cache")));
    EXPECT_THAT(with_cache(", device: cuda", "type: tracing, of: {type: tiered}"),
                HasSubstr("a trace of one with tiers is for the CPU, but device is cuda"));
    EXPECT_THAT(with_cache(", device: cuda", "type: compressed"), Not(HasSubstr("drafter.cache")));
    EXPECT_THAT(with_cache(", dtype: float64", "type: paged, format: q4"),
                HasSubstr("drafter.cache.format: q4 is for float32 activations on the CPU and "
                          "CUDA, but dtype is float64"));
    EXPECT_THAT(with_cache("", "type: paged, format: q4, lossy: true"),
                AllOf(HasSubstr("drafter.cache.lossy: is for a target's cache"),
                      Not(HasSubstr("unknown key"))));
  }
}

TEST_F(BuiltinSelfTest, ADraftModelsOwnCacheThatIsFullSaysWhoseItIs) {
  const std::string model = test_data("gemma3-a").string();
  int runs = 0;
  const auto failed = [&](const std::string& drafter) {
    write_config("{weights: " + model + "}",
                 "  - {type: speculative, drafter: {" + drafter + "}}\n");
    const std::string out = fmt::format("out{}", ++runs);
    return error_message<Error>([&] { (void)run({}, out); });
  };
  const std::string small =
      "type: draft_model, weights: " + model + ", cache: {type: paged, max_pages: 1}";
  EXPECT_THAT(failed(small), AllOf(HasSubstr("drafter draft_model, whose cache is its own "
                                             "(strategies[1].drafter.cache, not model.cache)"),
                                   HasSubstr("holds 1 pages of 16 tokens, not 2")));
  EXPECT_THAT(failed("type: cascade, drafters: [{type: suffix, min_tokens: 9}, {" + small + "}]"),
              HasSubstr("(strategies[1].drafter.drafters[1].cache, not model.cache)"));
  EXPECT_THAT(failed("type: self, cache: {type: paged, format: q4, max_pages: 1}"),
              HasSubstr("(strategies[1].drafter.cache, not model.cache)"));
}

TEST_F(BuiltinSelfTest, ATreeDeeperThanTheTargetsCacheTakesIsRefused) {
  const auto refused = [&](const std::string& widths, const std::string& recent = "") {
    write_config("{weights: " + test_data("gemma3-a").string() +
                     ", cache: {type: paged, format: kivi4, lossy: true" + recent + "}}",
                 "  - {type: speculative, tree: {type: static, widths: [" + widths +
                     "]}, drafter: {type: prompt_lookup}}\n");
    return plan_error();
  };
  std::string chain = "1";
  for (int level = 1; level < 31; ++level) {
    chain += ", 1";
  }
  constexpr const char* kShort = ", exact_recent: 32";
  EXPECT_THAT(refused("2, " + chain, kShort),
              HasSubstr("32 levels are too deep for the target's cache in kivi4: with exact_recent "
                        "32 branches have 31 at most"));
  EXPECT_THAT(refused("1, " + chain, kShort), Not(HasSubstr("too deep"))) << "a chain";
  EXPECT_THAT(refused("2, " + chain), Not(HasSubstr("too deep"))) << "128 tokens are exact";
}

TEST_F(BuiltinSelfTest, ATreeDeeperThanADraftersOwnCacheTakesIsRefused) {
  const std::string model = test_data("qwen3-a").string();  // without a window
  const auto refused = [&](const std::string& strategy, int64_t levels,
                           const std::string& drafter) {
    write_config("{weights: " + model + "}",
                 fmt::format("  - {{{} {}{}, drafter: {{{}, cache: {{type: paged, format: kivi2, "
                             "exact_recent: 32}}}}}}\n",
                             strategy, levels, strategy.ends_with("depth:") ? "}" : "", drafter));
    return plan_error();
  };
  const std::string draft_model = "type: draft_model, weights: " + model;
  const std::string tree = "type: speculative, tree: {type: dynamic, depth:";
  const std::string beams = "type: speculative_beam, draft_length:";
  EXPECT_EQ(refused(tree, 33, draft_model), "no error");
  EXPECT_EQ(refused(beams, 33, draft_model), "no error");
  for (const std::string& strategy : {tree, beams}) {
    EXPECT_THAT(refused(strategy, 34, draft_model),
                AllOf(HasSubstr("strategies[1].drafter.cache: a tree of 34 levels is too deep for "
                                "this cache in kivi2"),
                      HasSubstr("trees of 33 levels at most")));
  }
  const auto member = [&](int64_t most) {
    return fmt::format(
        "type: cascade, drafters: [{{type: suffix}}, {{{}, max_tokens: {}, cache: "
        "{{type: paged, format: kivi2, exact_recent: 32}}}}]",
        draft_model, most);
  };
  EXPECT_THAT(refused(tree, 40, member(34)), HasSubstr("drafters[1].cache: a tree of 34 levels"));
  EXPECT_THAT(refused(tree, 40, member(33)), Not(HasSubstr("too deep")))
      << "a draft has no more levels than tokens";
  EXPECT_EQ(refused(tree, 32, "type: self"), "no error");
  EXPECT_THAT(refused(tree, 33, "type: self"), HasSubstr("trees of 32 levels at most"));
  EXPECT_EQ(refused(beams, 4, "type: self"), "no error") << "24 tokens are written";
  EXPECT_THAT(error_message<ConfigError>([&] {
                (void)load_experiment(folder_.path() / "c.yaml", {"max_new_tokens=33"},
                                      components_);
              }),
              HasSubstr("drafter.cache: drafts of beams evaluate all that a beam has written"));
}

TEST_F(BuiltinSelfTest, AnAdapterThatDoesNotFitIsRefused) {
  const std::string target = test_data("gemma3-a").string();
  write_adapter(target, 3, "lora");
  const auto refused = [&](const std::string& drafter) {
    write_config(
        "{weights: " + target + "}",
        "  - {type: speculative, draft_length: 2, drafter: {type: self, " + drafter + "}}\n");
    return plan_error();
  };
  EXPECT_EQ(refused("layers: 3, adapter: lora"), "no error");
  EXPECT_THAT(refused("layers: 2, adapter: lora"),
              AllOf(HasSubstr("drafter.adapter"), HasSubstr("adapts layer 2, which does not draft"),
                    HasSubstr("layers 0, 1 do")));
  EXPECT_THAT(refused("skip: [1], adapter: lora"), HasSubstr("adapts layer 1"));
  EXPECT_THAT(refused("layers: 3, adapter: nothing"), HasSubstr("nothing"));
  EXPECT_THAT(refused("layers: 3, adapter: " + target), HasSubstr("adapter_config.json"));
  EXPECT_THAT(refused("layers: 3, adapter: {path: lora, scal: 2}"), HasSubstr("scal"));
  EXPECT_THAT(refused("layers: 3, adaptor: lora"), HasSubstr("adapter"));
}

TEST_F(BuiltinSelfTest, OtherShapesAndLayersAreFoundWhenItIsLoaded) {
  const std::string target = test_data("gemma3-a").string();
  const auto refused = [&](const std::string& layers, const std::string& name) {
    write_config("{weights: " + target + "}",
                 fmt::format("  - {{type: speculative, draft_length: 2, drafter: {{type: self, "
                             "layers: {}, adapter: {}}}}}\n",
                             layers, name));
    return error_message<Error>([&] { (void)run({}, layers + name.substr(name.rfind('/') + 1)); });
  };
  write_adapter(test_data("gemma2-a"), 1, "other");
  EXPECT_THAT(refused("2", "other"), HasSubstr("other"));
  // The adapter is of all layers, though its config names none.
  EXPECT_THAT(refused("2", test_data("gemma3-lora-a").string()),
              AllOf(HasSubstr("adapts model.layers.2"), HasSubstr("which does not draft")));
}

TEST_F(BuiltinSelfTest, HeadsOfTheBaseUnderAnAdaptedTargetAreMeasuredAndWarnedOf) {
  const std::string target = test_data("gemma3-a").string();
  write_adapter(target, 3, "lora");
  const auto base = load_model(target);
  save_eagle_head(
      *random_eagle_head(make_eagle_config(EagleVersion::kEagle, LayerStyle::kGemma, *base)),
      folder_.path() / "eagle", at::kFloat);
  const std::string strategies =
      "  - {name: eagle, type: speculative, draft_length: 2, drafter: {type: eagle, weights: "
      "eagle}}\n"
      "  - {name: self, type: speculative, draft_length: 2, drafter: {type: self, layers: 3, "
      "adapter: lora}}\n";
  write_config("{weights: " + target + "}", strategies);
  EXPECT_THAT(run().environment.warnings, Not(Contains(HasSubstr("with adapters"))));
  write_config(fmt::format("{{weights: {}, adapters: [{{name: full, path: {}}}]}}", target,
                           test_data("gemma3-lora-a").string()),
               strategies);
  const Report report = run({"prompts.adapter=full"}, "adapted");
  EXPECT_TRUE(report.summary.divergences.empty());
  for (const char* head : {"eagle", "lora"}) {
    EXPECT_THAT(report.environment.warnings,
                Contains(AllOf(HasSubstr(path(head)), HasSubstr("with adapters"))));
  }
  EXPECT_NE(tokens(records("adapted")), tokens(records())) << "another target";
  std::map<std::string, int64_t> drafted;
  for (const GenerationRecord& record : records("adapted")) {
    for (const StepStatistics& step : record.generation.steps) {
      drafted[record.key.strategy] += step.drafted;
    }
  }
  EXPECT_GT(drafted["eagle"], 20) << "its acceptance is measured";
  EXPECT_GT(drafted["self"], 20);
}

}  // namespace
}  // namespace specdec
