// What GGUF files of Gemma 3n and Gemma 4 say, against the checkpoints that they were made of.
#include "core/families/gguf/gguf_gemma4.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "core/families/gguf/gguf_config.h"
#include "core/families/gguf/gguf_tensors.h"
#include "core/formats/safetensors.h"
#include "core/formats/strict_json.h"
#include "tests/support/error_message.h"
#include "tests/support/golden.h"
#include "tests/support/parameter_name.h"

namespace specdec {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const std::filesystem::path kSharedGolden =
    std::filesystem::path(SPECDEC_SOURCE_DIR).parent_path() / "shared/golden";

std::filesystem::path gemma4_gguf(const std::string& name) { return golden_gguf(name); }

json config_of(const GgufContent& content) {
  const std::string architecture = content.metadata.text("general.architecture");
  const GgufKeys keys(content, architecture);
  return json::parse(architecture == "gemma4" ? gemma4_config_json(keys)
                                              : gemma3n_config_json(keys));
}

json config_of(const std::string& name) { return config_of(GgufFile(gemma4_gguf(name)).content()); }

void expect_config(const json& config, const json& wanted) {
  for (const auto& [key, value] : wanted.items()) {
    EXPECT_EQ(config.value(key, json("none")), value) << key;
  }
}

TEST(GgufGemma4Test, DenseModelsHaveRawValuesInFullLayers) {
  SPECDEC_SKIP_WITHOUT(gemma4_gguf("gemma4-dense-f32_qkv"));
  expect_config(config_of("gemma4-dense-f32_qkv"),
                json::parse(R"({"model_type": "gemma4_text", "vocab_size": 384, "hidden_size": 48,
    "intermediate_size": 96, "num_hidden_layers": 6, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "global_head_dim": 32, "attention_k_eq_v": true,
    "per_layer_config": {"2": {"head_dim": 32, "num_key_value_heads": 1},
                         "5": {"head_dim": 32, "num_key_value_heads": 1}},
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention",
                    "sliding_attention", "sliding_attention", "full_attention"],
    "rope_parameters": {
      "full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1e6,
                         "rope_type": "proportional"},
      "sliding_attention": {"rope_theta": 1e4, "rope_type": "default"}},
    "rms_norm_eps": 1e-6, "final_logit_softcapping": 8.0, "sliding_window": 6,
    "max_position_embeddings": 512, "num_kv_shared_layers": 0, "hidden_size_per_layer_input": 0,
    "enable_moe_block": false, "use_double_wide_mlp": false, "tie_word_embeddings": true,
    "hidden_activation": "gelu_pytorch_tanh", "bos_token_id": 2, "eos_token_id": [1, 6, 7],
    "raw_value_layers": "none", "vocab_size_per_layer_input": "none"})"));
}

TEST(GgufGemma4Test, ModelsWithExpertsSayTheirSizes) {
  SPECDEC_SKIP_WITHOUT(gemma4_gguf("gemma4-moe-f32_split"));
  expect_config(config_of("gemma4-moe-f32_split"),
                json::parse(R"({"enable_moe_block": true, "num_experts": 8, "top_k_experts": 2,
    "moe_intermediate_size": 24, "intermediate_size": 48, "attention_k_eq_v": true})"));
}

TEST(GgufGemma4Test, SmallModelsShareKeysAndHaveInputsPerLayer) {
  SPECDEC_SKIP_WITHOUT(gemma4_gguf("gemma4-e-q8_0"));
  const json config = config_of("gemma4-e-q8_0");
  const GgufFile file(gemma4_gguf("gemma4-e-q8_0"));
  const auto& metadata = file.metadata();
  const int64_t shared = metadata.integer("gemma4.attention.shared_kv_layers");
  EXPECT_GT(shared, 0);
  expect_config(config, {{"num_kv_shared_layers", shared},
                         {"attention_k_eq_v", false},
                         {"raw_value_layers", "none"},
                         {"intermediate_size", metadata.integers("gemma4.feed_forward_length")},
                         {"vocab_size_per_layer_input", 300},
                         {"hidden_size_per_layer_input",
                          metadata.integer("gemma4.embedding_length_per_layer_input")}});
}

