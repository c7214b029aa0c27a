// Draft models whose weights lie in memory in another format than the target's.
#include "experiments/components/format_choice.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "experiments/components/components.h"
#include "experiments/components/model_loading.h"
#include "experiments/config/config_node.h"
#include "tests/experiments/run/run_fixture.h"
#include "tests/support/error_message.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::string kTarget = SPECDEC_SOURCE_DIR "/models/target";

class FormatChoiceTest : public RunFixture {
 protected:
  void write_config(const std::string& model, const std::string& strategies) {
    folder_.write("p.jsonl", "{\"tokens\": [2, 5, 9, 5, 9, 40, 41]}\n{\"tokens\": [2, 7]}\n");
    folder_.write("c.yaml",
                  "model: " + model +
                      "\nprompts: {file: p.jsonl}\nmax_new_tokens: 24\nwarm_up: 0\n"
                      "stop: {ignore_eos: true}\nstrategies:\n  - type: autoregressive\n" +
                      strategies);
  }
  /// What check says of a draft model with these options, beside a target with those.
  std::string plan_error(const std::string& draft, const std::string& target = "") {
    const std::string model = test_data("gemma3-a").string();
    write_config(
        "{weights: " + model + target + "}",
        "  - {type: speculative, drafter: {type: draft_model, weights: " + model + draft + "}}\n");
    return error_message<ConfigError>(
        [&] { (void)load_experiment(folder_.path() / "c.yaml", {}, components_); });
  }
};

TEST(FormatsOfLoadedModelsTest, EachFormatOfAModelIsLoadedOnce) {
  const auto folder = test_data("gemma3-a");
  ModelLoader loader({.dtype = "float32", .threads = 1});
  const auto plain = loader.weights(folder);
  const auto rounded = loader.weights(folder, {.dtype = "int8"});
  const auto integers = loader.weights(folder, {.dtype = "int8", .activations = "int8"});
  EXPECT_EQ(format_text(*plain), "float32");
  EXPECT_EQ(format_text(*rounded), "int8");
  EXPECT_EQ(format_text(*integers), "int8, activations int8");
  EXPECT_EQ(loader.weights(folder), plain);
  EXPECT_EQ(loader.weights(folder, {.dtype = "float32", .activations = "float32"}), plain);
  EXPECT_EQ(loader.weights(folder, {.kv_dtype = "bfloat16"}), plain) << "of the cache alone";
  EXPECT_EQ(loader.weights(folder, {.dtype = "int8", .activations = ""}), rounded);
  EXPECT_EQ(&loader.load(folder, {}, std::nullopt, {.dtype = "int8"})->weights(), rounded.get());
  const auto names = loader.fingerprints();
  EXPECT_EQ(names.size(), 3U);
  EXPECT_TRUE(names.contains(folder.string()));
  EXPECT_TRUE(names.contains(folder.string() + " (dtype int8)"));
  EXPECT_TRUE(names.contains(folder.string() + " (dtype int8, activations int8)"));
}

TEST(FormatsOfLoadedModelsTest, KvDtypeIsTheModelsOwn) {
  const auto folder = test_data("gemma3-a");
  ModelLoader loader({.dtype = "float32", .kv_dtype = "bfloat16", .threads = 1});
  const auto bytes = [&](const FormatChoice& formats) {
    const auto model = loader.load(folder, {}, CacheChoice(), formats);
    return model->cache().statistics().layers.front().page_bytes;
  };
  EXPECT_EQ(bytes({.kv_dtype = "float32"}), 2 * bytes({}));
  EXPECT_EQ(bytes({.dtype = "float64"}), 4 * bytes({})) << "which has no other kv_dtype";
}

TEST(FormatsOfLoadedModelsTest, AKvDtypeIsRefusedInWhateverOrderModelsAreLoaded) {
  const auto folder = test_data("gemma3-a");
  const std::string why = "kv_dtype bfloat16 needs float32 activations";
  for (const char* kv_dtype : {"float32", "bfloat16"}) {
    ModelLoader loader({.dtype = "float64", .kv_dtype = kv_dtype, .threads = 1});
    const auto error = [&](const FormatChoice& formats) {
      return error_message<Error>([&] { (void)loader.weights(folder, formats); });
    };
    for (int twice = 0; twice < 2; ++twice) {
      EXPECT_THAT(error({.kv_dtype = "bfloat16"}), HasSubstr(why));
      EXPECT_EQ(error({.kv_dtype = "float32"}), "no error") << "that of the weights";
      EXPECT_EQ(error({.kv_dtype = ""}), "no error");
    }
  }
}

