// Mixtures of experts as quantised folders hold them: an expert's matrices each by itself, as
// llm-compressor writes them, or stacked with stacks of scales, as transformers and MLX do.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>

#include "core/draft.h"
#include "core/error.h"
#include "core/families/gemma/gemma4_config.h"
#include "core/families/model.h"
#include "core/families/model_size.h"
#include "core/transformer/transformer_model.h"
#include "kv/paged_kv.h"
#include "tests/support/error_message.h"
#include "tests/support/hub_tensors.h"
#include "tests/support/quantizers.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kRoot = "model.language_model.";
constexpr int64_t kExperts = 4;

/// Matrices of whole blocks of 32 inputs; the experts' are no whole blocks of 64 rows and columns.
json experts_config() {
  return json::parse(R"({"model_type": "gemma4_text", "vocab_size": 20, "hidden_size": 64,
    "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 32, "global_head_dim": 64, "sliding_window": 6,
    "layer_types": ["sliding_attention", "full_attention"], "max_position_embeddings": 64,
    "attention_k_eq_v": true, "enable_moe_block": true, "num_experts": 4, "top_k_experts": 2,
    "moe_intermediate_size": 96, "hidden_size_per_layer_input": 0})");
}

QuantizedMatrix quantize_stack(const Quantizer& quantizer, const Tensor& matrices) {
  QuantizedMatrix stack;
  std::map<std::string, std::vector<Tensor>> parts;
  std::vector<Tensor> values;
  for (const Tensor& matrix : matrices.unbind()) {
    const QuantizedMatrix one = quantizer.quantize(matrix);
    values.push_back(one.values);
    for (const auto& [end, tensor] : one.tensors) {
      if (end != "_shape") {
        parts[end].push_back(tensor.second);
        stack.tensors[end].first = tensor.first;
      }
    }
  }
  for (const auto& [end, tensors] : parts) {
    stack.tensors[end].second = at::stack(tensors);
  }
  stack.values = at::stack(values);
  return stack;
}

/// Two folders: a quantised model, and the model of its values.
class QuantizedFolder {
 public:
  QuantizedFolder(const Quantizer& quantizer, bool stacked) : quantizer_(quantizer) {
    const json config = experts_config();
    const auto model = random_model(parse_gemma4_config(config.dump(), "config.json"),
                                    {.seed = 5, .dtype = at::kFloat, .norm_deviation = 0.3});
    for (const auto& [name, tensor] : hub_tensors(*model, kRoot)) {
      if (name.find("experts.") != std::string::npos && tensor.dim() == 3) {
        quantizer.name.starts_with("mlx") ? add_switch(name, tensor)
        : stacked                         ? add(name, quantize_stack(quantizer, tensor))
                                          : add_single(name, tensor);
      } else if (name.find("_proj.weight") != std::string::npos) {
        add(name, quantizer.quantize(tensor));
      } else {
        set(compressed_, name, DType::kF32, tensor);
        set(plain_, name, DType::kF32, tensor);
      }
    }
    config_ = {{"model_type", "gemma4"}, {"text_config", config}};
    write(plain_folder_, plain_, config_);
    config_["quantization_config"] = quantizer.config;
    write();
  }

  /// Writes the quantised folder again.
  void write() { write(folder_, compressed_, config_); }
  std::filesystem::path path() const { return folder_.path(); }
  std::filesystem::path plain_path() const { return plain_folder_.path(); }
  json& config() { return config_; }
  /// Tensors of the quantised folder, by name.
  std::map<std::string, std::pair<DType, Tensor>>& tensors() { return compressed_; }
  std::string complaint() {
    write();
    return error_message<WeightsError>([this] { load_model(path()); });
  }

 private:
  using Tensors = std::map<std::string, std::pair<DType, Tensor>>;

  static void set(Tensors& list, const std::string& name, DType dtype, const Tensor& values) {
    list[name] = {dtype, values.contiguous()};
  }

  void add(const std::string& name, const QuantizedMatrix& matrix) {
    add_tensors(name, matrix);
    set(plain_, name, DType::kF32, matrix.values);
  }

  void add_tensors(const std::string& name, const QuantizedMatrix& matrix) {
    for (const auto& [end, tensor] : matrix.tensors) {
      const bool of_module = end.starts_with('.');
      set(compressed_, (of_module ? name.substr(0, name.rfind('.')) : name) + end, tensor.first,
          tensor.second);
    }
  }

  /// "experts.gate_up_proj" -> "experts.switch_glu.gate_proj.weight", "....up_proj.weight".
  void add_switch(const std::string& name, const Tensor& stack) {
    const size_t dot = name.rfind('.');
    const std::string prefix = name.substr(0, dot) + ".switch_glu";
    const QuantizedMatrix matrices = quantize_stack(quantizer_, stack);
    set(plain_, name, DType::kF32, matrices.values);
    if (name.substr(dot) == ".down_proj") {
      return add_tensors(prefix + ".down_proj.weight", matrices);
    }
    for (const int64_t half : {0, 1}) {
      add_tensors(prefix + (half == 0 ? ".gate_proj.weight" : ".up_proj.weight"),
                  quantize_stack(quantizer_, stack.chunk(2, 1)[half]));
    }
  }

