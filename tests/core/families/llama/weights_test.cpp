#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>

#include "core/error.h"
#include "core/families/model.h"
#include "core/formats/safetensors.h"
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
