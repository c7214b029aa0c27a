#include "core/transformer/heads/eagle_head.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/error.h"
#include "core/formats/safetensors.h"
#include "core/transformer/heads/head_reference.h"
#include "core/transformer/rope_table.h"
#include "core/transformer/tensor_writer.h"
#include "tests/support/error_message.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_gemma.h"

namespace specdec {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kEagleVocab = 11;
constexpr int64_t kEagleHidden = 16;

/// The tensors of a published head, by their published names; random bfloat16.
class Published {
 public:
  Published() : random_({.seed = 3, .dtype = at::kBFloat16}) {}

  void matrix(const std::string& name, int64_t rows, int64_t columns) {
    tensors[name] = random_.matrix(rows, columns);
  }
  void norm(const std::string& name) { tensors[name] = random_.norm(kEagleHidden); }

  void layer(const std::string& prefix, int64_t input) {
    matrix(prefix + "self_attn.q_proj.weight", 16, input);
    matrix(prefix + "self_attn.k_proj.weight", 8, input);
    matrix(prefix + "self_attn.v_proj.weight", 8, input);
    matrix(prefix + "self_attn.o_proj.weight", kEagleHidden, 16);
    matrix(prefix + "mlp.gate_proj.weight", 24, kEagleHidden);
    matrix(prefix + "mlp.up_proj.weight", 24, kEagleHidden);
    matrix(prefix + "mlp.down_proj.weight", kEagleHidden, 24);
    norm(prefix + "post_attention_layernorm.weight");
  }

  void write(const std::filesystem::path& folder) const {
    TensorWriter writer(at::kBFloat16);
    for (const auto& [name, tensor] : tensors) {
      writer.add(name, tensor);
    }
    writer.write(folder / "model.safetensors");
    std::ofstream(folder / "config.json") << config.dump();
  }

  std::map<std::string, Tensor> tensors;
  json config = {{"architectures", {"LlamaForCausalLM"}},
                 {"model_type", "llama"},
                 {"hidden_act", "silu"},
                 {"hidden_size", kEagleHidden},
                 {"intermediate_size", 24},
                 {"num_attention_heads", 2},
                 {"num_key_value_heads", 1},
                 {"num_hidden_layers", 1},
                 {"rms_norm_eps", 1e-5},
                 {"vocab_size", kEagleVocab}};

 private:
  RandomTensors random_;
};

/// A head of EAGLE-1 and 2 as SafeAILab/EAGLE stores it.
Published published_eagle() {
  Published head;
  head.matrix("embed_tokens.weight", kEagleVocab, kEagleHidden);
  head.matrix("fc.weight", kEagleHidden, 2 * kEagleHidden);
  head.tensors["fc.bias"] = at::full({kEagleHidden}, 0.25);
  head.layer("layers.0.", kEagleHidden);
  return head;
}

/// A head of EAGLE-3 as SafeAILab/EAGLE and SpecForge store it; draft token i is the target's 2 i +
/// 1.
Published published_eagle3() {
  Published head;
  head.config["architectures"] = {"LlamaForCausalLMEagle3"};
  head.config["draft_vocab_size"] = 5;
  head.config["eagle_config"] = {{"eagle_aux_hidden_state_layer_ids", {0, 2}}};
  head.matrix("fc.weight", kEagleHidden, 2 * kEagleHidden);
  head.layer("midlayer.", 2 * kEagleHidden);
  head.norm("midlayer.hidden_norm.weight");
  head.norm("midlayer.input_layernorm.weight");
  head.norm("norm.weight");
  head.matrix("lm_head.weight", 5, kEagleHidden);
  const Tensor ids = at::arange(5) * 2 + 1;
  head.tensors["d2t"] = ids - at::arange(5);
  head.tensors["t2d"] = at::zeros({kEagleVocab}, at::kBool).index_fill_(0, ids, true);
  return head;
}

class EagleHeadTest : public testing::Test {
 protected:
  std::shared_ptr<EagleHead> load(EagleVersion version) const {
    return load_eagle_head(folder_.path(), version, *target_);
  }
  std::string load_error(EagleVersion version) const {
    return error_message<WeightsError>([&] { load(version); });
  }
  /// The message for a published EAGLE-3 head with a change.
  std::string error_of(const std::function<void(Published&)>& change) const {
    Published head = published_eagle3();
    change(head);
    head.write(folder_.path());
    return load_error(EagleVersion::kEagle3);
  }