  /// "experts.gate_up_proj" -> "experts.3.gate_proj.weight", "experts.3.up_proj.weight".
  void add_single(const std::string& name, const Tensor& stack) {
    const size_t dot = name.rfind('.');
    const bool is_down = name.substr(dot) == ".down_proj";
    std::vector<Tensor> values;
    for (int64_t e = 0; e < stack.size(0); ++e) {
      const std::string prefix = fmt::format("{}.{}.", name.substr(0, dot), e);
      std::vector<Tensor> parts;
      for (const char* part :
           is_down ? std::vector{"down_proj"} : std::vector{"gate_proj", "up_proj"}) {
        const Tensor matrix = is_down ? stack[e] : stack[e].chunk(2)[parts.size()];
        const QuantizedMatrix one = quantizer_.quantize(matrix);
        for (const auto& [end, tensor] : one.tensors) {
          set(compressed_, prefix + part + ".weight" + end, tensor.first, tensor.second);
        }
        parts.push_back(one.values);
      }
      values.push_back(at::cat(parts));
    }
    set(plain_, name, DType::kF32, at::stack(values));
  }

  static void write(const TemporaryFolder& folder, const Tensors& tensors, const json& config) {
    std::vector<TensorToWrite> list;
    for (const auto& [name, tensor] : tensors) {
      const Tensor& values = tensor.second;
      list.push_back({name,
                      tensor.first,
                      values.sizes().vec(),
                      {static_cast<const std::byte*>(values.const_data_ptr()), values.nbytes()}});
    }
    write_safetensors(folder.path() / "model.safetensors", list);
    folder.write("config.json", config.dump());
  }

  const Quantizer& quantizer_;
  TemporaryFolder folder_, plain_folder_;
  Tensors compressed_, plain_;
  json config_;
};

constexpr int64_t kTokens = 14;

/// Logits of a text of kTokens tokens, `width` at a time.
Tensor logits_in_chunks(const std::filesystem::path& folder, int64_t width) {
  TransformerModel model(load_model(folder), paged_kv());
  const Tensor tokens = at::arange(1, 1 + kTokens, at::kInt);
  std::vector<Tensor> all;
  for (int64_t first = 0; first < kTokens; first += width) {
    const int64_t count = std::min(width, kTokens - first);
    all.push_back(model.forward({.tokens = tokens.narrow(0, first, count)}).logits.clone());
    model.commit(chain_path(count));
  }
  return at::cat(all);
}

class QuantizedExpertsTest : public testing::TestWithParam<std::tuple<Quantizer, bool>> {
 protected:
  const Quantizer& quantizer() const { return std::get<0>(GetParam()); }
  QuantizedFolder folder_{std::get<0>(GetParam()), std::get<1>(GetParam())};
};

TEST_P(QuantizedExpertsTest, TheyHaveTheBitsOfTheirValuesAtEveryWidth) {
  const Tensor plain = logits_in_chunks(folder_.plain_path(), kTokens);
  for (const int64_t width : {int64_t{1}, int64_t{3}, kTokens}) {
    EXPECT_TRUE(at::equal(logits_in_chunks(folder_.path(), width), plain)) << width;
  }
}

