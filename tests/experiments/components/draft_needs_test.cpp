#include "experiments/components/draft_needs.h"

#include <c10/core/InferenceMode.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <any>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/families/model.h"
#include "core/formats/safetensors.h"
#include "core/transformer/heads/block_head.h"
#include "core/transformer/heads/drafting_functions.h"
#include "core/transformer/heads/medusa_head.h"
#include "core/transformer/heads/parallel_eagle.h"
#include "experiments/components/components.h"
#include "experiments/components/memory_needs.h"
#include "experiments/run/experiment.h"
#include "kv/paged_kv.h"
#include "tests/experiments/cli/cli_result.h"
#include "tests/support/live_bytes.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

/// What is made of a head's folder beside a target, and lives on.
using MakeHead = std::function<std::any(const std::shared_ptr<const TransformerWeights>& target,
                                        const KvStoreFactory& store)>;

TransformerOptions plain_ops() { return {.max_length = 512, .ops = cpu_ops()}; }

/// A copy of the golden Gemma 3 with random heads beside it.
class DraftNeedsTest : public testing::Test {
 protected:
  DraftNeedsTest() {
    std::filesystem::copy(SPECDEC_SOURCE_DIR "/tests/data/gemma3-a", path("target"));
    folder_.write("p.jsonl", "{\"tokens\": [2, 5, 9]}\n");
    const auto target = load_model(path("target"));
    for (const auto version :
         {EagleVersion::kEagle, EagleVersion::kEagle3, EagleVersion::kPEagle}) {
      EagleConfig config = make_eagle_config(version, LayerStyle::kGemma, *target);
      config.draft_vocab_size = captures_streams(version) ? 99 : config.vocab_size;
      save_eagle_head(*random_eagle_head(config), path(eagle_version_name(version)), at::kFloat);
    }
    save_block_head(*random_block_head(make_block_head_config(*target, 2, 5)), path("dflash"),
                    at::kFloat);
    save_mtp_head(*random_mtp_head(*target, 2), *target, path("target"), at::kFloat);
    const auto tensors = load_model_tensors(path("target"));
    for (const bool is_shared : {false, true}) {
      save_medusa_head(
          new_medusa_head({.num_heads = 3, .share_lm_head = is_shared}, *tensors, at::kFloat),
          path(is_shared ? "medusa_shared" : "medusa"), at::kFloat);
    }
  }

  std::filesystem::path path(const std::string& name) const { return folder_.path() / name; }

  ExperimentPlan plan(const std::string& drafter) const {
    folder_.write("c.yaml",
                  fmt::format("model: {{weights: target, include_mtp: true, max_length: 512}}\n"
                              "prompts: {{file: p.jsonl}}\nmax_new_tokens: 4\nstrategies:\n"
                              "  - {{type: speculative, draft_length: 2, drafter: {{{}}}}}\n",
                              drafter));
    return load_experiment(path("c.yaml"), {}, components_);
  }
  /// What `check --memory` says of the only drafter of a plan.
  DraftNeeds needs(const std::string& drafter, ModelOptions options, int64_t context) const {
    const ExperimentPlan made = plan(drafter);
    const auto& drafts = made.points.front().config.strategies.front().notes.drafts;
    EXPECT_EQ(drafts.size(), 1U);
    options.max_length = 512;
    return drafts.front()(read_model_files(path("target")), options, context);
  }
  /// Bytes of the tensors that stay when a head is loaded, beside what its caches say of theirs.
  std::pair<int64_t, int64_t> allocated(const MakeHead& make, const Placement& place) const {
    const auto target = load_model(path("target"), {.dtype = {}, .place = place});
    std::vector<const KvStore*> stores;
    const KvStoreFactory noted = [&](std::vector<LayerKv> layers, const KvStoreOptions& options) {
      auto made = paged_kv()(std::move(layers), options);
      stores.push_back(made.get());
      return made;
    };
    const auto bytes = std::make_shared<LiveBytes>();
    const c10::DebugInfoGuard counting(c10::DebugInfoKind::PROFILER_STATE, bytes);
    const std::any head = make(target, noted);
    int64_t per_token = 0;
    for (const KvStore* store : stores) {
      const KvStatistics statistics = store->statistics();
      for (const KvStatistics::Layer& layer : statistics.layers) {
        per_token += layer.page_bytes / statistics.page_size;
      }
    }
    return {bytes->live(), per_token};
  }

  TemporaryFolder folder_;
  Components components_ = builtin_components();
};

struct HeadCase {
  std::string drafter;
  MakeHead make;
};

template <class T>
std::any kept(T head) {
  return std::make_shared<T>(std::move(head));
}

