#include "core/families/gemma/weights.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>

#include "core/error.h"
#include "core/families/gemma/config.h"
#include "core/families/model.h"
#include "core/formats/strict_json.h"
#include "core/transformer/random_weights.h"
#include "core/transformer/reference.h"
#include "core/transformer/tensor_source.h"
#include "core/transformer/transformer_model.h"
#include "core/transformer/weights.h"
#include "kv/paged_kv.h"
#include "tests/support/golden.h"
#include "tests/support/pickled_file.h"

namespace specdec {
namespace {

namespace fs = std::filesystem;

/// A folder that goes away with the test.
class WeightsTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) /
              fmt::format("weights_test_{}_{}", getpid(),
                          testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  void copy_golden(const std::string& name) { fs::copy(test_data(name), folder_); }

  std::string load_error() const {
    try {
      load_model_tensors(folder_);
    } catch (const WeightsError& error) {
      return error.what();
    }
    return "no error";
  }

  /// Rewrites model.safetensors with one tensor changed.
  void rewrite(const std::function<void(std::vector<TensorToWrite>&)>& change) {
    const fs::path path = folder_ / "model.safetensors";
    fs::rename(path, folder_ / "old");
    const SafetensorsFile file(folder_ / "old");
    std::vector<TensorToWrite> tensors;
    for (const TensorEntry& entry : file.tensors()) {
      tensors.push_back({entry.name, entry.dtype, entry.shape, entry.bytes});
    }
    change(tensors);
    write_safetensors(path, tensors);
  }

  fs::path folder_;
};

TEST_F(WeightsTest, SaveThenLoadIsTheSame) {
  for (const char* name : {"gemma-a", "gemma2-a", "gemma3-a", "vaultgemma-a"}) {
    const auto weights = load_model_tensors(test_data(name));
    save_gemma(*weights, load_gemma_config(test_data(name)).text, folder_, at::kFloat);
    const auto again = load_model_tensors(folder_);
    const auto tokens = at::arange(2, 20, at::kLong).unsqueeze(0);
    EXPECT_LE(max_difference(reference_forward(*weights, tokens).logits,
                             reference_forward(*again, tokens).logits),
              1e-5)
        << name;
  }
}

TEST_F(WeightsTest, BiasesOfAttentionAreReadAndCount) {
  const auto tokens = at::arange(2, 20, at::kLong).unsqueeze(0);
  for (const char* name : {"gemma-a", "gemma2-a", "gemma3-a", "vaultgemma-a"}) {
    auto config = nlohmann::json::parse(read_file(test_data(name) / "config.json"));
    config["attention_bias"] = true;
    const ModelDescription model = parse_gemma_config(config.dump(), "config.json");
    const auto weights = random_model(model, {.norm_deviation = 0.3});
    save_gemma(*weights, model.text, folder_, at::kFloat);
    EXPECT_EQ(load_gemma_config(folder_).plan, model.plan) << name;
    const Tensor logits = reference_forward(*load_model_tensors(folder_), tokens).logits;
    EXPECT_LE(max_difference(reference_forward(*weights, tokens).logits, logits), 1e-5) << name;
    TransformerModel packed(load_model(folder_), paged_kv());
    EXPECT_LE(max_difference(packed.forward({.tokens = tokens[0].to(at::kInt)}).logits, logits[0]),
              1e-4)
        << name;
    for (LayerTensors& layer : weights->layers) {
      layer.output_bias.zero_();
    }
    EXPECT_GT(max_difference(reference_forward(*weights, tokens).logits, logits), 0.01) << name;
    rewrite([](auto& all) {
      std::erase_if(all, [](auto& one) { return one.name.ends_with("1.self_attn.k_proj.bias"); });
    });
    EXPECT_THAT(load_error(),
                testing::HasSubstr("'model.layers.1.self_attn.k_proj.bias' is missing"));
    fs::remove_all(folder_);
  }
}

TEST_F(WeightsTest, UntiedHead) {
  ModelDescription model = load_gemma_config(test_data("gemma3-a"));
  model.config.tie_word_embeddings = false;
  const auto weights = random_model(model);
  save_gemma(*weights, gemma_config_json(model, "float32"), folder_, at::kFloat);
  const auto again = load_model_tensors(folder_);
  EXPECT_TRUE(at::equal(again->head, weights->head));
  EXPECT_FALSE(at::equal(again->head, again->embedding));
}

TEST_F(WeightsTest, EmbeddingScaleIsThatOfActivations) {
  const fs::path golden = test_data("gemma3-bf16-sharded-a");
  const auto scale = [&golden](std::optional<at::ScalarType> dtype) {
    return load_model_tensors(golden, {.dtype = dtype})->embedding_scale;
  };
  EXPECT_EQ(scale({}), std::sqrt(48.0F));
  EXPECT_EQ(scale(at::kFloat), std::sqrt(48.0F));
  EXPECT_EQ(scale(at::kHalf), std::sqrt(48.0F));
  EXPECT_EQ(scale(at::kDouble), std::sqrt(48.0));
}

TEST_F(WeightsTest, FingerprintFollowsTheWeights) {
  copy_golden("gemma3-a");
  const std::string before = load_model_tensors(folder_)->fingerprint;
  EXPECT_EQ(before, load_model_tensors(test_data("gemma3-a"))->fingerprint);
  const fs::path path = folder_ / "model.safetensors";
  std::fstream stream(path, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekp(-1, std::ios::end);
  stream.put('\x01');
  stream.close();
  EXPECT_NE(before, load_model_tensors(folder_)->fingerprint);
}

TEST_F(WeightsTest, MissingTensorIsNamed) {
  copy_golden("gemma3-a");
  rewrite([](auto& tensors) { tensors.erase(tensors.begin() + 5); });
  EXPECT_THAT(load_error(), testing::HasSubstr("missing"));
}

TEST_F(WeightsTest, WrongShapeIsNamed) {
  copy_golden("gemma3-a");
  rewrite([](auto& tensors) { tensors[1].shape = {32, 2}; });
  EXPECT_THAT(load_error(),
              testing::AllOf(testing::HasSubstr("[32, 2]"), testing::HasSubstr("[64]")));
}

TEST_F(WeightsTest, WrongDtypeIsNamed) {
  copy_golden("gemma3-a");
  rewrite([](auto& tensors) { tensors[1].dtype = DType::kI32; });
  EXPECT_THAT(load_error(), testing::HasSubstr("I32"));
}

TEST_F(WeightsTest, UnknownTensorIsNamed) {
  copy_golden("gemma3-a");
  rewrite([](auto& tensors) {
    tensors.push_back({"model.layers.6.surprise", DType::kF32, {0}, {}});
  });
  EXPECT_THAT(load_error(), testing::HasSubstr("surprise"));
}

TEST_F(WeightsTest, TruncatedFileIsAnError) {
  copy_golden("gemma3-a");
  fs::resize_file(folder_ / "model.safetensors", 500000);
  EXPECT_THAT(load_error(), testing::HasSubstr("model.safetensors"));
}

TEST_F(WeightsTest, MissingShardIsAnError) {
  copy_golden("gemma3-bf16-sharded-a");
  fs::remove(folder_ / "model-00002-of-00002.safetensors");
  EXPECT_THAT(load_error(), testing::HasSubstr("model-00002-of-00002.safetensors"));
}

TEST_F(WeightsTest, AnIndexMayPromiseWhatNobodyNeeds) {
  copy_golden("gemma3-bf16-sharded-a");
  const fs::path index = folder_ / "model.safetensors.index.json";
  const auto whole = nlohmann::json::parse(read_file(index));
  const auto with = [&](const char* name) {
    auto changed = whole;
    changed["weight_map"][name] = "model-00001-of-00002.safetensors";
    std::ofstream(index) << changed.dump();
  };
  for (const char* name :
       {"mtp.fc.weight", "lm_head.weight", "model.layers.0.self_attn.rotary_emb.inv_freq"}) {
    with(name);
    EXPECT_NO_THROW(load_model_tensors(folder_)) << name;
  }
  with("model.layers.0.self_attn.q_proj.bias");
  EXPECT_THAT(load_error(), testing::AllOf(testing::HasSubstr("q_proj.bias"),
                                           testing::HasSubstr("does not hold it")));
}

TEST_F(WeightsTest, AnIndexMayBeSilentOnWhatAShardHolds) {
  copy_golden("gemma3-bf16-sharded-a");
  const fs::path index = folder_ / "model.safetensors.index.json";
  auto changed = nlohmann::json::parse(read_file(index));
  changed["weight_map"].erase("model.norm.weight");
  std::ofstream(index) << changed.dump();
  EXPECT_NO_THROW(load_model_tensors(folder_));
}

TEST_F(WeightsTest, PickledWeightsAreTheSame) {
  for (const char* name : {"gemma3-a", "gemma3-bf16-sharded-a"}) {
    fs::remove_all(folder_);
    copy_golden(name);
    fs::remove(folder_ / "golden.safetensors");
    const std::string before = load_model_tensors(folder_)->fingerprint;
    for (const fs::path& file : std::vector<fs::path>(fs::directory_iterator(folder_), {})) {
      const std::string stem = file.stem().string();
      if (file.extension() == ".safetensors") {
        copy_pickled(file, folder_ / (stem == "model" ? "pytorch_model.bin" : stem + ".bin"));
        fs::remove(file);
      }
    }
    const fs::path index = folder_ / "model.safetensors.index.json";
    if (fs::exists(index)) {
      auto shards = nlohmann::json::parse(read_file(index));
      for (auto& shard : shards["weight_map"]) {
        shard = fs::path(shard.get<std::string>()).stem().string() + ".bin";
      }
      std::ofstream(folder_ / "pytorch_model.bin.index.json") << shards.dump();
      fs::remove(index);
    }
    EXPECT_EQ(load_model_tensors(folder_)->fingerprint, before) << name;
  }
}

TEST_F(WeightsTest, ASingleValueIsRead) {
  const float value = 2.5F;
  const std::vector<TensorToWrite> tensors = {
      {"scale", DType::kF32, {}, std::as_bytes(std::span(&value, 1))}};
  fs::create_directories(folder_);
  write_safetensors(folder_ / "one.safetensors", tensors);
  TensorSource source(CheckpointTensors(folder_, "one.safetensors"), Placement{});
  const at::Tensor scalar = source.load("scale", {}, at::kDouble);
  EXPECT_EQ(scalar.dim(), 0);
  EXPECT_EQ(scalar.item<double>(), 2.5);
}

TEST_F(WeightsTest, MissingFolderIsAnError) {
  EXPECT_THAT(load_error(), testing::HasSubstr("no such folder"));
}

}  // namespace
}  // namespace specdec