TEST_P(QuantizedExpertsTest, TheyAreAsSmallAsSaid) {
  const OpenModel open = open_model(folder_.path());
  EXPECT_EQ(measure_weights(open).count(quantizer().format), 1U);
  const auto weights = load_model(open);
  for (const LayerWeights& layer : weights->layers) {
    ASSERT_EQ(std::ssize(layer.experts.down), kExperts);
    for (size_t e = 0; e < layer.experts.down.size(); ++e) {
      EXPECT_EQ(format_name(layer.experts.gate_up[e].format()), quantizer().format);
      EXPECT_EQ(format_name(layer.experts.down[e].format()), quantizer().format);
    }
    EXPECT_STREQ(format_name(layer.experts.router.format()), "float32");
  }
  for (const TensorEntry* entry : open.tensors->tensors()) {
    EXPECT_TRUE(entry->bytes.empty() || entry->dtype == DType::kF32) << entry->name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, QuantizedExpertsTest,
                         testing::Combine(testing::Values(fp8_rows(), fp8_rows(DType::kBF16),
                                                          fp8_block_strategy(64), fp8_blocks(64),
                                                          fp8_whole(), w4a16(true), w4a16(false)),
                                          testing::Bool()),
                         [](const auto& info) {
                           return std::get<0>(info.param).name +
                                  (std::get<1>(info.param) ? "_stacked" : "_single");
                         });

INSTANTIATE_TEST_SUITE_P(Mlx, QuantizedExpertsTest,
                         testing::Combine(testing::Values(mlx(4)), testing::Values(true)),
                         [](const auto& info) { return std::get<0>(info.param).name; });

TEST(QuantizedExpertsFolderTest, EachMissingTensorOfAnExpertIsNamed) {
  const Quantizer quantizer = fp8_rows();
  QuantizedFolder folder(quantizer, false);
  const auto all = folder.tensors();
  for (const char* part : {"0.down_proj", "0.gate_proj", "2.up_proj", "3.down_proj"}) {
    const std::string name = fmt::format("{}layers.1.experts.{}.weight", kRoot, part);
    folder.tensors().erase(name);
    EXPECT_THAT(folder.complaint(), HasSubstr("'" + name + "' is missing"));
    folder.tensors() = all;
    folder.tensors().erase(name + "_scale");
    EXPECT_THAT(folder.complaint(), HasSubstr("'" + name + "' has no weight_scale beside it"));
    folder.tensors() = all;
  }
  folder.tensors()[fmt::format("{}layers.1.experts.4.down_proj.weight", kRoot)] = {DType::kF32,
                                                                                   at::ones({64})};
  EXPECT_THAT(folder.complaint(), HasSubstr("experts.4.down_proj.weight"));
}

TEST(QuantizedExpertsFolderTest, GroupsOfLayersMayBeStoredDifferently) {
  const Quantizer int4 = w4a16(true);
  QuantizedFolder folder(int4, false);
  const std::string attention = fmt::format("{}layers.0.self_attn.o_proj.weight", kRoot);
  const Tensor values = at::randn({64, 64});
  const QuantizedMatrix eight = fp8_rows().quantize(values);
  for (const char* end : {"_packed", "_scale", "_shape"}) {
    folder.tensors().erase(attention + end);
  }
  for (const auto& [end, tensor] : eight.tensors) {
    folder.tensors()[attention + end] = tensor;
  }
  json& keys = folder.config()["quantization_config"];
  json group = fp8_rows().config["config_groups"]["group_0"];
  group["format"] = "float-quantized";
  group["targets"] = {"re:.*self_attn\\.o_proj$"};
  keys["config_groups"]["group_0"]["format"] = "pack-quantized";
  keys["config_groups"]["group_1"] = group;
  keys["format"] = "mixed-precision";
  EXPECT_THAT(folder.complaint(), AllOf(HasSubstr("layers.1.self_attn.o_proj.weight_packed'"),
                                        HasSubstr("has dtype I32, but config.json's")));
  keys["config_groups"]["group_1"]["targets"] = {"re:.*layers.0.self_attn\\.o_proj$"};
  ASSERT_EQ(folder.complaint(), "no error");
  const auto weights = load_model(folder.path());
  EXPECT_TRUE(at::equal(weights->layers[0].output.unpack(), eight.values));
  EXPECT_STREQ(format_name(weights->layers[0].experts.down[3].format()), "INT4_32");
  keys["config_groups"]["group_0"]["targets"] = {"re:.*self_attn\\.[qkv]_proj$", "re:.*mlp",
                                                 "re:.*layers.1.self_attn\\.o_proj$"};
  EXPECT_THAT(folder.complaint(), AllOf(HasSubstr("experts.0.down_proj.weight_packed' is "
                                                  "compressed, but no group"),
                                        HasSubstr("config_groups")));
}

/// On a device they lie one after another, in one format.
TEST(QuantizedExpertsFolderTest, ThoseInSeveralFormatsAreFloat32InRows) {
  const Quantizer int4 = w4a16(true);
  QuantizedFolder folder(int4, false);
  for (int64_t expert = 0; expert < kExperts; ++expert) {
    const std::string name = fmt::format("{}layers.0.experts.{}.up_proj.weight", kRoot, expert);
    for (const char* end : {"_packed", "_scale", "_shape"}) {
      folder.tensors().erase(name + end);
    }
    for (const auto& [end, tensor] : fp8_rows().quantize(at::randn({96, 64})).tensors) {
      folder.tensors()[name + end] = tensor;
    }
  }
  json& keys = folder.config()["quantization_config"];
  json group = fp8_rows().config["config_groups"]["group_0"];
  group["format"] = "float-quantized";
  group["targets"] = {"re:.*layers.0.experts.*up_proj$"};
  keys["config_groups"]["group_0"]["format"] = "pack-quantized";
  keys["config_groups"]["group_1"] = group;
  keys["format"] = "mixed-precision";
  ASSERT_EQ(folder.complaint(), "no error");
  const auto host = load_model(folder.path());
  LoadOptions rows;
  rows.place.layout = WeightLayout::kRows;
  const auto device = load_model(folder.path(), rows);
  for (size_t layer = 0; layer < 2; ++layer) {
    const auto& experts = device->layers[layer].experts;
    for (size_t e = 0; e < experts.down.size(); ++e) {
      EXPECT_STREQ(format_name(experts.gate_up[e].format()), layer == 0 ? "float32" : "INT4_32");
      EXPECT_STREQ(format_name(experts.down[e].format()), "INT4_32");
    }
    EXPECT_TRUE(
        at::equal(experts.gate_up[2].unpack(), host->layers[layer].experts.gate_up[2].unpack()));
  }
}

}  // namespace
}  // namespace specdec
