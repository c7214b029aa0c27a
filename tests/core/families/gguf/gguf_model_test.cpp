// GGUF files of all families against their golden sets.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <span>

#include "core/error.h"
#include "core/families/gguf/gguf_config.h"
#include "core/families/gguf/gguf_tensors.h"
#include "core/families/model.h"
#include "core/families/model_size.h"
#include "core/formats/gguf/gguf_writer.h"
#include "core/formats/sentencepiece_model.h"
#include "core/formats/strict_json.h"
#include "core/tokenizers/gguf_tokenizer.h"
#include "core/tokenizers/tokenizer.h"
#include "core/transformer/reference.h"
#include "core/transformer/transformer_model.h"
#include "kv/paged_kv.h"
#include "tests/support/error_message.h"
#include "tests/support/golden.h"
#include "tests/support/parameter_name.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using testing::HasSubstr;

std::filesystem::path gguf_data(const std::string& name) { return test_data("gguf") / name; }

std::vector<std::byte> bytes_of(const std::filesystem::path& path) {
  const std::string text = read_file(path);
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

/// All of a model's; a tied head once.
std::vector<const Linear*> matrices(const TransformerWeights& weights) {
  std::vector<const Linear*> all = {&weights.embedding};
  if (!weights.config.tie_word_embeddings) {
    all.push_back(&weights.head);
  }
  for (const LayerWeights& layer : weights.layers) {
    all.insert(all.end(), {&layer.qkv, &layer.output, &layer.gate_up, &layer.down});
  }
  return all;
}

class GgufGoldenTest : public testing::TestWithParam<std::string> {
 protected:
  const std::filesystem::path file_ = golden_gguf(GetParam());
  Golden golden_{file_.parent_path() / (GetParam() + ".golden.safetensors"), Golden::File{}};
  std::shared_ptr<const TransformerWeights> weights_ = load_model(file_, {.dtype = at::kFloat});
  TransformerModel model_{weights_, paged_kv()};
};

TEST_P(GgufGoldenTest, LogitsMatch) {
  const TokenBatch batch{.tokens = golden_.tensor("tokens").to(at::kInt)};
  const double tolerance = weights_->config.family == "gemma3n_text" ? 5e-4 : 1e-4;
  EXPECT_LE(max_difference(model_.forward(batch).logits, golden_.tensor("logits")), tolerance);
  const auto reference =
      reference_forward(unpack(*weights_), golden_.tensor("tokens").unsqueeze(0));
  EXPECT_LE(max_difference(reference.logits[0], golden_.tensor("logits")), tolerance);
}

TEST_P(GgufGoldenTest, GreedyIsExact) {
  const auto wanted = golden_.tokens("greedy");
  Tensor logits = model_.prefill_get_last_logits(golden_.tokens("prompt"));
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto token = static_cast<Token>(logits.argmax().item<int64_t>());
    ASSERT_EQ(token, wanted[i]) << i;
    logits = model_.decode_get_logits({&token, 1})[0];
  }
}

TEST_P(GgufGoldenTest, InMemoryIsTheSame) {
  const auto file = std::make_shared<const GgufFile>(bytes_of(file_), "in memory");
  EXPECT_EQ(load_model(file, {.dtype = at::kFloat})->fingerprint, weights_->fingerprint);
}

INSTANTIATE_TEST_SUITE_P(All, GgufGoldenTest,
                         testing::Values("llama-f16", "llama-q4_1", "gemma2-q4_k", "gemma3-mixed"),
                         ParameterName());
INSTANTIATE_TEST_SUITE_P(
    Gemma4, GgufGoldenTest,
    testing::ValuesIn(
        found_golden_gguf({"gemma3n-f32",         "gemma3n-q8_0",         "gemma3n-q4_k",
                           "gemma4-dense-f32",    "gemma4-dense-q8_0",    "gemma4-dense-q8_0_f16",
                           "gemma4-dense-q4_k",   "gemma4-dense-f32_qkv", "gemma4-e-f32",
                           "gemma4-e-q8_0",       "gemma4-e-q8_0_f16",    "gemma4-e-q4_k",
                           "gemma4-e-f32_qkv",    "gemma4-moe-f32",       "gemma4-moe-q8_0",
                           "gemma4-moe-q8_0_f16", "gemma4-moe-q4_k",      "gemma4-moe-f32_split",
                           "gemma4-unified-f32",  "gemma4-unified-q8_0",  "gemma4-unified-q8_0_f16",
                           "gemma4-unified-q4_k"})),
    ParameterName());

