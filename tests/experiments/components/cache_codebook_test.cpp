// Codebooks of q3: made by `specdec score --calibrate`, read by a cache's key `codebook`.
#include "experiments/components/cache_codebook.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/formats/safetensors.h"
#include "core/transformer/transformer_model.h"
#include "experiments/components/builtin/builtin.h"
#include "experiments/components/components.h"
#include "experiments/components/model_loading.h"
#include "tests/experiments/cli/cli_result.h"
#include "tests/support/cache_pair.h"
#include "tests/support/error_message.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_gemma.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kCodebookVocab = 40;

/// A folder with a model, a text and a codebook of the model's keys and values of that text.
struct CalibratedModel {
  CalibratedModel() {
    save_gemma(unpack(*weights), model);
    std::string ids = "2";
    for (int i = 0; i < 60; ++i) {
      ids += fmt::format(", {}", 3 + i * i % 31);
    }
    text = folder.write("tokens.jsonl", fmt::format("{{\"tokens\": [{}]}}\n", ids)).string();
  }

  CliResult calibrate(std::vector<std::string> options = {}) const {
    options.insert(options.begin(), {"score", model, text, "--quiet", "--calibrate", file});
    return cli(options);
  }
  std::string yaml(const std::string& options = "") const {
    return fmt::format("{{type: paged, format: q3, codebook: {}{}, lossy: true}}", file, options);
  }
  /// Why the model cannot be loaded with this cache.
  std::string load_error(const std::string& folder_of_model, const std::string& cache) const {
    return error_message<Error>([&] {
      ModelOptions options;
      options.cache = parse_cache(cache, builtin_components());
      options.threads = 1;
      (void)ModelLoader(options).load(folder_of_model);
    });
  }

  std::shared_ptr<TransformerWeights> weights = tiny_gemma(kCodebookVocab, at::kFloat);
  TemporaryFolder folder;
  std::string model = (folder.path() / "model").string();
  std::string text;
  std::string file = (folder.path() / "levels.safetensors").string();
};

TEST(CacheCodebookTest, ItBringsTheCacheOfItsTextNearer) {
  const CalibratedModel one;
  ASSERT_EQ(one.calibrate().code, 0);
  const CacheCodebook codebook = read_cache_codebook(one.file);
  EXPECT_EQ(codebook.tokens, 60) << "the last one is not fed";
  ASSERT_EQ(codebook.levels.size(), 3U);
  EXPECT_EQ(codebook.levels[1].sizes(), (std::vector<int64_t>{2, 1, kQ3Levels}));
  EXPECT_FALSE(at::equal(codebook.levels[1], codebook.levels[2]));
  const auto kl = [&](const std::string& cache) {
    const CliResult scored =
        cli({"score", one.model, one.text, "--json", "--against-cache", cache});
    EXPECT_EQ(scored.code, 0) << scored.err;
    return nlohmann::json::parse(scored.out)["against"]["kl"].get<double>();
  };
  const double calibrated = kl(one.yaml());
  EXPECT_GT(calibrated, 0.0);
  EXPECT_LT(calibrated, kl("{type: paged, format: q3, lossy: true}"));
  const Tensor plain = codebook.levels[1];
  ASSERT_EQ(one.calibrate({"--by-magnitude"}).code, 0);
  EXPECT_FALSE(at::equal(read_cache_codebook(one.file).levels[1], plain));
}

TEST(CacheCodebookTest, ChainsTreesForksAndSnapshotsHaveDecodingsBits) {
  const c10::InferenceMode guard;
  const CalibratedModel one;
  ASSERT_EQ(one.calibrate({"--rotation", "hadamard"}).code, 0);
  const auto factory = [&](const std::string& type) {
    return parse_cache(fmt::format("{{type: {}, format: q3, rotation: hadamard, codebook: {}, "
                                   "exact_recent: 3, lossy: true}}",
                                   type, one.file),
                       builtin_components())
        .factory(KvFormat::kNative);
  };
  CachePair pair(one.weights, factory("paged, page_size: 2"), factory("contiguous"), 11);
  for (int step = 0; step < 60 && !HasFatalFailure(); ++step) {
    pair.step();
  }
  TransformerModel calibrated(one.weights, factory("paged"));
  TransformerModel fixed(one.weights, parse_cache("{type: paged, format: q3, rotation: hadamard, "
                                                  "exact_recent: 3, lossy: true}",
                                                  builtin_components())
                                          .factory(KvFormat::kNative));
  EXPECT_NE(calibrated.snapshots()->kv_key(), fixed.snapshots()->kv_key());
}

