// Models in GGUF's Q2_K and Q3_K, mixed as in files of Q2_K and Q3_K_M: in the blocks of the file.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "core/families/model.h"
#include "core/families/model_size.h"
#include "core/formats/memory_tensors.h"
#include "core/transformer/transformer_model.h"
#include "kv/paged_kv.h"

namespace specdec {
namespace {

constexpr const char* kConfig = R"({
  "model_type": "llama", "vocab_size": 96, "hidden_size": 256, "intermediate_size": 512,
  "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
  "rms_norm_eps": 1e-6, "max_position_embeddings": 128, "tie_word_embeddings": true})";

/// Where the float16 numbers of a block lie.
std::vector<size_t> halves_of(DType dtype) {
  switch (dtype) {
    case DType::kQ2K:
      return {80, 82};
    case DType::kQ3K:
      return {108};
    case DType::kQ6K:
      return {208};
    default:
      return {0, 2};
  }
}

/// Random blocks, but for their float16 numbers, which are small.
std::shared_ptr<std::vector<std::byte>> random_blocks(DType dtype, int64_t values,
                                                      std::mt19937& random) {
  const auto size = static_cast<size_t>(dtype_bytes(dtype));
  const auto count = static_cast<size_t>(values / block_values(dtype));
  auto bytes = std::make_shared<std::vector<std::byte>>(size * count);
  for (std::byte& byte : *bytes) {
    byte = static_cast<std::byte>(random());
  }
  for (size_t block = 0; block < count; ++block) {
    for (const size_t offset : halves_of(dtype)) {
      const c10::Half half(static_cast<float>(random() % 1000) / 1e6F);
      std::memcpy(bytes->data() + block * size + offset, &half, sizeof(half));
    }
  }
  return bytes;
}

class LowBitModel {
 public:
  LowBitModel() {
    add("model.embed_tokens.weight", DType::kQ3K, {96, 256});
    add_ones("model.norm.weight");
    add_ones("model.layers.0.input_layernorm.weight");
    add_ones("model.layers.0.post_attention_layernorm.weight");
    const std::string attention = "model.layers.0.self_attn.";
    add(attention + "q_proj.weight", DType::kQ2K, {256, 256});
    add(attention + "k_proj.weight", DType::kQ2K, {128, 256});
    add(attention + "v_proj.weight", DType::kQ4K, {128, 256});
    add(attention + "o_proj.weight", DType::kQ3K, {256, 256});
    const std::string mlp = "model.layers.0.mlp.";
    add(mlp + "gate_proj.weight", DType::kQ2K, {512, 256});
    add(mlp + "up_proj.weight", DType::kQ3K, {512, 256});
    add(mlp + "down_proj.weight", DType::kQ6K, {256, 512});
  }

  OpenModel open() const { return open_model(kConfig, tensors_); }
  /// Bytes of all blocks of a type.
  int64_t stored_bytes(DType dtype) const { return bytes_.at(dtype); }

 private:
  void add(const std::string& name, DType dtype, const std::vector<int64_t>& shape) {
    const auto bytes = random_blocks(dtype, shape[0] * shape[1], random_);
    bytes_[dtype] += static_cast<int64_t>(bytes->size());
    tensors_->add({.name = name, .dtype = dtype, .shape = shape, .bytes = *bytes}, bytes);
  }
  void add_ones(const std::string& name) {
    const auto ones = std::make_shared<std::vector<float>>(256, 1.0F);
    tensors_->add({.name = name,
                   .dtype = DType::kF32,
                   .shape = {256},
                   .bytes = std::as_bytes(std::span<const float>(*ones))},
                  ones);
  }

  std::shared_ptr<MemoryTensors> tensors_ = std::make_shared<MemoryTensors>("low bits");
  std::map<DType, int64_t> bytes_;
  std::mt19937 random_{7};
};

Tensor low_bit_logits(const OpenModel& model, const LoadOptions& options) {
  const TokenBatch batch{.tokens = at::arange(3, 20, at::kInt)};
  return TransformerModel(load_model(model, options), paged_kv()).forward(batch).logits.clone();
}

TEST(LowBitBlocksTest, AreMultipliedAsStored) {
  const OpenModel model = LowBitModel().open();
  const auto stored = load_model(model);
  const LayerWeights& layer = stored->layers.front();
  EXPECT_EQ(stored->embedding.format(), WeightFormat::kQ3K);
  EXPECT_EQ(layer.qkv.format(0), WeightFormat::kQ2K);
  EXPECT_EQ(layer.qkv.format(256 + 128), WeightFormat::kQ4K);
  EXPECT_EQ(layer.output.format(), WeightFormat::kQ3K);
  EXPECT_EQ(layer.gate_up.format(0), WeightFormat::kQ2K);
  EXPECT_EQ(layer.gate_up.format(512), WeightFormat::kQ3K);
  const Tensor logits = low_bit_logits(model, {});
  EXPECT_TRUE(logits.isfinite().all().item<bool>());
  EXPECT_TRUE(at::equal(logits, low_bit_logits(model, {.dtype = at::kFloat})));
}

TEST(LowBitBlocksTest, TakeInt8Activations) {
  const OpenModel model = LowBitModel().open();
  const Tensor exact = low_bit_logits(model, {});
  const Tensor rounded =
      low_bit_logits(model, {.dtype = {}, .activations = ActivationFormat::kInt8});
  EXPECT_FALSE(at::equal(rounded, exact));
  EXPECT_LT((rounded - exact).norm().item<double>(), 0.1 * exact.norm().item<double>());
}

TEST(LowBitBlocksTest, KeepTheirSize) {
  const LowBitModel model;
  std::map<std::string, int64_t> measured;
  for (const auto& [format, bytes] : measure_weights(model.open())) {
    measured[format] = bytes;
  }
  EXPECT_EQ(measured.at("Q2_K"), model.stored_bytes(DType::kQ2K));
  EXPECT_EQ(measured.at("Q3_K"), model.stored_bytes(DType::kQ3K) * 114 / 110)
      << "scales of six bits take a byte";
  EXPECT_EQ(measured.count("float32"), 0U);
}

}  // namespace
}  // namespace specdec