TEST(GgufModelTest, BlocksAreMultipliedAsStored) {
  for (const auto& [name, format] :
       {std::pair{"gemma4-moe-q8_0", WeightFormat::kInt8}, {"llama-q4_1", WeightFormat::kQ41}}) {
    const auto file = gguf_data(std::string(name) + ".gguf");
    const auto stored = load_model(file);
    const auto widened = load_model(file, {.dtype = at::kFloat});
    EXPECT_EQ(stored->layers.front().qkv.format(), format) << name;
    EXPECT_LT(stored->layers.front().down.bytes(), widened->layers.front().down.bytes() / 3);
    const TokenBatch batch{.tokens = at::arange(3, 20, at::kInt)};
    EXPECT_TRUE(at::equal(TransformerModel(stored, paged_kv()).forward(batch).logits,
                          TransformerModel(widened, paged_kv()).forward(batch).logits))
        << name;
  }
}

TEST(GgufModelTest, FormatsThatAreMixedAreMultipliedAsStored) {
  for (const char* name : {"gemma2-q4_k", "gemma3-mixed"}) {
    const auto file = gguf_data(std::string(name) + ".gguf");
    const auto stored = load_model(file);
    const auto widened = load_model(file, {.dtype = at::kFloat});
    const TokenBatch batch{.tokens = at::arange(3, 20, at::kInt)};
    EXPECT_TRUE(at::equal(TransformerModel(stored, paged_kv()).forward(batch).logits,
                          TransformerModel(widened, paged_kv()).forward(batch).logits))
        << name;
  }
  const auto mixed = load_model(gguf_data("gemma3-mixed.gguf"));
  EXPECT_EQ(mixed->layers[0].gate_up.format(95), WeightFormat::kQ41);
  EXPECT_EQ(mixed->layers[0].gate_up.format(96), WeightFormat::kQ51);
  EXPECT_EQ(mixed->layers[0].qkv.format(0), WeightFormat::kFloat16);
  EXPECT_EQ(mixed->layers[0].qkv.format(128), WeightFormat::kBFloat16);
  EXPECT_EQ(mixed->layers[0].qkv.format(192), WeightFormat::kQ50);
}

TEST(GgufModelTest, Q4KAndQ6KKeepTheirSize) {
  const GgufFile file(gguf_data("gemma2-q4_k.gguf"));
  const auto stored = load_model(file.path());
  int64_t in_file = 0;
  for (const TensorEntry& entry : file.tensors()) {
    in_file += is_block(entry.dtype) ? static_cast<int64_t>(entry.bytes.size()) : 0;
  }
  int64_t in_memory = 0;
  for (const Linear* matrix : matrices(*stored)) {
    in_memory += matrix->bytes();
  }
  EXPECT_GE(in_memory, in_file);
  EXPECT_LE(static_cast<double>(in_memory), 1.05 * static_cast<double>(in_file));
  EXPECT_EQ(stored->layers[0].qkv.format(0), WeightFormat::kQ4K);
  EXPECT_EQ(stored->layers[0].qkv.format(256 + 128), WeightFormat::kQ6K);
}

TEST(GgufModelTest, MeasuredWeightsAreWhatLoadingTakes) {
  for (const char* name : {"gemma2-q4_k", "gemma3-mixed", "llama-f16"}) {
    const OpenModel model = open_model(gguf_data(std::string(name) + ".gguf"));
    for (const std::optional<at::ScalarType> dtype :
         {std::optional<at::ScalarType>(), {at::kFloat}, {at::kBFloat16}, {at::kChar}}) {
      int64_t measured = 0;
      for (const auto& [format, bytes] : measure_weights(model, {.dtype = dtype})) {
        measured += bytes;
      }
      int64_t loaded = 0;
      const auto weights = load_model(model, {.dtype = dtype});
      for (const Linear* matrix : matrices(*weights)) {
        loaded += matrix->bytes();
      }
      EXPECT_EQ(measured, loaded) << name;
    }
  }
}

