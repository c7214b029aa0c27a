#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>

#include "core/error.h"
#include "core/families/model.h"
#include "core/formats/safetensors.h"
#include "core/transformer/tensor_source.h"
#include "core/transformer/transformer_model.h"
#include "kv/paged_kv.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

namespace fs = std::filesystem;

/// A copy of a golden set whose model.safetensors can be changed.
class LlamaWeightsTest : public testing::Test {
 protected:
  void change(const std::string& name,
              const std::function<void(std::vector<TensorToWrite>&)>& change) {
    folder_ = temporary_.path() / name;
    fs::copy(test_data(name), folder_);
    const SafetensorsFile file(test_data(name) / "model.safetensors");
    std::vector<TensorToWrite> tensors;
    for (const TensorEntry& entry : file.tensors()) {
      tensors.push_back({entry.name, entry.dtype, entry.shape, entry.bytes});
    }
    change(tensors);
    fs::remove(folder_ / "model.safetensors");
    write_safetensors(folder_ / "model.safetensors", tensors);
  }
  static TensorToWrite* find(std::vector<TensorToWrite>& tensors, const std::string& name) {
    const auto found = std::find_if(tensors.begin(), tensors.end(),
                                    [&](const TensorToWrite& one) { return one.name == name; });
    EXPECT_NE(found, tensors.end()) << name;
    return &*found;
  }
  std::string load_error() const {
    try {
      load_model_tensors(folder_);
    } catch (const WeightsError& error) {
      return error.what();
    }
    return "no error";
  }

  TemporaryFolder temporary_;
  fs::path folder_;
};

/// The logits of some tokens.
at::Tensor logits_of(const std::shared_ptr<const TransformerWeights>& weights) {
  TransformerModel model(weights, paged_kv());
  return model.forward({.tokens = at::arange(3, 20, at::kInt), .rows = {}, .parents = {}}).logits;
}

TEST_F(LlamaWeightsTest, EachMatrixKeepsItsDtype) {
  const std::map<std::string, std::pair<DType, at::ScalarType>> others = {
      {"model.embed_tokens.weight", {DType::kBF16, at::kBFloat16}},
      {"model.layers.0.self_attn.k_proj.weight", {DType::kF16, at::kHalf}},
      {"model.layers.1.mlp.down_proj.weight", {DType::kF64, at::kDouble}}};
  for (const bool with_float64 : {false, true}) {
    std::vector<at::Tensor> kept;
    change("llama-a", [&](auto& tensors) {
      for (const auto& [name, types] : others) {
        TensorToWrite* tensor = find(tensors, name);
        if (types.first == DType::kF64 && !with_float64) {
          continue;
        }
        kept.push_back(
            mapped_tensor({name, tensor->dtype, tensor->shape, tensor->bytes}).to(types.second));
        tensor->dtype = types.first;
        tensor->bytes = {static_cast<const std::byte*>(kept.back().const_data_ptr()),
                         kept.back().nbytes()};
      }
    });
    const auto stored = load_model(folder_);
    const auto wanted = load_model(folder_, {.dtype = with_float64 ? at::kDouble : at::kFloat});
    EXPECT_TRUE(at::equal(logits_of(stored), logits_of(wanted)));
    EXPECT_EQ(stored->compute_dtype(), with_float64 ? at::kDouble : at::kFloat);
    const auto format = [&](WeightFormat own) {
      return with_float64 ? WeightFormat::kFloat64 : own;
    };
    const LayerPlan& plan = stored->plan.front();
    const int64_t queries = plan.heads * plan.head_dim;
    EXPECT_EQ(stored->embedding.format(), format(WeightFormat::kBFloat16));
    EXPECT_EQ(stored->layers[0].qkv.format(0), format(WeightFormat::kFloat32));
    EXPECT_EQ(stored->layers[0].qkv.format(queries), format(WeightFormat::kFloat16));
    EXPECT_TRUE(
        at::equal(load_model_tensors(folder_)->layers[0].qkv,
                  load_model_tensors(folder_, {.dtype = wanted->weight_dtype})->layers[0].qkv));
    fs::remove_all(folder_);
  }
}

TEST_F(LlamaWeightsTest, AMissingBiasIsNamed) {
  change("qwen2-a", [](auto& tensors) {
    find(tensors, "model.layers.1.self_attn.k_proj.bias")->name = "model.layers.1.other";
  });
  EXPECT_THAT(load_error(),
              testing::HasSubstr("'model.layers.1.self_attn.k_proj.bias' is missing"));
}