TEST(GgufGemma4Test, Gemma3nSaysWhereGatesAreCut) {
  const json config = config_of("gemma3n-q8_0");
  expect_config(config, json::parse(R"({"model_type": "gemma3n_text", "vocab_size": 320,
    "vocab_size_per_layer_input": 320, "hidden_size_per_layer_input": 8, "laurel_rank": 6,
    "altup_active_idx": 0, "altup_num_inputs": 4, "altup_correct_scale": true,
    "intermediate_size": 64, "num_key_value_heads": 2, "head_dim": 12, "num_kv_shared_layers": 2,
    "rope_parameters": {"full_attention": {"rope_theta": 1e6, "rope_type": "default"},
                        "sliding_attention": {"rope_theta": 1e4, "rope_type": "default"}}})"));
  const json& cuts = config["activation_sparsity_z"];
  ASSERT_EQ(cuts.size(), 6);
  EXPECT_EQ(cuts[0].get<float>(), 1.281551480293274F);
  EXPECT_EQ(cuts[4], 0.0);  // at the mean
  for (const size_t layer : {2, 3, 5}) {
    EXPECT_TRUE(cuts[layer].is_null()) << layer;
  }
}

/// A file's content with one thing changed_config.
json changed_config(const std::string& name, const std::function<void(GgufContent&)>& change) {
  const GgufFile file(gemma4_gguf(name));
  GgufContent content = file.content();
  change(content);
  return config_of(content);
}

void drop_tensor(GgufContent& content, const std::string& name) {
  std::erase_if(content.tensors, [&](const TensorEntry& entry) { return entry.name == name; });
}

TEST(GgufGemma4Test, RawValuesElsewhereHaveAKeyOfOurOwn) {
  const json config = changed_config(
      "gemma4-moe-q8_0", [](GgufContent& content) { drop_tensor(content, "blk.0.attn_v.weight"); });
  EXPECT_EQ(config["attention_k_eq_v"], false);
  EXPECT_EQ(config["raw_value_layers"][0], 0);
  EXPECT_GE(config["raw_value_layers"].size(), 2);
}

TEST(GgufGemma4Test, SharedLayersNeedNoValues) {
  SPECDEC_SKIP_WITHOUT(gemma4_gguf("gemma4-e-q8_0"));
  const int64_t last = config_of("gemma4-e-q8_0")["num_hidden_layers"].get<int64_t>() - 1;
  const json config = changed_config("gemma4-e-q8_0", [&](GgufContent& content) {
    drop_tensor(content, fmt::format("blk.{}.attn_v.weight", last));
  });
  EXPECT_EQ(config["attention_k_eq_v"], false);
  EXPECT_FALSE(config.contains("raw_value_layers"));
}

TEST(GgufGemma4Test, WhatIsLeftOutHasItsMeaning) {
  const json config = changed_config("gemma4-moe-q8_0", [](GgufContent& content) {
    drop_tensor(content, "rope_freqs.weight");
    GgufMetadata less(content.metadata.where());
    for (const auto& [key, value] : content.metadata.values()) {
      if (key != "gemma4.final_logit_softcapping") {
        less.add(key, value);
      }
    }
    content.metadata = less;
  });
  EXPECT_TRUE(config["final_logit_softcapping"].is_null());
  EXPECT_EQ(config["rope_parameters"]["full_attention"]["partial_rotary_factor"], 1.0);
}

TEST(GgufGemma4Test, EachNumberOfTurnedPairsComesBack) {
  const GgufFile file(gemma4_gguf("gemma4-moe-q8_0"));
  const int64_t pairs = file.find("rope_freqs.weight")->shape[0];
  for (int64_t turned = 0; turned <= pairs; ++turned) {
    std::vector<float> values(static_cast<size_t>(pairs), 1e30F);
    std::fill_n(values.begin(), turned, 1.0F);
    const json config = changed_config("gemma4-moe-q8_0", [&](GgufContent& content) {
      for (TensorEntry& entry : content.tensors) {
        if (entry.name == "rope_freqs.weight") {
          entry.bytes = std::as_bytes(std::span(values));
        }
      }
    });
    const auto part =
        config["rope_parameters"]["full_attention"]["partial_rotary_factor"].get<double>();
    EXPECT_EQ(static_cast<int64_t>(part * static_cast<double>(2 * pairs) / 2), turned);
  }
}