TEST(CacheCodebookTest, ADraftersCacheMayHaveOneAndDraftModelsHaveTheFixedLevels) {
  const CalibratedModel one;
  ASSERT_EQ(one.calibrate().code, 0);
  const CacheChoice choice = parse_cache(one.yaml(), builtin_components());
  const auto levels = [&](const CacheChoice& cache) {
    return TransformerModel(one.weights, cache.factory(KvFormat::kNative))
        .cache()
        .describe(0)
        .levels;
  };
  EXPECT_TRUE(levels(choice).defined());
  EXPECT_FALSE(levels(choice.beside_target()).defined());
}

TEST(CacheCodebookTest, WhatItIsNotForIsAnErrorThatSaysHowToMakeOne) {
  const CalibratedModel one;
  ASSERT_EQ(one.calibrate().code, 0);
  const std::string other = (one.folder.path() / "other").string();
  save_gemma(unpack(*tiny_gemma(kCodebookVocab, at::kFloat, 2)), other);
  EXPECT_EQ(one.load_error(one.model, one.yaml()), "no error");
  EXPECT_THAT(one.load_error(other, one.yaml()),
              AllOf(HasSubstr(one.file), HasSubstr("--calibrate FILE")));
  EXPECT_THAT(one.load_error(SPECDEC_SOURCE_DIR "/tests/data/recurrentgemma-a", one.yaml()),
              HasSubstr("for the weights"));
  EXPECT_THAT(one.load_error(one.model, one.yaml(", rotation: hadamard")),
              AllOf(HasSubstr("calibrated with rotation: none"), HasSubstr("--rotation hadamard")));
  EXPECT_THAT(
      one.load_error(one.model, fmt::format("{{type: paged, format: q4, codebook: {}}}", one.file)),
      HasSubstr("give format: q3"));
  const std::string damaged = one.folder.write("damaged.safetensors", "12345678").string();
  EXPECT_THAT(
      one.load_error(one.model, fmt::format("{{type: paged, format: q3, codebook: {}}}", damaged)),
      HasSubstr("damaged.safetensors"));
  write_safetensors(damaged, {}, {{"model", "x"}, {"rotation", "sideways"}});
  EXPECT_THAT(
      one.load_error(one.model, fmt::format("{{type: paged, format: q3, codebook: {}}}", damaged)),
      AllOf(HasSubstr("unknown rotation 'sideways'"), HasSubstr("--calibrate FILE")));
  std::vector<LayerKv> layers(2, {.kv_heads = 1, .head_dim = 8});
  EXPECT_THAT(error_message<Error>([&] { read_cache_codebook(one.file).give_to(layers); }),
              HasSubstr("3 layers, not 2"));
  layers.resize(3, {.kv_heads = 4, .head_dim = 8});
  EXPECT_THAT(error_message<Error>([&] { read_cache_codebook(one.file).give_to(layers); }),
              HasSubstr("layer 2 has 1 heads"));
  layers.assign(3, {.kv_heads = 1, .head_dim = 8});
  const auto measured =
      parse_cache(one.yaml(), builtin_components())
          .factory(KvFormat::kNative)(layers, {.device = at::kMeta, .max_length = 64});
  EXPECT_TRUE(measured->describe(0).levels.is_meta()) << "levels lie where the pages do";
  EXPECT_THAT(one.calibrate({"--cache", "{type: paged, format: q8, lossy: true}"}).err,
              HasSubstr("--calibrate reads keys and values as they are"));
  EXPECT_EQ(cli({"score", one.model, one.text, "--by-magnitude"}).code, 2);
  ASSERT_EQ(one.calibrate({"--rotation", "hadamard"}).code, 0);
  EXPECT_THAT(one.load_error(other, one.yaml(", rotation: hadamard")),
              HasSubstr("--calibrate FILE --rotation hadamard'"));
}

TEST(CacheCodebookTest, AFileThatCannotBeWrittenIsSaidBeforeTheScoring) {
  const CalibratedModel one;
  const std::vector<std::string> score = {"score", one.model, one.text, "--window", "16777216"};
  const auto error = [&](const std::string& file) {
    auto arguments = score;
    arguments.insert(arguments.end(), {"--calibrate", file});
    return cli(arguments).err;
  };
  EXPECT_THAT(error("/proc/no/levels"),
              HasSubstr("--calibrate: /proc/no/levels lies in no folder that is there"));
  const std::string missing =
      (std::filesystem::path(one.file).parent_path() / "new/levels").string();
  EXPECT_THAT(error(missing), HasSubstr("lies in no folder that is there: make "));
  EXPECT_FALSE(std::filesystem::exists(std::filesystem::path(missing).parent_path()))
      << "folders are not made silently";
  EXPECT_THAT(error(one.text), HasSubstr("holds no levels, so it is not overwritten"));
  EXPECT_THAT(error(one.file), HasSubstr("--window 16777216")) << "which is found out next";
  EXPECT_FALSE(std::filesystem::exists(one.file)) << "no half file";
}

}  // namespace
}  // namespace specdec