TEST_F(LlamaWeightsTest, ABiasThatNoKeySpeaksOfIsAnError) {
  change("llama-a", [](auto& tensors) {
    TensorToWrite bias = *find(tensors, "model.norm.weight");
    bias.name = "model.layers.0.self_attn.o_proj.bias";
    tensors.push_back(bias);
  });
  EXPECT_THAT(load_error(), testing::HasSubstr("'model.layers.0.self_attn.o_proj.bias'"));
}

TEST_F(LlamaWeightsTest, ValuesThatAreNoNumbersAreNamedByTheirPlace) {
  for (const auto& [value, name] : {std::pair{NAN, "NaN"}, {-INFINITY, "infinity"}}) {
    std::vector<float> values;
    change("llama-a", [&, wrong = value](auto& tensors) {
      TensorToWrite* down = find(tensors, "model.layers.1.mlp.down_proj.weight");
      values.resize(down->bytes.size() / sizeof(float));
      std::memcpy(values.data(), down->bytes.data(), down->bytes.size());
      values[static_cast<size_t>(3 * down->shape[1] + 5)] = wrong;
      down->bytes = std::as_bytes(std::span(values));
    });
    EXPECT_THAT(load_error(),
                testing::HasSubstr(fmt::format(
                    "tensor 'model.layers.1.mlp.down_proj.weight' holds {} at [3, 5]", name)));
    fs::remove_all(folder_);
  }
}

TEST_F(LlamaWeightsTest, AFolderWithoutConfigIsNoCheckpoint) {
  change("llama-a", [](auto&) {});
  fs::remove(folder_ / "config.json");
  EXPECT_THAT(load_error(), testing::HasSubstr("llama-a: it holds no config.json. Name a"));
}

TEST_F(LlamaWeightsTest, OldRotaryBuffersAreSkipped) {
  change("llama-a", [](auto& tensors) {
    TensorToWrite buffer = *find(tensors, "model.norm.weight");
    buffer.name = "model.layers.0.self_attn.rotary_emb.inv_freq";
    tensors.push_back(buffer);
  });
  EXPECT_EQ(load_error(), "no error");
}

TEST_F(LlamaWeightsTest, ModelsSavedWithoutTheirHeadAreRead) {
  const auto whole = load_model_tensors(test_data("qwen2-a"));
  for (const std::string prefix : {"", "language_model."}) {
    change("qwen2-a", [&](auto& tensors) {
      for (TensorToWrite& tensor : tensors) {
        tensor.name = prefix + tensor.name.substr(std::string("model.").size());
      }
    });
    const auto weights = load_model_tensors(folder_);
    EXPECT_TRUE(at::equal(weights->embedding, whole->embedding)) << prefix;
    EXPECT_TRUE(at::equal(weights->layers.back().down, whole->layers.back().down)) << prefix;
    EXPECT_TRUE(at::equal(weights->final_norm, whole->final_norm)) << prefix;
    fs::remove_all(folder_);
  }
}

TEST_F(LlamaWeightsTest, ATiedHeadThatDiffersIsUsed) {
  std::vector<std::byte> other;
  change("qwen2-a", [&](auto& tensors) {
    TensorToWrite head = *find(tensors, "model.embed_tokens.weight");
    head.name = "lm_head.weight";
    other.assign(head.bytes.begin(), head.bytes.end());
    other[0] ^= std::byte{1};
    head.bytes = other;
    tensors.push_back(head);
  });
  const auto weights = load_model_tensors(folder_);
  EXPECT_FALSE(weights->config.tie_word_embeddings);
  EXPECT_FALSE(at::equal(weights->head, weights->embedding));
}

TEST_F(LlamaWeightsTest, ATiedHeadThatIsTheEmbeddingIsTied) {
  change("qwen2-a", [&](auto& tensors) {
    TensorToWrite head = *find(tensors, "model.embed_tokens.weight");
    head.name = "lm_head.weight";
    tensors.push_back(head);
  });
  const auto weights = load_model_tensors(folder_);
  EXPECT_TRUE(weights->config.tie_word_embeddings);
  EXPECT_TRUE(weights->head.is_same(weights->embedding));
}

}  // namespace
}  // namespace specdec