TEST(GgufModelTest, MatricesForMetalAreMeasuredInRows) {
  const GgufFile file(gguf_data("gemma2-q4_k.gguf"));
  std::map<std::string, int64_t> in_file;  // a row there is one of the file
  for (const TensorEntry& entry : file.tensors()) {
    if (is_block(entry.dtype)) {
      in_file[std::string(dtype_name(entry.dtype))] += static_cast<int64_t>(entry.bytes.size());
    }
  }
  ASSERT_EQ(in_file.count("Q4_K"), 1U);
  const OpenModel model = open_model(file.path());
  const auto measured_on = [&](at::DeviceType device) {
    return measure_weights(model, {.dtype = {}, .place = {device, WeightLayout::kRows}});
  };
  EXPECT_EQ(measured_on(at::kMeta), in_file);
  EXPECT_GT(measured_on(at::kCPU).at("Q4_K"), in_file.at("Q4_K")) << "in fragments, for CUDA";
}

TEST(GgufModelTest, ActivationsAreRoundedWhereWeightsAreInBlocks) {
  const auto file = gguf_data("llama-q4_1.gguf");
  const auto weights = load_model(file, {.dtype = {}, .activations = ActivationFormat::kInt8});
  EXPECT_EQ(weights->layers.front().down.activations(), ActivationFormat::kInt8);
  EXPECT_THROW(load_model(gguf_data("llama-f16.gguf"),
                          {.dtype = {}, .activations = ActivationFormat::kInt8}),
               ConfigError);
}

TEST(GgufModelTest, StoredDtypes) {
  EXPECT_EQ(load_model(gguf_data("llama-f16.gguf"))->weight_dtype, at::kHalf);
  EXPECT_EQ(load_model(gguf_data("llama-q4_1.gguf"))->weight_dtype, at::kFloat);
  EXPECT_TRUE(describe_model(gguf_data("llama-q4_1.gguf")).config.tie_word_embeddings);
  EXPECT_FALSE(describe_model(gguf_data("llama-f16.gguf")).config.tie_word_embeddings);
}

/// A copy of a file in which one text is replaced by another of the same length.
std::shared_ptr<const GgufFile> edited(const std::string& from, const std::string& to) {
  auto bytes = bytes_of(gguf_data("llama-q4_1.gguf"));
  const auto* text = reinterpret_cast<const std::byte*>(from.data());
  const auto found = std::search(bytes.begin(), bytes.end(), text, text + from.size());
  EXPECT_NE(found, bytes.end()) << from;
  std::memcpy(&*found, to.data(), to.size());
  return std::make_shared<const GgufFile>(std::move(bytes), "edited.gguf");
}

std::string load_message(const std::string& from, const std::string& to) {
  return error_message<WeightsError>([&] { load_model(edited(from, to)); });
}

TEST(GgufModelTest, DamagedModelsAreErrorsThatNameKeyOrTensor) {
  EXPECT_THAT(load_message("llama.block_count", "llama.block_coumt"),
              HasSubstr("edited.gguf: 'llama.block_count' is missing from the metadata"));
  EXPECT_THAT(load_message("blk.1.attn_k.weight", "blk.1.attn_K.weight"),
              HasSubstr("tensor 'blk.1.attn_k.weight' is missing; its metadata asks for it"));
  EXPECT_THAT(load_message("token_embd.weight", "token_embD.weight"),
              HasSubstr("'token_embd.weight' is missing"));
  EXPECT_THAT(load_message("blk.1.ffn_norm.weight", "blk.1.ffn_norM.weight"),
              HasSubstr("tensor 'blk.1.ffn_norm.weight' is missing; its metadata asks for it"));
}

