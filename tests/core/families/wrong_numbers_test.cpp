// Every number of a tiny model's description is replaced by one that makes no sense: what follows
// is an error that names the key (or the tensor that does not fit it), or a model that can be run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "core/error.h"
#include "core/families/model.h"
#include "core/formats/gguf/gguf_writer.h"
#include "core/formats/memory_tensors.h"
#include "core/formats/strict_json.h"
#include "core/transformer/transformer_model.h"
#include "kv/paged_kv.h"
#include "tests/support/golden.h"
#include "tests/support/parameter_name.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using nlohmann::json;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kHuge = int64_t{1} << 40;

/// Loads a model and runs it; "" where that works, else the message of the WeightsError.
std::string outcome(const std::function<std::shared_ptr<const TransformerWeights>()>& load) {
  std::shared_ptr<const TransformerWeights> weights;
  try {
    weights = load();
  } catch (const WeightsError& error) {
    return error.what();
  }
  TransformerModel model(weights, paged_kv(), {.max_length = 16});
  const Tensor logits = model.prefill_get_last_logits(std::vector<Token>{2, 5, 7});
  EXPECT_EQ(logits.size(0), weights->config.vocab_size);
  return "";
}

void expect_named(const std::string& message, const std::string& key, const std::string& value) {
  EXPECT_TRUE(message.empty() || message.find(key) != std::string::npos ||
              message.find("tensor '") != std::string::npos)
      << key << " = " << value << ": " << message;
}

class WrongGgufTest : public testing::TestWithParam<std::string> {};

/// What a value is replaced by.
std::vector<GgufEntry> wrong_values(const GgufValue& value) {
  if (std::holds_alternative<int64_t>(value)) {
    return {std::string("many"), int64_t{0}, int64_t{-1}, kHuge, 0.5};
  }
  if (std::holds_alternative<double>(value)) {
    return {std::string("much"), 0.0, -1.0, 1e38, kNan};
  }
  if (const auto* list = std::get_if<std::vector<int64_t>>(&value)) {
    return {std::string("many"), std::vector<int64_t>(), std::vector<int64_t>(list->size(), -1),
            std::vector<int64_t>(list->size(), int64_t{1} << 30)};
  }
  if (const auto* list = std::get_if<std::vector<float>>(&value)) {
    return {std::string("much"), std::vector<float>(),
            std::vector<float>(list->size(), static_cast<float>(kNan))};
  }
  return {};
}

TEST_P(WrongGgufTest, IsAnErrorThatNamesTheKeyOrAModel) {
  const GgufFile file(golden_gguf(GetParam()));
  const auto architecture = file.metadata().text("general.architecture");
  std::vector<TensorLayout> layouts;
  for (const TensorEntry& tensor : file.tensors()) {
    layouts.push_back({.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape});
  }
  const TemporaryFolder folder;
  const auto path = folder.path() / "wrong.gguf";
  int64_t refused = 0;
  for (const auto& [key, value] : file.metadata().values()) {
    const auto wrong =
        key.rfind(architecture + ".", 0) == 0 ? wrong_values(value) : std::vector<GgufEntry>();
    for (size_t i = 0; i < wrong.size(); ++i) {
      GgufEntries entries;
      for (const auto& [name, own] : file.metadata().values()) {
        std::visit([&, &name = name](const auto& each) { entries.emplace_back(name, each); }, own);
        if (name == key) {
          entries.back().second = wrong[i];
        }
      }
      GgufFileWriter writer(path, entries, layouts);
      for (const TensorEntry& tensor : file.tensors()) {
        writer.write(tensor.bytes);
      }
      writer.commit();
      const std::string message = outcome([&] { return load_model(path); });
      expect_named(message, key, fmt::format("wrong value {}", i));
      refused += message.empty() ? 0 : 1;
    }
  }
  EXPECT_GT(refused, 20);
}

INSTANTIATE_TEST_SUITE_P(Files, WrongGgufTest,
                         testing::ValuesIn(found_golden_gguf({"gemma2-q8_0", "gemma3-q8_0",
                                                              "gemma3n-q8_0", "gemma4-moe-q8_0",
                                                              "llama-f16"})),
                         ParameterName());

class WrongConfigTest : public testing::TestWithParam<std::string> {};

/// Paths of all numbers.
std::vector<json::json_pointer> numbers_of(const json& config) {
  std::vector<json::json_pointer> all;
  const json flat = config.flatten();
  for (const auto& [path, value] : flat.items()) {
    if (value.is_number()) {
      all.emplace_back(path);
    }
  }
  return all;
}

/// The key that a path ends with; that of the list where it ends with an index.
std::string key_of(json::json_pointer path) {
  while (path.back().find_first_not_of("0123456789") == std::string::npos) {
    path.pop_back();
  }
  return path.back();
}

TEST_P(WrongConfigTest, IsAnErrorThatNamesTheKeyOrAModel) {
  const auto folder = test_data(GetParam());
  const json config = json::parse(read_file(folder / "config.json"));
  const auto tensors = std::make_shared<const CheckpointTensors>(folder);
  int64_t refused = 0;
  for (const auto& path : numbers_of(config)) {
    for (const json& wrong : {json("many"), json(0), json(-1), json(kHuge), json(0.5), json(1e300),
                              json::array(), json::object()}) {
      json changed = config;
      changed[path] = wrong;
      const std::string message =
          outcome([&] { return load_model(open_model(changed.dump(), tensors)); });
      expect_named(message, key_of(path), wrong.dump());
      refused += message.empty() ? 0 : 1;
    }
  }
  EXPECT_GT(refused, 40);
}

INSTANTIATE_TEST_SUITE_P(
    Folders, WrongConfigTest,
    testing::ValuesIn(found_golden({"gemma-a", "gemma2-a", "gemma3-a", "gemma3n-a", "gemma4-e-a",
                                    "gemma4-moe-a", "llama-a", "mistral-a", "qwen2-a", "qwen3-a"})),
    ParameterName());

}  // namespace
}  // namespace specdec