  TemporaryFolder folder_;
  std::shared_ptr<TransformerWeights> target_ = tiny_gemma(kEagleVocab, at::kFloat);
};

TEST_F(EagleHeadTest, ReadsThePublishedLayoutOfEagle) {
  const Published published = published_eagle();
  published.write(folder_.path());
  const auto head = load(EagleVersion::kEagle);
  EXPECT_EQ(head->config.style, LayerStyle::kLlama);
  EXPECT_FALSE(head->config.scale_embedding);
  EXPECT_TRUE(head->config.feature_after_norm);
  EXPECT_TRUE(at::equal(head->fc, published.tensors.at("fc.weight")));
  EXPECT_EQ(head->fc_bias[3].item<float>(), 0.25F);
  EXPECT_FALSE(head->layer.weights.attention_norm.defined());
  EXPECT_EQ(head->layer.plan.activation, Activation::kSilu);
  // Llama's norms scale by w, not by 1 + w.
  EXPECT_TRUE(at::equal(head->layer.weights.mlp_norm,
                        published.tensors.at("layers.0.post_attention_layernorm.weight")
                            .to(at::kBFloat16)
                            .to(at::kFloat)));
}

TEST_F(EagleHeadTest, ReadsThePublishedLayoutOfEagle3) {
  published_eagle3().write(folder_.path());
  const auto head = load(EagleVersion::kEagle3);
  EXPECT_EQ(head->config.capture_layers, (std::vector<int64_t>{0, 2}));
  EXPECT_TRUE(at::equal(head->target_ids, at::tensor({1, 3, 5, 7, 9}, at::kLong)));
  EXPECT_EQ(head->layer.weights.qkv.size(1), 2 * kEagleHidden);
  EXPECT_TRUE(head->layer.weights.attention_norm.defined());
  EXPECT_FALSE(head->fc_bias.defined());
}

TEST_F(EagleHeadTest, LayerIdsAtTheTopOfTheConfigCountInputs) {
  Published head = published_eagle3();
  head.config.erase("eagle_config");
  head.config["eagle_aux_hidden_state_layer_ids"] = {1, 3};
  head.write(folder_.path());
  EXPECT_EQ(load(EagleVersion::kEagle3)->config.capture_layers, (std::vector<int64_t>{0, 2}));
}

TEST_F(EagleHeadTest, AWholeVocabularyNeedsNoMap) {
  Published head = published_eagle3();
  head.config.erase("draft_vocab_size");
  head.tensors.erase("d2t");
  head.tensors.erase("t2d");
  head.matrix("lm_head.weight", kEagleVocab, kEagleHidden);
  head.write(folder_.path());
  EXPECT_FALSE(load(EagleVersion::kEagle3)->target_ids.defined());
}

TEST_F(EagleHeadTest, Int8HeadsKeepTheirCodes) {
  EagleConfig config = make_eagle_config(EagleVersion::kEagle, LayerStyle::kLlama, *target_);
  config.plan.intermediate_size = 64;  // rows of fc and down fill blocks; others stay bfloat16
  const auto head = random_eagle_head(config, {.seed = 4, .dtype = at::kFloat});
  save_eagle_head(*head, folder_.path(), at::kChar);
  const auto once = load(EagleVersion::kEagle);
  const at::Tensor& down = head->layer.weights.down;
  const auto largest = down.unflatten(1, {-1, 32}).abs().amax(-1, /*keepdim=*/true);
  const auto error = (once->layer.weights.down - down).unflatten(1, {-1, 32}).abs();
  EXPECT_TRUE(error.le(largest / 127.0 * 0.51).all().item<bool>());
  // The packed form has the same values, so that storing rounds once.
  EXPECT_TRUE(at::equal(pack(once->layer.weights.down, {.dtype = at::kChar}).unpack(),
                        once->layer.weights.down));
  save_eagle_head(*once, folder_.path(), at::kChar);
  EXPECT_EQ(load(EagleVersion::kEagle)->fingerprint, once->fingerprint);
}

TEST_F(EagleHeadTest, Int8CodesWithoutScalesAreRefused) {
  EagleConfig config = make_eagle_config(EagleVersion::kEagle, LayerStyle::kLlama, *target_);
  TensorWriter writer(at::kFloat);
  writer.add("fc.weight", at::zeros({kEagleHidden, 2 * kEagleHidden}, at::kChar));
  writer.write(folder_.path() / "model.safetensors");
  std::ofstream(folder_.path() / "config.json") << eagle_config_json(config);
  EXPECT_THAT(error_message<WeightsError>([&] { load(EagleVersion::kEagle); }),
              HasSubstr("fc.weight.scales"));
}

TEST_F(EagleHeadTest, ADraftVocabularyOfEagleUsesRowsOfTheTargetsHead) {
  EagleConfig config = make_eagle_config(EagleVersion::kEagle, LayerStyle::kLlama, *target_);
  config.draft_vocab_size = 4;
  const auto head = random_eagle_head(config, {.seed = 4, .dtype = at::kFloat});
  head->target_ids = at::tensor({0, 3, 5, 9}, at::kLong);
  save_eagle_head(*head, folder_.path(), at::kFloat);
  const auto again = load(EagleVersion::kEagle);
  ASSERT_TRUE(at::equal(again->target_ids, head->target_ids));
  EXPECT_FALSE(again->lm_head.defined());
}

TEST_F(EagleHeadTest, SavedHeadsAreReadBackAsTheyWere) {
  for (const auto version : {EagleVersion::kEagle, EagleVersion::kEagle3}) {
    for (const auto style : {LayerStyle::kLlama, LayerStyle::kQwen3, LayerStyle::kGemma}) {
      EagleConfig config = make_eagle_config(version, style, *target_);
      config.plan.window = style == LayerStyle::kGemma ? 7 : 0;
      config.plan.rope.factor = 2.0;
      config.feature_after_norm = style == LayerStyle::kLlama;
      config.draft_vocab_size = version == EagleVersion::kEagle3 ? 4 : kEagleVocab;
      auto head = random_eagle_head(config, {.seed = 2});
      if (head->target_ids.defined()) {
        head->target_ids = at::tensor({0, 10, 4, 2}, at::kLong);
      }
      save_eagle_head(*head, folder_.path(), at::kFloat);
      const auto again = load(version);
      const Tensor tokens = at::arange(1, 9, at::kLong).unsqueeze(0);
      const Tensor features = target_features(reference_forward(unpack(*target_), tokens),
                                              eagle_capture_layers(config, target_->config));
      const HeadInputs inputs{.tokens = tokens, .features = features};
      EXPECT_LE(max_difference(eagle_reference(*head, unpack(*target_), inputs).logits,
                               eagle_reference(*again, unpack(*target_), inputs).logits),
                1e-6);
      EXPECT_EQ(again->target_ids.defined(), head->target_ids.defined());
      if (head->target_ids.defined()) {
        EXPECT_TRUE(at::equal(again->target_ids, head->target_ids));
      }
      EXPECT_EQ(again->fingerprint, load(version)->fingerprint);
    }
  }
}

TEST_F(EagleHeadTest, NormsOfSpeculatorsAreReadBackAsTheyWere) {
  for (const bool each_stream : {false, true}) {
    EagleConfig config = make_eagle_config(EagleVersion::kEagle3, LayerStyle::kGemma, *target_);
    config.norm_before_residual = config.norm_output = config.own_embedding = true;
    (each_stream ? config.fc_norm : config.norm_before_fc) = true;
    config.plan.query_scale = 1.0 / std::sqrt(24.0);  // 1 / scale^2 is not 24
    const auto head = random_eagle_head(config, {.seed = 2});
    save_eagle_head(*head, folder_.path(), at::kFloat);
    const auto again = load(EagleVersion::kEagle3);
    EXPECT_EQ(again->config.plan.query_scale, config.plan.query_scale);
    const Tensor tokens = at::arange(1, 9, at::kLong).unsqueeze(0);
    const HeadInputs inputs{.tokens = tokens,
                            .features = target_features(reference_forward(unpack(*target_), tokens),
                                                        config.capture_layers)};
    EXPECT_LE(max_difference(eagle_reference(*head, unpack(*target_), inputs).logits,
                             eagle_reference(*again, unpack(*target_), inputs).logits),
              1e-6);
  }
}

TEST_F(EagleHeadTest, RotationsMayBeNested) {
  const auto theta = [&](const json& parameters, int64_t window) {
    Published head = published_eagle3();
    head.config["rope_parameters"] = parameters;
    head.config["sliding_window"] = window > 0 ? json(window) : json();
    head.write(folder_.path());
    return load(EagleVersion::kEagle3)->config.plan.rope.theta;
  };
  const json flat = {{"rope_theta", 5e4}, {"rope_type", "default"}};
  const json nested = {{"full_attention", flat}, {"sliding_attention", {{"rope_theta", 2e4}}}};
  EXPECT_EQ(theta(flat, 0), 5e4);
  EXPECT_EQ(theta(nested, 0), 5e4);
  EXPECT_EQ(theta(nested, 8), 2e4);
}

/// The inverse frequencies of transformers' modeling_rope_utils.py, _compute_llama3_parameters.
Tensor llama3_frequencies(double theta, int64_t head_dim, const json& scaling) {
  const double factor = scaling["factor"];
  const double low_factor = scaling["low_freq_factor"];
  const double high_factor = scaling["high_freq_factor"];
  const double old_context = scaling["original_max_position_embeddings"];
  const Tensor inverse =
      at::pow(theta, at::arange(0, head_dim, 2, at::kDouble) / head_dim).reciprocal();
  const Tensor wave_length = 2.0 * M_PI / inverse;
  const double low_wave_length = old_context / low_factor;
  const double high_wave_length = old_context / high_factor;
  const Tensor scaled = at::where(wave_length > low_wave_length, inverse / factor, inverse);
  const Tensor smooth = (old_context / wave_length - low_factor) / (high_factor - low_factor);
  const Tensor smoothed = (1.0 - smooth) * scaled / factor + smooth * scaled;
  const Tensor is_medium =
      (wave_length >= high_wave_length).logical_and(wave_length <= low_wave_length);
  return at::where(is_medium, smoothed, scaled);
}

TEST_F(EagleHeadTest, Llama3ScalingIsTheReferences) {
  // A context so short that a head this small has all three bands.
  const json scaling = {{"rope_type", "llama3"},
                        {"factor", 8.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4.0},
                        {"original_max_position_embeddings", 400}};
  Published head = published_eagle3();
  head.config["rope_theta"] = 5e5;
  head.config["rope_scaling"] = scaling;
  head.write(folder_.path());
  const EagleConfig config = load(EagleVersion::kEagle3)->config;
  const Tensor wanted = llama3_frequencies(5e5, config.plan.head_dim, scaling);
  const Tensor found =
      rope_frequencies(config.plan.rope, config.plan.head_dim, at::TensorOptions(at::kDouble));
  EXPECT_LE((found / wanted - 1.0).abs().max().item<double>(), 1e-12);
  const auto& divisors = config.plan.rope.divisors;
  EXPECT_EQ(divisors.front(), 1.0);
  EXPECT_EQ(divisors.back(), 8.0);
  EXPECT_TRUE(std::any_of(divisors.begin(), divisors.end(),
                          [](double one) { return one > 1.0 && one < 8.0; }));
  std::ofstream(folder_.path() / "config.json") << eagle_config_json(config);
  EXPECT_EQ(load_eagle_config(folder_.path(), EagleVersion::kEagle3).plan.rope, config.plan.rope);
}

TEST_F(EagleHeadTest, AWindowThatIsSwitchedOffIsNone) {
  Published head = published_eagle3();
  head.config["sliding_window"] = 8;
  head.config["use_sliding_window"] = false;
  head.write(folder_.path());
  EXPECT_EQ(load(EagleVersion::kEagle3)->config.plan.window, 0);
  head.config["layer_types"] = {"sliding_attention"};
  head.write(folder_.path());
  EXPECT_EQ(load(EagleVersion::kEagle3)->config.plan.window, 8);
}

TEST_F(EagleHeadTest, AHeadForATargetOfAnotherShapeIsRefused) {
  const EagleConfig config = make_eagle_config(EagleVersion::kEagle, LayerStyle::kGemma, *target_);
  save_eagle_head(*random_eagle_head(config), folder_.path(), at::kFloat);
  const auto larger = tiny_gemma(kEagleVocab + 1, at::kFloat);
  EXPECT_THAT(error_message<WeightsError>(
                  [&] { load_eagle_head(folder_.path(), EagleVersion::kEagle, *larger); }),
              AllOf(HasSubstr("vocabulary of 11"), HasSubstr("has 12")));
}

TEST_F(EagleHeadTest, AHeadOfTheOtherVersionIsRefused) {
  published_eagle3().write(folder_.path());
  EXPECT_THAT(load_error(EagleVersion::kEagle), HasSubstr("use drafter type eagle3"));
}

TEST_F(EagleHeadTest, DraftVocabularyIsChecked) {
  const auto map = [](std::vector<int64_t> offsets) {
    return [offsets](Published& head) { head.tensors["d2t"] = at::tensor(offsets, at::kLong); };
  };
  EXPECT_THAT(error_of(map({1, 2, 3, 4, 7})),
              AllOf(HasSubstr("token 11"), HasSubstr("does not exist")));
  EXPECT_THAT(error_of(map({-1, 2, 3, 4, 5})), HasSubstr("does not exist"));
  EXPECT_THAT(error_of(map({1, 0, 3, 4, 5})), HasSubstr("stands for already"));
  EXPECT_THAT(error_of(map({1, 2, 3, 4, 6})), HasSubstr("t2d"));
  EXPECT_THAT(error_of([](Published& head) { head.tensors.erase("d2t"); }), HasSubstr("'d2t'"));
  EXPECT_THAT(error_of([](Published& head) { head.config["draft_vocab_size"] = 12; }),
              HasSubstr("draft_vocab_size"));
}

TEST_F(EagleHeadTest, TensorsAreChecked) {
  EXPECT_THAT(error_of([](Published& head) { head.tensors.erase("norm.weight"); }),
              AllOf(HasSubstr("'norm.weight'"), HasSubstr("missing")));
  EXPECT_THAT(
      error_of([](Published& head) { head.matrix("fc.weight", kEagleHidden, 3 * kEagleHidden); }),
      AllOf(HasSubstr("[16, 48]"), HasSubstr("[16, 32]")));
  EXPECT_THAT(error_of([](Published& head) { head.norm("midlayer.surprise"); }),
              HasSubstr("surprise"));
}

TEST_F(EagleHeadTest, ConfigsAreChecked) {
  const auto set = [](const char* key, const json& value) {
    return [key, value](Published& head) { head.config[key] = value; };
  };
  EXPECT_THAT(error_of(set("num_hidden_layers", 2)), HasSubstr("one layer"));
  EXPECT_THAT(error_of(set("hidden_act", "relu")), HasSubstr("relu"));
  EXPECT_THAT(error_of(set("model_type", "mixtral")), HasSubstr("mixtral"));
  EXPECT_THAT(error_of(set("num_key_value_heads", 3)), HasSubstr("num_key_value_heads"));
  EXPECT_THAT(error_of(set("norm_before_residual", 3)), HasSubstr("norm_before_residual"));
  EXPECT_THAT(error_of([](Published& head) {
                head.config["norm_before_fc"] = head.config["fc_norm"] = true;
              }),
              AllOf(HasSubstr("fc_norm"), HasSubstr("norm_before_fc")));
  EXPECT_THAT(error_of(set("norm_before_fc", true)), HasSubstr("'input_norm.weight'"));
  EXPECT_THAT(error_of(set("rope_parameters", {{"rope_theta", 5e4}, {"beta_fast", 32}})),
              HasSubstr("beta_fast"));
  EXPECT_THAT(error_of(set("rope_parameters", {{"sliding_attention", {{"rope_theta", 5e4}}}})),
              HasSubstr("full_attention"));
  EXPECT_THAT(error_of(set("partial_rotary_factor", 0.5)), HasSubstr("partial_rotary_factor"));
  EXPECT_THAT(error_of(set("final_logit_softcapping", 30.0)), HasSubstr("final_logit_softcapping"));
  EXPECT_THAT(error_of(set("mlp_bias", true)), HasSubstr("mlp_bias"));
  EXPECT_THAT(error_of(set("layer_types", {"full_attention", "full_attention"})),
              HasSubstr("layer_types"));
  EXPECT_THAT(error_of(set("rope_scaling", {{"rope_type", "yarn"}})), HasSubstr("yarn"));
  EXPECT_THAT(error_of(set("rope_scaling", {{"rope_type", "llama3"}, {"factor", 8.0}})),
              HasSubstr("'original_max_position_embeddings' is missing"));
  EXPECT_THAT(error_of(set("rope_scaling",
                           {{"rope_type", "linear"}, {"factor", 8.0}, {"low_freq_factor", 1.0}})),
              HasSubstr("'low_freq_factor' is not supported"));
  EXPECT_THAT(error_of(set("hidden_size", 32)), HasSubstr("hidden size of 32"));
  EXPECT_THAT(error_of(set("eagle_config", {{"eagle_aux_hidden_state_layer_ids", {0, 3}}})),
              HasSubstr("layers 0 to 2"));
  EXPECT_THAT(error_of(set("eagle_config", {{"eagle_aux_hidden_state_layer_ids", {2, 2}}})),
              HasSubstr("twice"));
  EXPECT_THAT(error_of([](Published& head) { head.config.erase("eagle_config"); }),
              HasSubstr("default"));
  const TemporaryFolder empty;
  EXPECT_THAT(error_message<WeightsError>(
                  [&] { load_eagle_head(empty.path() / "none", EagleVersion::kEagle, *target_); }),
              HasSubstr("no such folder"));
}

}  // namespace
}  // namespace specdec