TEST(FormatsOfLoadedModelsTest, AMemoryLimitIsOfTheTargetsFormatsAlone) {
  const TemporaryFolder layers;
  const auto folder = test_data("gemma3-a");
  ModelLoader loader({.dtype = "float32",
                      .threads = 1,
                      .memory = {.model = folder,
                                 .bytes = parse_bytes("700kB"),
                                 .layer_file = layers.path() / "layers"}});
  EXPECT_NE(loader.weights(folder)->source, nullptr);
  EXPECT_EQ(loader.weights(folder, {.dtype = "float64"})->source, nullptr) << "twice its bytes";
  EXPECT_EQ(loader.weights(folder, {.dtype = "float32"}), loader.weights(folder));
}

TEST_F(FormatChoiceTest, ADraftModelsNameHasItsFormats) {
  const std::string folder = test_data("gemma3-a").string();
  ModelLoader loader({.dtype = "float32", .threads = 1});
  const auto target = loader.load(folder);
  BuildContext context{*target, loader, {}};
  const auto name = [&](const std::string& formats) {
    ModelCatalog models;
    const auto errors = std::make_shared<ConfigErrors>();
    const ConfigNode node(
        parse_yaml("{type: draft_model, weights: " + folder + formats + "}", "test", false),
        errors);
    (void)components_.drafters.prepare(
        node, {.components = components_, .models = models, .sampling = {}})(context);
    errors->throw_if_any();
    return context.draft_model_name;
  };
  EXPECT_EQ(name(""), folder);
  EXPECT_EQ(name(", dtype: int8"), folder + " (dtype int8)");
  EXPECT_EQ(name(", dtype: int8, activations: int8, kv_dtype: bfloat16"),
            folder + " (dtype int8, activations int8, kv_dtype bfloat16)");
  EXPECT_EQ(name(", dtype: int8, cache: {type: paged, format: q8}"),
            folder + " (dtype int8) (cache {type: paged, format: q8})");
}

TEST_F(FormatChoiceTest, DraftsInAnyFormatKeepTheTargetsTokens) {
  const auto arm = [](const char* name, const std::string& formats) {
    return fmt::format(
        "  - {{name: {}, type: speculative, draft_length: 3, drafter: {{type: "
        "draft_model, weights: {}{}}}}}\n",
        name, kTarget, formats);
  };
  write_config("{weights: " + kTarget + ", dtype: float32}",
               arm("same", "") + arm("int8", ", dtype: int8") +
                   arm("integers", ", dtype: int8, activations: int8, kv_dtype: bfloat16") +
                   arm("double", ", dtype: float64"));
  const Report report = run();
  EXPECT_TRUE(report.summary.divergences.empty());
  std::map<std::string, std::set<std::vector<Token>>> by_prompt;
  std::map<std::string, int64_t> accepted;
  std::map<std::string, int64_t> drafted;
  for (const GenerationRecord& record : records()) {
    by_prompt[record.key.prompt_id].insert(record.generation.tokens);
    for (const StepStatistics& step : record.generation.steps) {
      accepted[record.key.strategy] += step.accepted;
      drafted[record.key.strategy] += step.drafted;
    }
  }
  for (const auto& [id, different] : by_prompt) {
    EXPECT_EQ(different.size(), 1U) << id;
  }
  EXPECT_EQ(accepted["same"], drafted["same"]) << "it is the target";
  EXPECT_GT(accepted["int8"], 10);
  EXPECT_GT(accepted["integers"], 10);
  EXPECT_GT(accepted["double"], 10);
  const auto& weights = report.environment.weights;
  EXPECT_TRUE(weights.contains(kTarget));
  EXPECT_TRUE(weights.contains(kTarget + " (dtype int8)"));
  EXPECT_TRUE(weights.contains(kTarget + " (dtype int8, activations int8)"));
  EXPECT_TRUE(weights.contains(kTarget + " (dtype float64)"));
}

TEST_F(FormatChoiceTest, TheResolvedConfigSaysWhatWasGiven) {
  EXPECT_EQ(plan_error(", dtype: bfloat16"), "no error");
  const std::string given = load_experiment(folder_.path() / "c.yaml", {}, components_).yaml;
  EXPECT_THAT(given, HasSubstr("dtype: bfloat16"));
  EXPECT_EQ(plan_error(""), "no error");
  const std::string none = load_experiment(folder_.path() / "c.yaml", {}, components_).yaml;
  EXPECT_THAT(none, Not(HasSubstr("dtype: bfloat16")));
}