TEST(GgufGemma4Test, SuppressedTokensAreThoseOfTheVocabulary) {
  const GgufFile file(gemma4_gguf("gemma4-moe-q8_0"));
  GgufContent content = file.content();
  EXPECT_TRUE(describe_gguf(content).config.suppressed_ids.empty());
  content.metadata.add("tokenizer.ggml.suppress_tokens", std::vector<int64_t>{5, 3, 1 << 20, -1});
  EXPECT_EQ(describe_gguf(content).config.suppressed_ids, (std::vector<Token>{5, 3}));
}

std::string key_complaint(const std::string& name, const char* key, const GgufValue& value) {
  return error_message<WeightsError>([&] {
    changed_config(name, [&](GgufContent& content) { content.metadata.add(key, value); });
  });
}

TEST(GgufGemma4Test, WhatIsWrongNamesTheKey) {
  const std::string model = "gemma4-moe-q8_0";
  EXPECT_THAT(key_complaint(model, "gemma4.attention.sliding_window_pattern", int64_t{6}),
              HasSubstr("'gemma4.attention.sliding_window_pattern' should be a list of integers"));
  EXPECT_THAT(
      key_complaint(model, "gemma4.attention.sliding_window_pattern", std::vector<int64_t>{1, 0}),
      HasSubstr("has 2 entries for 3 layers"));
  EXPECT_THAT(key_complaint(model, "gemma4.attention.head_count_kv", std::vector<int64_t>{1, 0}),
              HasSubstr("'gemma4.attention.head_count_kv' has 2 entries for 3 layers"));
  EXPECT_THAT(key_complaint(model, "gemma4.attention.value_length_swa", int64_t{7}),
              HasSubstr("'gemma4.attention.value_length_swa' is 7, but "
                        "'gemma4.attention.key_length_swa' is 32"));
  EXPECT_THAT(key_complaint(model, "gemma4.attention.shared_kv_layers", int64_t{3}),
              HasSubstr("'gemma4.attention.shared_kv_layers' is 3 of 3 layers"));
  EXPECT_THAT(key_complaint(model, "gemma4.rope.scaling.type", std::string("yarn")),
              HasSubstr("'gemma4.rope.scaling.type' is 'yarn'"));
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_THAT(key_complaint("gemma3n-q8_0", "gemma3n.activation_sparsity_scale",
                            std::vector<float>{0, 0, infinity, 0, 0, 0}),
              HasSubstr("has inf as its entry 2"));
  EXPECT_THAT(
      key_complaint("gemma3n-q8_0", "gemma3n.activation_sparsity_scale", std::vector<float>{0}),
      HasSubstr("should be a list of numbers, one for each of 6 layers"));
}

GgufTensors gguf_tensors_of(const std::filesystem::path& path) {
  auto file = std::make_shared<const GgufFile>(path);
  const auto plan = describe_gguf(file->content()).plan;
  return {std::move(file), plan};
}

TEST(GgufGemma4Test, AnExpertIsAMatrixInTheBytesOfItsStack) {
  const GgufTensors tensors = gguf_tensors_of(gemma4_gguf("gemma4-moe-q8_0"));
  const TensorEntry* stack = tensors.find("model.layers.0.experts.gate_up_proj");
  const TensorEntry* expert = tensors.find("model.layers.0.experts.1.gate_up_proj");
  ASSERT_NE(stack, nullptr);
  ASSERT_NE(expert, nullptr);
  EXPECT_EQ(expert->dtype, DType::kQ80);
  EXPECT_EQ(expert->shape, (std::vector<int64_t>{stack->shape[1], stack->shape[2]}));
  EXPECT_EQ(expert->bytes.data(), stack->bytes.data() + expert->bytes.size());
  EXPECT_EQ(tensors.stored_name(expert->name), "blk.0.ffn_gate_up_exps.weight");
  const auto all = tensors.tensors();
  EXPECT_EQ(std::count(all.begin(), all.end(), expert), 1);
  EXPECT_EQ(std::count(all.begin(), all.end(), stack), 0);
  tensors.release(*expert);
}