TEST(GgufModelTest, ScalesThatAreNoNumbersAreNamed) {
  auto bytes = bytes_of(gguf_data("llama-q4_1.gguf"));
  const GgufFile file(bytes, "whole.gguf");
  const TensorEntry* up = file.find("blk.1.ffn_up.weight");
  ASSERT_NE(up, nullptr);
  ASSERT_EQ(up->dtype, DType::kQ41);
  const auto stored = std::search(bytes.begin(), bytes.end(), up->bytes.begin(), up->bytes.end());
  ASSERT_NE(stored, bytes.end());
  stored[dtype_bytes(DType::kQ41) + 3] = std::byte{0x7E};  // the minimum of the second block
  const std::string place = fmt::format("[{}, {}]", 32 / up->shape[1], 32 % up->shape[1]);
  EXPECT_THAT(error_message<WeightsError>([&] {
                load_model(std::make_shared<const GgufFile>(std::move(bytes), "nan.gguf"));
              }),
              HasSubstr("nan.gguf: tensor 'blk.1.ffn_up.weight' holds NaN at " + place +
                        " (in a Q4_1 block)"));
}

TEST(GgufModelTest, MissingTensorsAreFoundWithoutLoading) {
  const OpenModel model = open_model(edited("blk.1.ffn_up.weight", "blk.1.ffn_uq.weight"));
  EXPECT_THAT(error_message<WeightsError>([&] { measure_weights(model); }),
              HasSubstr("tensor 'blk.1.ffn_up.weight' is missing"));
}

TEST(GgufModelTest, TwoTensorsOfOneNameAreAnError) {
  const auto file = edited("token_embd.weight", "model.norm.weight");
  const auto message = error_message<WeightsError>([&] { GgufTensors(file, {}); });
  EXPECT_THAT(message, HasSubstr("'output_norm.weight'"));
  EXPECT_THAT(message, HasSubstr("'model.norm.weight'"));
  EXPECT_THAT(message, HasSubstr("are the same part of the model (model.norm.weight)"));
}

TEST(GgufModelTest, NormsAreNamedByThePlan) {
  const auto file = std::make_shared<const GgufFile>(gguf_data("gemma2-q4_k.gguf"));
  const std::string hub = "model.layers.9.";  // the file has no such layer
  const GgufTensors post(file, describe_gguf(file->content()).plan);
  EXPECT_EQ(post.stored_name(hub + "pre_feedforward_layernorm.weight"), "blk.9.ffn_norm.weight");
  EXPECT_EQ(post.stored_name(hub + "post_attention_layernorm.weight"),
            "blk.9.post_attention_norm.weight");
  EXPECT_NE(post.find("model.layers.0.post_attention_layernorm.weight"), nullptr);
  const GgufTensors plain(file, {});
  EXPECT_EQ(plain.stored_name(hub + "post_attention_layernorm.weight"), "blk.9.ffn_norm.weight");
  EXPECT_EQ(plain.stored_name("model.layers.0.post_attention_layernorm.weight"),
            "blk.0.ffn_norm.weight");
  EXPECT_NE(plain.find("blk.0.post_attention_norm.weight"), nullptr);
  for (const char* unknown : {"model.layers.9.mlp.experts.weight", "model.layers.9", "other"}) {
    EXPECT_EQ(plain.stored_name(unknown), unknown);
  }
}

TEST(GgufModelTest, UnknownArchitecturesAreToldTheKnownOnes) {
  const std::string value("\x05\0\0\0\0\0\0\0llama", 13);
  const std::string other("\x05\0\0\0\0\0\0\0mamba", 13);
  EXPECT_THAT(load_message(value, other),
              HasSubstr("'general.architecture' is 'mamba'; known: gemma, gemma2, gemma3, "
                        "gemma3n, gemma4, llama, qwen2, qwen3"));
}