TEST_F(FormatChoiceTest, WhatCannotBeIsRefusedBeforeAnythingIsLoaded) {
  const std::string key = "strategies[1].drafter.";
  EXPECT_THAT(plan_error(", dtype: radox"), HasSubstr(key + "dtype: unknown dtype 'radox'"));
  EXPECT_THAT(plan_error(", kv_dtype: int8"), HasSubstr(key + "kv_dtype: unknown kv_dtype 'int8'"));
  EXPECT_THAT(plan_error(", activations: half"),
              HasSubstr(key + "activations: unknown activations 'half'"));
  EXPECT_THAT(plan_error(", activations: int8"),
              HasSubstr(key + "activations: int8 needs weights in blocks"));
  EXPECT_EQ(plan_error(", activations: int8, dtype: int8"), "no error");
  EXPECT_THAT(plan_error(", dtype: bfloat16", ", dtype: int8, activations: int8"),
              AllOf(HasSubstr(key + "weights: model.activations are the draft model's too"),
                    HasSubstr("or give it activations: float32")));
  EXPECT_EQ(
      plan_error(", dtype: bfloat16, activations: float32", ", dtype: int8, activations: int8"),
      "no error");
  EXPECT_THAT(plan_error(", dtype: float64, kv_dtype: bfloat16"),
              HasSubstr(key + "kv_dtype: bfloat16 needs float32 activations"));
  EXPECT_EQ(plan_error(", dtype: float64, kv_dtype: float32"), "no error");
  EXPECT_EQ(plan_error(", dtype: float64", ", kv_dtype: bfloat16"), "no error");
}

TEST_F(FormatChoiceTest, AllMistakesAreNotedAtOnce) {
  const std::string key = "strategies[1].drafter.";
  EXPECT_THAT(plan_error("-nowhere, dtype: radox, activations: half, kv_dtype: int8"),
              AllOf(HasSubstr(key + "weights: "), HasSubstr(key + "dtype: unknown dtype 'radox'"),
                    HasSubstr(key + "activations: unknown activations 'half'"),
                    HasSubstr(key + "kv_dtype: unknown kv_dtype 'int8'")));
  EXPECT_THAT(plan_error("-nowhere, dtype: float32, activations: int8"),
              HasSubstr(key + "activations: int8 needs weights in blocks"));
}

TEST_F(FormatChoiceTest, WhatAGpuDoesNotComputeIsRefused) {
  const std::string key = "strategies[1].drafter.";
  const std::string gpu = ", device: cuda";
  const std::string float64 = "dtype: dtype float64 runs on the CPU only, not on 'cuda'";
  const std::string int8 = "activations: int8 activations run on the CPU only, not on 'cuda'";
  EXPECT_THAT(plan_error(", dtype: float64", gpu), HasSubstr(key + float64));
  EXPECT_THAT(plan_error(", dtype: int8, activations: int8", gpu), HasSubstr(key + int8));
  EXPECT_THAT(plan_error(", dtype: bfloat16", gpu), Not(HasSubstr(key)));
  EXPECT_THAT(plan_error(", kv_dtype: float32", gpu + ", dtype: float64"),
              AllOf(HasSubstr("model." + float64), Not(HasSubstr(key))));
  EXPECT_THAT(plan_error("", gpu + ", dtype: int8, activations: int8"),
              AllOf(HasSubstr("model." + int8), Not(HasSubstr(key))));
}

TEST_F(FormatChoiceTest, FormatsOfCachesGoByTheDraftsOwn) {
  const std::string key = "strategies[1].drafter.";
  const std::string q8 = ", cache: {type: paged, format: q8}";
  const std::string lossy = ", cache: {type: paged, format: q8, lossy: true}";
  EXPECT_THAT(plan_error(", kv_dtype: bfloat16" + q8),
              HasSubstr(key + "kv_dtype: kv_dtype bfloat16 and the cache's format q8 are two"));
  EXPECT_THAT(plan_error(", kv_dtype: bfloat16", lossy),
              HasSubstr(key + "kv_dtype: kv_dtype bfloat16 and the cache's format q8 are two"));
  EXPECT_EQ(plan_error(", dtype: bfloat16" + q8, ", kv_dtype: bfloat16"), "no error");
  EXPECT_EQ(plan_error(", kv_dtype: bfloat16, cache: {type: paged}", lossy), "no error");
  EXPECT_THAT(plan_error(", dtype: float64" + q8),
              HasSubstr(key + "cache.format: q8 is for float32 activations on the CPU and CUDA, "
                              "but dtype is float64"));
  EXPECT_THAT(plan_error(", dtype: float64", lossy),
              HasSubstr(key + "dtype: is float64, but its cache is like the target's, whose format "
                              "q8 is for float32 activations"));
  EXPECT_EQ(plan_error(", dtype: float64, cache: {type: paged}", lossy), "no error");
  EXPECT_EQ(plan_error(", dtype: float32" + q8, ", dtype: float64"), "no error");
}

}  // namespace
}  // namespace specdec
