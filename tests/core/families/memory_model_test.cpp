// Models whose tensors, config and GGUF files are in memory.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "core/error.h"
#include "core/families/model.h"
#include "core/formats/memory_tensors.h"
#include "core/formats/strict_json.h"
#include "core/transformer/transformer_model.h"
#include "kv/paged_kv.h"
#include "tests/support/error_message.h"
#include "tests/support/golden.h"

namespace specdec {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

const std::vector<Token> kPrompt = {2, 5, 7, 9, 11, 3};

Tensor logits_in_memory(std::shared_ptr<const TransformerWeights> weights) {
  TransformerModel model(std::move(weights), paged_kv());
  return model.prefill_get_last_logits(kPrompt).clone();
}

/// A folder's config.json and the bytes of its model.safetensors.
struct FolderInMemory {
  explicit FolderInMemory(const std::filesystem::path& folder)
      : config(read_file(folder / "config.json")),
        bytes(std::make_shared<std::string>(read_file(folder / "model.safetensors"))) {}

  std::shared_ptr<MemoryTensors> tensors() const {
    auto tensors = std::make_shared<MemoryTensors>("my model");
    tensors->add_safetensors(std::as_bytes(std::span(*bytes)), "my bytes", bytes);
    return tensors;
  }

  std::string config;
  std::shared_ptr<std::string> bytes;
};

TEST(MemoryModelTest, HasTheLogitsOfTheFolder) {
  // One of each kind of source: plain, with a table that is read in place, of another family.
  for (const char* name : {"gemma3-a", "gemma4-e-a", "llama-a"}) {
    const auto folder = test_data(name);
    OpenModel open;
    {
      const FolderInMemory memory(folder);
      open = open_model(memory.config, memory.tensors());
    }
    const auto weights = load_model(open);
    open = {};  // what is still read is kept
    EXPECT_TRUE(at::equal(logits_in_memory(weights), logits_in_memory(load_model(folder)))) << name;
  }
}

TEST(MemoryModelTest, LoadsTensorsThatAProgramMade) {
  const auto folder = test_data("gemma3-a");
  const SafetensorsFile file(folder / "model.safetensors");
  const auto tensors = std::make_shared<MemoryTensors>("made");
  for (const TensorEntry& entry : file.tensors()) {
    auto copy = std::make_shared<std::vector<std::byte>>(entry.bytes.begin(), entry.bytes.end());
    tensors->add({.name = entry.name, .dtype = entry.dtype, .shape = entry.shape, .bytes = *copy},
                 copy);
  }
  const OpenModel open = open_model(read_file(folder / "config.json"), tensors);
  EXPECT_TRUE(at::equal(logits_in_memory(load_model(open)), logits_in_memory(load_model(folder))));
}

TEST(MemoryModelTest, AGgufInMemoryHasTheLogitsOfTheFile) {
  for (const char* name : {"gguf/llama-q4_1.gguf", "gguf/gemma3-mixed.gguf"}) {
    const std::string bytes = read_file(test_data(name));
    const auto span = std::as_bytes(std::span(bytes));
    const auto weights = load_model(std::make_shared<const GgufFile>(span, "memory"));
    EXPECT_TRUE(at::equal(logits_in_memory(weights), logits_in_memory(load_model(test_data(name)))))
        << name;
    EXPECT_THAT(error_message<WeightsError>([&] { GgufFile(span.first(100), "a part"); }),
                HasSubstr("a part: "));
  }
}

class MemoryModelErrorTest : public testing::Test {
 protected:
  /// The message of loading a model whose config was changed.
  std::string complaint(const std::function<void(json&)>& change) const {
    json config = json::parse(memory_.config);
    change(config);
    return error_message<WeightsError>(
        [&] { load_model(open_model(config.dump(), memory_.tensors())); });
  }

  const FolderInMemory memory_{test_data("gemma3-a")};
};

TEST_F(MemoryModelErrorTest, NamesTheTensorsAndTheKey) {
  EXPECT_THAT(complaint([](json& config) { config["model_type"] = "bert"; }),
              AllOf(HasSubstr("my model/config.json"), HasSubstr("model_type")));
  EXPECT_THAT(complaint([](json& config) { config["hidden_size"] = "many"; }),
              AllOf(HasSubstr("my model/config.json"), HasSubstr("hidden_size")));
  EXPECT_THAT(complaint([](json& config) { config["vocab_size"] = 7; }),
              HasSubstr("my model: tensor 'model.embed_tokens.weight' has shape"));
  EXPECT_THAT(complaint([](json& config) { config["medusa_num_heads"] = 2; }),
              HasSubstr("describes a head of type medusa"));
  EXPECT_THAT(error_message<WeightsError>([&] { open_model("[]", memory_.tensors()); }),
              HasSubstr("my model/config.json"));
  EXPECT_THROW(open_model(memory_.config, nullptr), InternalError);
}

TEST_F(MemoryModelErrorTest, MissingAndForeignTensorsAreNamed) {
  const auto tensors = memory_.tensors();
  const float value = 0.0F;
  const auto bytes = std::as_bytes(std::span(&value, 1));
  tensors->add({.name = "model.other", .dtype = DType::kF32, .shape = {1}, .bytes = bytes});
  EXPECT_THAT(error_message<WeightsError>([&] { load_model(open_model(memory_.config, tensors)); }),
              HasSubstr("my model: tensor 'model.other'"));
  EXPECT_THAT(error_message<WeightsError>([&] {
                load_model(open_model(memory_.config, std::make_shared<MemoryTensors>("none")));
              }),
              AllOf(HasSubstr("none: tensor"), HasSubstr("is missing")));
}

}  // namespace
}  // namespace specdec