TEST(GgufGemma4Test, FusedRowsAreQueriesKeysAndValues) {
  SPECDEC_SKIP_WITHOUT(gemma4_gguf("gemma4-dense-f32_qkv"));
  const GgufTensors tensors = gguf_tensors_of(gemma4_gguf("gemma4-dense-f32_qkv"));
  const std::string layer = "model.layers.0.self_attn.";
  EXPECT_EQ(tensors.find(layer + "q_proj.weight")->shape, (std::vector<int64_t>{64, 48}));
  const TensorEntry* k = tensors.find(layer + "k_proj.weight");
  const TensorEntry* v = tensors.find(layer + "v_proj.weight");
  EXPECT_EQ(k->shape, (std::vector<int64_t>{32, 48}));
  EXPECT_EQ(v->bytes.data(), k->bytes.data() + k->bytes.size());
  EXPECT_EQ(tensors.stored_name(layer + "v_proj.weight"), "blk.0.attn_qkv.weight");
  EXPECT_EQ(tensors.find("model.layers.2.self_attn.v_proj.weight"), nullptr);
}

/// A GGUF file, and the checkpoint that has the same float32 weights.
struct Pair {
  const char* gguf;
  const char* checkpoint;
};
void PrintTo(const Pair& pair, std::ostream* out) { *out << pair.gguf; }

class GgufGemma4CheckpointTest : public testing::TestWithParam<Pair> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(checkpoint_)) {
      GTEST_SKIP() << "no " << checkpoint_;
    }
  }

  const std::filesystem::path checkpoint_ = kSharedGolden / GetParam().checkpoint;
  const std::filesystem::path file_ = kSharedGolden / (std::string(GetParam().gguf) + ".gguf");
};

/// An expert's matrix in a checkpoint's stacks; gate and up are the halves of one stack.
std::span<const std::byte> expert_bytes(const TensorFiles& checkpoint, const std::string& name) {
  const size_t experts = name.find(".experts.") + std::strlen(".experts.");
  const size_t dot = name.find('.', experts);
  const size_t expert = std::stoul(name.substr(experts, dot - experts));
  const std::string part = name.substr(dot + 1);
  const bool split = part == "gate_proj" || part == "up_proj";
  const TensorEntry* stack =
      checkpoint.find(name.substr(0, experts) + (split ? "gate_up_proj" : part));
  const size_t size = stack->bytes.size() / static_cast<size_t>(stack->shape[0]);
  const auto one = stack->bytes.subspan(expert * size, size);
  return !split ? one : part == "gate_proj" ? one.first(size / 2) : one.subspan(size / 2);
}

/// Keys and values of layers that use those of others: GGUF has them even where the hub has none.
bool is_unused(const std::string& name, const json& config) {
  const int64_t own =
      config["num_hidden_layers"].get<int64_t>() - config["num_kv_shared_layers"].get<int64_t>();
  return std::stol(name.substr(std::strlen("model.layers."))) >= own &&
         (name.find(".k_") != std::string::npos || name.find(".v_") != std::string::npos);
}