/// Every head that is one file beside its target.
std::vector<HeadCase> head_cases(const std::function<std::filesystem::path(std::string)>& path) {
  const auto eagle = [=](EagleVersion version) -> MakeHead {
    return [=](const auto& target, const KvStoreFactory& store) {
      const auto head = load_eagle_head(path(eagle_version_name(version)), version, *target);
      return kept(make_eagle_model(head, target, store, plain_ops()));
    };
  };
  const auto mtp = [=](int64_t modules) -> MakeHead {
    return [=](const auto& target, const KvStoreFactory& store) {
      const auto head = load_mtp_head(path("target"), *target);
      return kept(make_mtp_modules(head, modules, target, store, plain_ops()).models);
    };
  };
  const auto medusa = [=](const std::string& folder) -> MakeHead {
    return [=](const auto& target, const KvStoreFactory&) {
      return std::any(std::make_shared<MedusaModel>(load_medusa_head(path(folder), *target), target,
                                                    plain_ops()));
    };
  };
  const MakeHead block = [=](const auto& target, const KvStoreFactory&) {
    return std::any(load_block_head(path("dflash"), *target));
  };
  return {{"type: eagle, weights: eagle", eagle(EagleVersion::kEagle)},
          {"type: eagle3, weights: eagle3", eagle(EagleVersion::kEagle3)},
          {"type: mtp", mtp(2)},
          {"type: mtp, modules: 1", mtp(1)},
          {"type: medusa, weights: medusa", medusa("medusa")},
          {"type: medusa, weights: medusa_shared", medusa("medusa_shared")},
          {"type: dflash, weights: dflash", block}};
}

TEST_F(DraftNeedsTest, WeightsAreWhatHeadsAllocate) {
  const c10::InferenceMode guard;
  const auto folder = [this](const std::string& name) { return path(name); };
  for (const auto& [drafter, make] : head_cases(folder)) {
    for (const bool on_device : {false, true}) {
      SCOPED_TRACE(drafter + (on_device ? " on a device" : ""));
      const Placement place = {at::kCPU, on_device ? WeightLayout::kRows : WeightLayout::kPanels};
      const DraftNeeds stated =
          needs(drafter, {.dtype = "", .device = on_device ? "cuda" : "cpu"}, 512);
      const auto [weights, cache_per_token] = allocated(make, place);
      const auto bytes = static_cast<double>(weights);
      EXPECT_NEAR(static_cast<double>(stated.weights), bytes, 0.01 * bytes + 1024.0);
      if (drafter.find("dflash") == std::string::npos) {  // whose caches its layers make
        EXPECT_EQ(stated.cache, 512 * cache_per_token);
      }
    }
  }
}

TEST_F(DraftNeedsTest, ADraftModelIsAModel) {
  const ModelFiles files = read_model_files(path("target"));
  const MemoryNeeds model = memory_needs(files, {.dtype = "", .max_length = 512}, 300);
  const DraftNeeds draft = needs("type: draft_model, weights: target", {.dtype = ""}, 300);
  EXPECT_EQ(draft.key, "strategies[0].drafter");
  EXPECT_EQ(draft.weights, model.matrices + model.vectors);
  EXPECT_EQ(draft.total(), model.total());
}

/// Published files of modules hold copies of the target's tables, which are not loaded.
TEST_F(DraftNeedsTest, TablesOfAnMtpFileAreTheTargets) {
  const DraftNeeds without = needs("type: mtp", {.dtype = ""}, 300);
  const ModelFiles files = read_model_files(path("target"));
  const int64_t vocab = files.config.vocab_size;
  const int64_t hidden = files.config.hidden_size;
  {
    const std::vector<float> table(static_cast<size_t>(vocab * hidden));
    const CheckpointTensors held(path("target"), "mtp.safetensors");
    std::vector<TensorToWrite> tensors;
    for (const TensorEntry* entry : held.tensors()) {
      tensors.push_back({entry->name, entry->dtype, entry->shape, entry->bytes});
    }
    for (const char* name : {"mtp.embed_tokens.weight", "mtp.lm_head.weight"}) {
      tensors.push_back({name, DType::kF32, {vocab, hidden}, std::as_bytes(std::span(table))});
    }
    write_safetensors(path("target") / "both.safetensors", tensors, held.metadata());
  }
  std::filesystem::rename(path("target") / "both.safetensors", path("target") / "mtp.safetensors");
  EXPECT_EQ(needs("type: mtp", {.dtype = ""}, 300).weights, without.weights);
}