/// What is read of a file that has an embedding table and this metadata, beside the smallest;
/// `divisor`: of all frequencies, 0 = the file names none.
ModelDescription describe_metadata(const std::string& architecture, const GgufEntries& more,
                                   float divisor = 0.0F) {
  const TemporaryFolder folder;
  GgufEntries all = {{"general.architecture", architecture}};
  const auto add = [&](const char* key, const GgufEntry& value) {
    const std::string name = architecture + "." + key;
    const auto same = [&name](const auto& entry) { return entry.first == name; };
    if (std::none_of(more.begin(), more.end(), same)) {
      all.emplace_back(name, value);
    }
  };
  for (const auto& [key, value] : {std::pair{"block_count", 2},
                                   {"context_length", 64},
                                   {"embedding_length", 48},
                                   {"feed_forward_length", 32},
                                   {"attention.head_count", 4}}) {
    add(key, int64_t{value});
  }
  add("attention.layer_norm_rms_epsilon", 1e-5);
  all.insert(all.end(), more.begin(), more.end());
  const auto path = folder.path() / "model.gguf";
  std::vector<TensorLayout> tensors = {{"token_embd.weight", DType::kF32, {10, 48}}};
  if (divisor > 0.0F) {
    tensors.push_back({"rope_freqs.weight", DType::kF32, {6}});
  }
  GgufFileWriter writer(path, all, tensors);
  const std::vector<float> table(480);
  writer.write(std::as_bytes(std::span(table)));
  if (divisor > 0.0F) {
    const std::vector<float> divisors(6, divisor);
    writer.write(std::as_bytes(std::span(divisors)));
  }
  writer.commit();
  return describe_gguf(GgufFile(path).content());
}

/// Metadata of a tokenizer that has these pieces, the last one of the given type, others normal.
GgufEntries tokenizer_pieces(const std::vector<std::string>& texts, PieceType last) {
  std::vector<int64_t> types(texts.size(), static_cast<int64_t>(PieceType::kNormal));
  types.back() = static_cast<int64_t>(last);
  return {{"tokenizer.ggml.tokens", texts}, {"tokenizer.ggml.token_type", types}};
}

TEST(GgufModelTest, EndTokensAreKnownByTheirSpelling) {
  const auto ends = [](const GgufEntries& more) {
    return describe_metadata("llama", more).config.end_ids;
  };
  EXPECT_THAT(ends({}), testing::IsEmpty());
  GgufEntries chat =
      tokenizer_pieces({"a", "<|end_of_text|>", "<|im_end|>", "</s>"}, PieceType::kControl);
  EXPECT_THAT(ends(chat), testing::ElementsAre(2, 1, 3));
  chat.emplace_back("tokenizer.ggml.eos_token_id", int64_t{1});
  EXPECT_THAT(ends(chat), testing::ElementsAre(1, 2, 3));
  EXPECT_THAT(ends(tokenizer_pieces({"a", "</s>"}, PieceType::kControl)), testing::ElementsAre(1));
  EXPECT_THAT(ends(tokenizer_pieces({"a", "</s>"}, PieceType::kUserDefined)),
              testing::IsEmpty());  // HTML
  EXPECT_THAT(ends({{"tokenizer.ggml.tokens", std::vector<std::string>{"</s>"}}}),
              testing::IsEmpty());
}

TEST(GgufModelTest, IdsThatAreNoneAreNone) {
  EXPECT_EQ(describe_metadata("llama", {}).config.bos_id, -1);
  EXPECT_EQ(describe_metadata("llama", {{"tokenizer.ggml.bos_token_id", int64_t{3}}}).config.bos_id,
            3);
  for (const int64_t none : {int64_t{-1}, int64_t{4294967295}}) {
    const auto model = describe_metadata(
        "llama", {{"tokenizer.ggml.bos_token_id", none}, {"tokenizer.ggml.eos_token_id", none}});
    EXPECT_EQ(model.config.bos_id, -1);
    EXPECT_THAT(model.config.end_ids, testing::IsEmpty());
    GgufMetadata tokenizer("m.gguf");
    tokenizer.add("tokenizer.ggml.pre", std::string("smollm"));
    tokenizer.add("tokenizer.ggml.tokens", std::vector<std::string>{"a"});
    tokenizer.add("tokenizer.ggml.token_type", std::vector<int64_t>{1});
    tokenizer.add("tokenizer.ggml.merges", std::vector<std::string>());
    tokenizer.add("tokenizer.ggml.bos_token_id", none);
    EXPECT_FALSE(gguf_byte_level(tokenizer).bos);
    tokenizer.add("tokenizer.ggml.bos_token_id", int64_t{1});
    EXPECT_THAT(error_message<WeightsError>([&] { gguf_byte_level(tokenizer); }),
                HasSubstr("is 1, but there are 1 tokens"));
  }
}