TEST_P(GgufGemma4CheckpointTest, TensorsHaveTheHubsNamesAndBytes) {
  const GgufTensors tensors = gguf_tensors_of(file_);
  const json config = config_of(GgufFile(file_).content());
  const CheckpointTensors checkpoint(checkpoint_);
  const std::string prefix =
      checkpoint.find("model.norm.weight") != nullptr ? "model." : "model.language_model.";
  std::set<std::string> found;
  for (const TensorEntry* entry : tensors.tensors()) {
    ASSERT_EQ(entry->name.rfind("model.", 0), 0) << entry->name;
    const std::string name = prefix + entry->name.substr(std::strlen("model."));
    const TensorEntry* same = checkpoint.find(name);
    const bool is_expert = name.find(".experts.") != std::string::npos;
    if (same == nullptr && !is_expert) {
      EXPECT_TRUE(is_unused(entry->name, config)) << entry->name;
      continue;
    }
    found.insert(name);
    auto bytes = entry->bytes;
    if (same != nullptr && name == "model.embed_tokens_per_layer.weight") {
      bytes = bytes.first(same->bytes.size());  // the converter fills it up with zeros
    }
    const auto wanted = same != nullptr ? same->bytes : expert_bytes(checkpoint, name);
    EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), bytes.begin(), bytes.end())) << name;
  }
  for (const TensorEntry* entry : checkpoint.tensors()) {
    const bool is_stack = entry->name.find(".experts.") != std::string::npos;
    EXPECT_TRUE(is_stack || found.count(entry->name) != 0) << entry->name;
  }
}

TEST_P(GgufGemma4CheckpointTest, TheConfigSaysWhatTheCheckpointsDoes) {
  json wanted = json::parse(read_file(checkpoint_ / "config.json"));
  wanted = wanted.contains("text_config") ? wanted["text_config"] : wanted;
  const json config = config_of(GgufFile(file_).content());
  for (const char* key : {"vocab_size",
                          "hidden_size",
                          "num_hidden_layers",
                          "num_attention_heads",
                          "num_key_value_heads",
                          "head_dim",
                          "max_position_embeddings",
                          "rms_norm_eps",
                          "layer_types",
                          "sliding_window",
                          "num_kv_shared_layers",
                          "tie_word_embeddings",
                          "final_logit_softcapping",
                          "rope_parameters",
                          "bos_token_id",
                          "global_head_dim",
                          "attention_k_eq_v",
                          "laurel_rank",
                          "altup_num_inputs",
                          "altup_active_idx"}) {
    if (wanted.contains(key)) {
      EXPECT_EQ(config.value(key, json("none")), wanted[key]) << key;
    }
  }
}

TEST(GgufGemma4Test, AllGoldenFilesHaveNoUnknownTensors) {
  if (!std::filesystem::exists(kSharedGolden)) {
    GTEST_SKIP() << "no " << kSharedGolden;
  }
  int files = 0;
  for (const char* kind : {"gemma4-dense", "gemma4-e", "gemma4-moe", "gemma4-unified", "gemma3n"}) {
    const auto folder = kSharedGolden / (std::string(kind) + "-gguf-a");
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() != ".gguf") {
        continue;
      }
      ++files;
      const GgufTensors tensors = gguf_tensors_of(entry.path());
      for (const TensorEntry* tensor : tensors.tensors()) {
        EXPECT_EQ(tensor->name.rfind("model.", 0), 0) << entry.path() << " " << tensor->name;
      }
    }
  }
  EXPECT_EQ(files, 22);
}

INSTANTIATE_TEST_SUITE_P(
    All, GgufGemma4CheckpointTest,
    testing::Values(Pair{"gemma4-dense-gguf-a/gemma4-dense-f32", "gemma4-dense-a"},
                    Pair{"gemma4-dense-gguf-a/gemma4-dense-f32_qkv", "gemma4-dense-a"},
                    Pair{"gemma4-e-gguf-a/gemma4-e-f32", "gemma4-e-a"},
                    Pair{"gemma4-e-gguf-a/gemma4-e-f32_qkv", "gemma4-e-a"},
                    Pair{"gemma4-moe-gguf-a/gemma4-moe-f32", "gemma4-moe-a"},
                    Pair{"gemma4-moe-gguf-a/gemma4-moe-f32_split", "gemma4-moe-a"},
                    Pair{"gemma4-unified-gguf-a/gemma4-unified-f32", "gemma4-unified-a"},
                    Pair{"gemma3n-gguf-a/gemma3n-f32", "gemma3n-a"}),
    ParameterName());

}  // namespace
}  // namespace specdec