/// A plan whose memory nobody asks for keeps no files of heads open.
TEST_F(DraftNeedsTest, FilesOfHeadsAreOpenedWhenTheyAreMeasured) {
  for (const std::string name : {"eagle3", "medusa", "dflash"}) {
    const ExperimentPlan made = plan(fmt::format("type: {0}, weights: {0}", name));
    std::filesystem::remove_all(path(name));
    const auto& measure = made.points.front().config.strategies.front().notes.drafts.front();
    EXPECT_THROW((void)measure(read_model_files(path("target")), {.dtype = ""}, 300), WeightsError)
        << name;
  }
}

TEST_F(DraftNeedsTest, WhatADeviceDoesNotRunIsRefusedBeforeAnythingIsPrinted) {
  (void)plan("type: draft_model, weights: target, dtype: float64");
  const CliResult refused = cli({"check", path("c.yaml").string(), "--memory-device", "cuda"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, testing::HasSubstr("strategies[0].drafter: "));
  EXPECT_THAT(refused.out, testing::Not(testing::HasSubstr("bytes of memory")));
}

TEST_F(DraftNeedsTest, CheckCapsWeightsAtTheMemoryLimit) {
  (void)plan("type: eagle3, weights: eagle3");
  const MemoryNeeds all = memory_needs(read_model_files(path("target")), {.dtype = ""}, 512);
  const int64_t weights = all.matrices + all.vectors;
  const auto limited = [&](int64_t bytes) {
    return cli({"check", path("c.yaml").string(), "--memory", "--set",
                fmt::format("model.memory_limit={}kB", bytes / 1000)});
  };
  const int64_t limit = (weights - 1000) / 1000 * 1000;
  const CliResult capped = limited(limit);
  EXPECT_EQ(capped.code, 0) << capped.err;
  EXPECT_THAT(capped.out, testing::AllOf(testing::HasSubstr(fmt::format("model {:>37}", limit)),
                                         testing::HasSubstr(fmt::format(
                                             "memory_limit: {} of {} bytes", limit, weights))));
  const CliResult roomy = limited(weights + 1000000);
  EXPECT_THAT(roomy.out, testing::AllOf(testing::HasSubstr(fmt::format("model {:>37}", weights)),
                                        testing::Not(testing::HasSubstr("memory_limit"))));
}

TEST_F(DraftNeedsTest, CheckPrintsARowForEachDrafter) {
  (void)plan("type: eagle3, weights: eagle3");
  const CliResult plain = cli({"check", path("c.yaml").string()});
  EXPECT_THAT(plain.out, testing::Not(testing::HasSubstr("bytes of memory")));
  for (const std::string device : {"cpu", "cuda"}) {
    const CliResult stated =
        device == "cpu" ? cli({"check", path("c.yaml").string(), "--memory"})
                        : cli({"check", path("c.yaml").string(), "--memory-device", device});
    EXPECT_EQ(stated.code, 0) << stated.err;
    const DraftNeeds head =
        needs("type: eagle3, weights: eagle3", {.dtype = "", .device = device}, 512);
    EXPECT_THAT(stated.out, testing::AllOf(testing::HasSubstr("at 512 tokens on " + device),
                                           testing::HasSubstr("\nmodel "),
                                           testing::HasSubstr("\nstrategies[0].drafter "),
                                           testing::HasSubstr(std::to_string(head.weights)),
                                           testing::HasSubstr(std::to_string(head.total()))));
  }
  const CliResult unknown = cli({"check", path("c.yaml").string(), "--memory-device", "tpu"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, testing::HasSubstr("--memory-device"));
}

/// Features of a prompt are as wide as a head reads them; a cache has what the config says.
TEST_F(DraftNeedsTest, PromptsTakeTheirFeatures) {
  const ModelOptions options{.dtype = ""};
  const auto at_context = [&](const std::string& drafter, int64_t context) {
    return needs(drafter, options, context);
  };
  const int64_t hidden = read_model_files(path("target")).config.hidden_size;
  const auto per_token = [&](const std::string& drafter) {
    return (at_context(drafter, 500).results - at_context(drafter, 484).results) / 16;
  };
  EXPECT_EQ(per_token("type: eagle3, weights: eagle3") - per_token("type: eagle, weights: eagle"),
            2 * 4 * hidden)
      << "three layers for one";
  EXPECT_EQ(per_token("type: medusa, weights: medusa"), 0);
  const std::string two = "type: mtp, modules: 2";
  const std::string one = "type: mtp, modules: 1";
  EXPECT_EQ(at_context(two, 400).cache, 2 * at_context(one, 400).cache);
  EXPECT_EQ(at_context("type: medusa, weights: medusa", 400).cache, 0);
}

}  // namespace
}  // namespace specdec