TEST(GgufModelTest, ALinearScalingWithoutAFactorIsNone) {
  for (const std::string architecture : {"llama", "gemma"}) {
    const GgufEntries linear = {{architecture + ".rope.scaling.type", std::string("linear")}};
    EXPECT_EQ(describe_metadata(architecture, linear).plan[0].rope.factor, 1.0) << architecture;
  }
}

TEST(GgufModelTest, FrequenciesThatOldFilesHoldInEachLayerAreLeftOut) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "m.gguf";
  const std::vector<TensorLayout> layouts = {{"blk.0.attn_rot_embd.weight", DType::kF32, {6}},
                                             {"blk.0.attn_norm.weight", DType::kF32, {6}}};
  GgufFileWriter writer(path, {{"general.architecture", std::string("llama")}}, layouts);
  const std::vector<float> values(6, 1.0F);
  for (size_t i = 0; i < layouts.size(); ++i) {
    writer.write(std::as_bytes(std::span(values)));
  }
  writer.commit();
  const GgufTensors tensors(std::make_shared<const GgufFile>(path), {});
  EXPECT_EQ(tensors.tensors().size(), 1U);
  EXPECT_NE(tensors.find("model.layers.0.input_layernorm.weight"), nullptr);
}

TEST(GgufModelTest, AFactorAloneIsALinearScaling) {
  for (const std::string key : {"rope.scaling.factor", "rope.scale_linear"}) {
    EXPECT_EQ(describe_metadata("qwen2", {{"qwen2." + key, 4.0}}).plan[0].rope.factor, 4.0) << key;
    EXPECT_EQ(describe_metadata("gemma", {{"gemma." + key, 4.0}}).plan[0].rope.factor, 4.0) << key;
  }
  const GgufEntries none = {{"llama.rope.scaling.factor", 4.0},
                            {"llama.rope.scaling.type", std::string("none")}};
  EXPECT_EQ(describe_metadata("llama", none).plan[0].rope.factor, 1.0);
}

TEST(GgufModelTest, AGemma3WithoutAWindowHasNone) {
  const auto windows = [](const char* architecture, const GgufEntries& more) {
    std::vector<int64_t> all;
    for (const LayerPlan& layer : describe_metadata(architecture, more).plan) {
      all.push_back(layer.window);
    }
    return all;
  };
  EXPECT_THAT(windows("gemma3", {}), testing::ElementsAre(0, 0));
  EXPECT_THAT(windows("gemma3", {{"gemma3.attention.sliding_window", int64_t{5}}}),
              testing::ElementsAre(5, 5));
  EXPECT_THAT(windows("gemma2", {}), testing::ElementsAre(4096, 0));
  for (const std::string family : {"gemma2", "gemma3", "llama"}) {
    EXPECT_THAT(error_message<WeightsError>([&] {
                  windows(family.c_str(), {{family + ".attention.sliding_window", int64_t{-5}}});
                }),
                HasSubstr("'" + family + ".attention.sliding_window' is -5, but should be 0"));
  }
}

TEST(GgufModelTest, NumbersOfHeadsMayBeListedByLayer) {
  const auto read = [](std::vector<int64_t> heads) {
    return describe_metadata("llama", {{"llama.attention.head_count_kv", std::move(heads)}});
  };
  EXPECT_EQ(read({2, 2}).plan[1].kv_heads, 2);
  EXPECT_THAT(error_message<WeightsError>([&] {
                read({2, 4});
              }),
              HasSubstr("'llama.attention.head_count_kv' differs between layers (2 and 4)"));
  for (const auto& wrong : {std::vector<int64_t>{}, {2}, {2, 2, 2}}) {
    EXPECT_THAT(error_message<WeightsError>([&] { read(wrong); }),
                HasSubstr(fmt::format("'llama.attention.head_count_kv' has {} entries for 2 layers",
                                      wrong.size())));
  }
}

TEST(GgufModelTest, ErrorsNameTheKeysOfTheFile) {
  const std::vector<std::pair<const char*, GgufEntry>> wrong = {
      {"attention.head_count", int64_t{0}},
      {"attention.head_count_kv", int64_t{3}},
      {"attention.key_length", int64_t{7}},
      {"attention.layer_norm_rms_epsilon", 0.0},
      {"block_count", int64_t{5000}},
      {"context_length", int64_t{0}},
      {"embedding_length", int64_t{0}},
      {"feed_forward_length", int64_t{0}},
      {"rope.freq_base", -1.0},
      {"rope.scaling.factor", -2.0},
      {"rope.scale_linear", -2.0}};
  for (const std::string architecture : {"llama", "gemma3"}) {
    for (const auto& [key, value] : wrong) {
      const std::string name = architecture + "." + key;
      EXPECT_THAT(error_message<WeightsError>([&, entry = value] {
                    describe_metadata(architecture, {{name, entry}});
                  }),
                  HasSubstr("'" + name + "' "));
    }
  }
  for (const char* key : {"attention.scale", "attention.sliding_window", "rope.freq_base_swa",
                          "final_logit_softcapping"}) {
    const std::string name = std::string("gemma3.") + key;
    EXPECT_THAT(error_message<WeightsError>([&] {
                  describe_metadata("gemma3", {{name, 0.0}});
                }),
                HasSubstr("'" + name + "' should "));
  }
  EXPECT_THAT(error_message<WeightsError>([] {
                describe_metadata("gemma3", {{"gemma3.attention.sliding_window", int64_t{4}},
                                             {"gemma3.attention.sliding_window_pattern",
                                              std::vector<bool>{true, false, true}}});
              }),
              HasSubstr("'gemma3.attention.sliding_window_pattern' should be a list of 2"));
}

TEST(GgufModelTest, FrequenciesOfLlama3AreNotLeftOutInGemma) {
  EXPECT_EQ(describe_metadata("qwen2", {}, 2.0F).plan[1].rope.divisors,
            std::vector<double>(6, 2.0));
  EXPECT_THAT(
      error_message<WeightsError>([&] { describe_metadata("gemma3", {}, 2.0F); }),
      HasSubstr("'rope_freqs.weight' scales the rotations, which is not supported in Gemma"));
}

TEST(GgufModelTest, HeadsOfWhichOnlyAPartIsRotatedAreRefused) {
  for (const std::string architecture : {"llama", "qwen2", "gemma", "gemma3"}) {
    const std::string prefix = architecture + ".";
    for (const std::string key : {"rope.dimension_count", "attention.value_length"}) {
      const auto message = error_message<WeightsError>([&] {
        describe_metadata(architecture, {{prefix + key, int64_t{6}}});
      });
      EXPECT_THAT(message, HasSubstr("'" + prefix + key + "' is 6"));
    }
    EXPECT_EQ(describe_metadata(architecture, {}).plan[0].head_dim, 12) << architecture;
  }
}

TEST(GgufModelTest, FilesWithoutATokenizerTakeTokenIdsOnly) {
  GgufMetadata metadata("model.gguf");
  EXPECT_FALSE(has_tokenizer(metadata));
  metadata.add("tokenizer.ggml.tokens", std::vector<std::string>{"a"});
  EXPECT_TRUE(has_tokenizer(metadata));
  EXPECT_THAT(error_message<WeightsError>([&] { gguf_tokenizer(metadata); }),
              HasSubstr("'tokenizer.ggml.model' is missing"));
}

TEST(GgufModelTest, FilesAndFoldersThatAreNoModelsAreToldWhatTheyAre) {
  const TemporaryFolder folder;
  const auto text = folder.write("z.gguf", "not a model");
  EXPECT_THAT(error_message<WeightsError>([&] { describe_model(text); }),
              HasSubstr("z.gguf: is not a GGUF file"));
  EXPECT_THAT(error_message<WeightsError>([&] { load_tokenizer(text); }),
              HasSubstr("z.gguf: is not a GGUF file"));
  const auto file = folder.path() / "model.gguf";
  std::filesystem::copy_file(gguf_data("llama-q4_1.gguf"), file);
  const auto wanted = HasSubstr("but a GGUF file. Name the file: " + file.string());
  EXPECT_THAT(error_message<WeightsError>([&] { describe_model(folder.path()); }), wanted);
  EXPECT_THAT(error_message<WeightsError>([&] { load_tokenizer(folder.path()); }), wanted);
}

}  // namespace
}  // namespace specdec
