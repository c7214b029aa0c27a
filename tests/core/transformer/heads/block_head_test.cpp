#include "core/transformer/heads/block_head.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <ostream>

#include "core/error.h"
#include "core/families/model.h"
#include "core/formats/json_keys.h"
#include "core/formats/safetensors.h"
#include "core/formats/strict_json.h"
#include "core/transformer/reference.h"
#include "core/transformer/rope_table.h"
#include "kv/paged_kv.h"
#include "tests/support/error_message.h"
#include "tests/support/golden.h"
#include "tests/support/parameter_name.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_gemma.h"

namespace specdec {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr int64_t kBlockVocab = 11;

/// [heads, n, head_dim], normed and rotated for positions from `first` on.
Tensor rotated(const LayerPlan& plan, const Tensor& projected, const Tensor& norm, double eps,
               int64_t first) {
  const Tensor heads = reference_norm(projected.unflatten(-1, {-1, plan.head_dim}), norm, eps);
  const Tensor x = heads.transpose(0, 1);
  const auto positions = at::arange(first, first + x.size(1), projected.options());
  const auto angle =
      positions.unsqueeze(1) * rope_frequencies(plan.rope, plan.head_dim, projected.options());
  const auto halves = x.chunk(2, -1);
  return at::cat({halves[0] * angle.cos() - halves[1] * angle.sin(),
                  halves[1] * angle.cos() + halves[0] * angle.sin()},
                 -1);
}

/// What DFlash computes, written plainly: no cache, all of the context at once.
Tensor plain_block_layer(const LayerPlan& plan, const LayerTensors& w, bool causal, double eps,
                         const Tensor& context, const Tensor& x) {
  const int64_t kept = context.size(0);
  const int64_t q_rows = query_rows(plan);
  const Tensor normed = reference_norm(x, w.attention_norm, eps);
  const Tensor seen = at::cat({context, normed});
  const auto kv = at::linear(seen, w.qkv.slice(0, q_rows)).chunk(2, -1);
  const int64_t group = plan.heads / plan.kv_heads;
  const Tensor q =
      rotated(plan, at::linear(normed, w.qkv.slice(0, 0, q_rows)), w.q_norm, eps, kept);
  const Tensor k = rotated(plan, kv[0], w.k_norm, eps, 0).repeat_interleave(group, 0);
  const Tensor v =
      kv[1].unflatten(-1, {-1, plan.head_dim}).transpose(0, 1).repeat_interleave(group, 0);
  const Tensor position = at::arange(seen.size(0), at::kLong);
  const Tensor distance = position.slice(0, kept).unsqueeze(1) - position.unsqueeze(0);
  Tensor hidden = causal ? distance < 0 : at::zeros_like(distance, at::kBool);
  if (plan.window > 0) {
    hidden = hidden.logical_or(distance.abs() >= plan.window);
  }
  const Tensor scores =
      (at::matmul(q, k.transpose(1, 2)) * plan.query_scale).masked_fill(hidden, -INFINITY);
  const Tensor mixed = at::matmul(at::softmax(scores, -1), v).transpose(0, 1).flatten(1);
  const Tensor middle = x + at::linear(mixed, w.output);
  const auto gate_up = at::linear(reference_norm(middle, w.mlp_norm, eps), w.gate_up).chunk(2, -1);
  return middle + at::linear(at::silu(gate_up[0]) * gate_up[1], w.down);
}

Tensor plain_block_logits(const BlockHead& head, const TransformerWeights& target,
                          const Tensor& features, Token newest) {
  const BlockHeadConfig& config = head.config;
  const TransformerTensors layers = unpack(head.backbone->weights);
  const TransformerTensors model = unpack(target);
  const double eps = config.rms_norm_eps;
  const Tensor context =
      reference_norm(at::linear(features, head.fc.unpack()), head.hidden_norm, eps);
  Tensor tokens = at::full({config.block_size}, config.mask_token, at::kLong);
  tokens[0] = newest;
  Tensor x = at::embedding(model.embedding, tokens) * config.embedding_scale;
  for (size_t layer = 0; layer < config.plan.size(); ++layer) {
    x = plain_block_layer(config.plan[layer], layers.layers[layer], config.causal[layer], eps,
                          context, x);
  }
  const Tensor states = reference_norm(x, layers.final_norm, eps).slice(0, 1);
  const Tensor logits = at::linear(states, model.head) * config.output_multiplier;
  return config.soft_cap > 0.0 ? config.soft_cap * at::tanh(logits / config.soft_cap) : logits;
}

/// Kinds of layers: what a row of the block sees.
struct BlockCase {
  std::string name;
  int64_t window;  ///< of the first layer; 0 = sees everything
  bool causal;     ///< the first layer
};

void PrintTo(const BlockCase& one, std::ostream* out) { *out << one.name; }

class DFlashModelTest : public testing::TestWithParam<BlockCase> {
 protected:
  DFlashModelTest() {
    BlockHeadConfig config = make_block_head_config(*target_, 2, 5);
    config.plan.front().window = GetParam().window;
    config.causal.front() = GetParam().causal;
    config.mask_token = 4;
    config.embedding_scale = 1.5;
    config.output_multiplier = 0.7;
    config.soft_cap = 3.0;
    head_ = random_block_head(config, {.seed = 3, .dtype = at::kDouble, .norm_deviation = 0.3});
    at::manual_seed(5);
    features_ = at::randn({320, head_->fc.in()}, at::kDouble);
  }

  std::unique_ptr<BlockHeadModel> model(int64_t max_length = 400) const {
    return std::make_unique<BlockHeadModel>(head_, target_, paged_kv(),
                                            TransformerOptions{.max_length = max_length});
  }
  /// Keeps features up to `length`.
  void keep(BlockHeadModel& model, int64_t length) const {
    const std::vector<Token> committed(static_cast<size_t>(length) + 1, 1);
    model.keep(committed, features_.slice(0, model.length(), length));
  }
  static Tensor draft(BlockHeadModel& model, Token newest) {
    model.evaluate(newest, model.depth());
    Draft chain = Draft::root(newest);
    std::vector<Tensor> rows;
    for (int64_t node = 0; node < model.depth(); ++node) {
      rows.push_back(model.logits(chain, {&node, 1}));
      chain.add(0, node);
    }
    return at::cat(rows);
  }

  std::shared_ptr<TransformerWeights> target_ = tiny_gemma(kBlockVocab);
  std::shared_ptr<BlockHead> head_;
  Tensor features_;
};

TEST_P(DFlashModelTest, CachedEqualsPlain) {
  const auto cached = model();
  // One token, fewer than the block, more than a window, more than a chunk of attention.
  for (const int64_t length : {1, 3, 4, 9, 40, 256, 259, 320}) {
    keep(*cached, length);
    for (const Token newest : {7, 4}) {
      const Tensor plain =
          plain_block_logits(*head_, *target_, features_.slice(0, 0, length), newest);
      EXPECT_LE(max_difference(draft(*cached, newest), plain), 1e-10) << length;
    }
  }
}

TEST_P(DFlashModelTest, NothingOfABlockStays) {
  const auto drafted = model();
  const auto untouched = model();
  for (const int64_t length : {2, 3, 7, 8, 20}) {
    keep(*drafted, length);
    for (Token other = 0; other < 3; ++other) {
      draft(*drafted, other);
    }
    keep(*untouched, length);
    EXPECT_EQ(drafted->length(), length);
    for (const int64_t layer : {0, 1}) {
      const auto [keys, values] = drafted->layers().key_values(layer);
      const auto [clean_keys, clean_values] = untouched->layers().key_values(layer);
      EXPECT_TRUE(at::equal(keys, clean_keys));
      EXPECT_TRUE(at::equal(values, clean_values));
    }
    EXPECT_TRUE(at::equal(draft(*drafted, 5), draft(*untouched, 5)));
  }
}

TEST_P(DFlashModelTest, APieceAtATimeOrAllAtOnceAreTheSameBits) {
  const auto pieces = model();
  for (const int64_t length : {1, 2, 5, 30, 300}) {
    keep(*pieces, length);
  }
  const auto whole = model();
  keep(*whole, 300);
  EXPECT_TRUE(at::equal(draft(*pieces, 5), draft(*whole, 5)));
  pieces->reset();
  keep(*pieces, 300);
  EXPECT_TRUE(at::equal(draft(*pieces, 5), draft(*whole, 5)));
}

TEST_P(DFlashModelTest, NearTheTargetsEndTheBlockIsWhole) {
  const auto roomy = model();
  const auto tight = model(10);
  keep(*roomy, 9);
  keep(*tight, 9);
  EXPECT_TRUE(at::equal(draft(*roomy, 5), draft(*tight, 5)));
}

TEST_P(DFlashModelTest, FewerDraftsAreTheFirstOfAll) {
  const auto cached = model();
  keep(*cached, 12);
  const Tensor all = draft(*cached, 5);
  cached->evaluate(5, 2);
  const int64_t root = 0;
  EXPECT_TRUE(at::equal(cached->logits(Draft::root(5), {&root, 1}), all.narrow(0, 0, 1)));
}

INSTANTIATE_TEST_SUITE_P(All, DFlashModelTest,
                         testing::Values(BlockCase{"full", 0, false}, BlockCase{"causal", 0, true},
                                         BlockCase{"sliding_causal", 4, true},
                                         BlockCase{"sliding", 3, false}),
                         [](const auto& info) { return info.param.name; });

TEST(DFlashMisuseTest, IsNamed) {
  const auto target = tiny_gemma(kBlockVocab);
  const auto head =
      random_block_head(make_block_head_config(*target, 1, 3), {.dtype = at::kDouble});
  BlockHeadModel model(head, target, paged_kv(), {.max_length = 20});
  const std::vector<Token> two = {1, 2};
  EXPECT_THROW(model.keep(two, at::zeros({1, 3}, at::kDouble)), InternalError);
  EXPECT_THROW(model.keep(two, at::zeros({2, head->fc.in()}, at::kDouble)), InternalError);
  EXPECT_THROW(model.evaluate(kBlockVocab, 1), Error);
  EXPECT_THROW(model.evaluate(1, 3), InternalError);
  EXPECT_EQ(model.length(), 0);
}

/// z-lab's own forward: two rounds of drafting, some drafts accepted in between.
class DFlashGoldenTest : public testing::Test {
 protected:
  /// Compares a round with the golden one of this name.
  static void expect_block(const Golden& golden, BlockHeadModel& model, Token newest,
                           const std::string& block) {
    model.evaluate(newest, model.depth());
    EXPECT_LE(max_difference(model.states(), golden.tensor(block + "_hidden")), 1e-4) << block;
    const std::vector<Token> wanted = golden.tokens(block + "_tokens");
    const Tensor logits = golden.tensor(block + "_logits");
    Draft draft = Draft::root(newest);
    for (int64_t node = 0; node < model.depth(); ++node) {
      const Tensor row = model.logits(draft, {&node, 1})[0];
      EXPECT_LE(max_difference(row, logits[node]), 1e-4) << block << " " << node;
      const auto token = static_cast<Token>(row.argmax().item<int64_t>());
      EXPECT_EQ(token, wanted[static_cast<size_t>(node)]) << block << " " << node;
      draft.add(token, node);
    }
  }
};

TEST_F(DFlashGoldenTest, DraftsWhatZLabDrafts) {
  const Golden golden("dflash-a");
  const auto target = load_model(test_data("gemma3-a"));
  const auto head = load_block_head(golden.folder(), *target);
  EXPECT_EQ(head->config.capture_layers, (std::vector<int64_t>{1, 3, 4}));
  EXPECT_EQ(head->config.soft_cap, 7.0);
  BlockHeadModel model(head, target, paged_kv(), {.max_length = 64});
  std::vector<Token> committed = golden.tokens("tokens");
  committed.push_back(golden.tokens("anchor1").front());
  model.keep(committed, golden.tensor("taps1"));
  expect_block(golden, model, committed.back(), "block1");
  const auto accepted = golden.tensor("accepted").item<int64_t>();
  const std::vector<Token> drafts = golden.tokens("block1_tokens");
  committed.insert(committed.end(), drafts.begin(), drafts.begin() + accepted);
  committed.push_back(golden.tokens("anchor2").front());
  model.keep(committed, golden.tensor("taps2"));
  expect_block(golden, model, committed.back(), "block2");
  for (int64_t layer = 0; layer < std::ssize(head->config.plan); ++layer) {
    const auto [keys, values] = model.layers().key_values(layer);
    EXPECT_LE(max_difference(keys, golden.tensor("context_k")[layer]), 1e-4) << layer;
    EXPECT_LE(max_difference(values, golden.tensor("context_v")[layer]), 1e-4) << layer;
  }
}

TEST_F(DFlashGoldenTest, TheTargetsStreamsAreThoseThatTheReferenceTaps) {
  const Golden golden("dflash-a");
  const auto weights = load_model(test_data("gemma3-a"));
  TransformerModel target(weights, paged_kv());
  const auto result = target.prefill(golden.tokens("tokens"), {.capture_layers = {1, 3, 4}});
  EXPECT_LE(max_difference(at::cat(result.captured, 1), golden.tensor("taps1")), 5e-4);
  const std::vector<Token> newest = golden.tokens("anchor1");
  EXPECT_EQ(result.logits[0].argmax().item<int64_t>(), newest.front());
}

/// A random head's folder for a tiny target.
class DFlashFilesTest : public testing::Test {
 protected:
  DFlashFilesTest() {
    BlockHeadConfig config = make_block_head_config(*target_, 2, 5);
    config.plan.front().window = 4;
    config.causal.front() = true;
    head_ = random_block_head(config, {.seed = 6});
    save_block_head(*head_, folder_.path(), at::kFloat);
    config_ = parse_json_object(read_file(folder_.path() / "config.json"), "config.json");
  }

  std::string load_error() const {
    return error_message<WeightsError>([&] { load_block_head(folder_.path(), *target_); });
  }
  std::string error_of(const std::function<void(json&)>& change) const {
    json changed = config_;
    change(changed);
    folder_.write("config.json", changed.dump());
    return load_error();
  }
  std::string error_of(const std::string& key, const json& value) const {
    return error_of([&](json& config) { config[key] = value; });
  }

  TemporaryFolder folder_;
  std::shared_ptr<TransformerWeights> target_ = tiny_gemma(kBlockVocab, at::kFloat);
  std::shared_ptr<BlockHead> head_;
  json config_;
};

TEST_F(DFlashFilesTest, SavedAndLoadedItIsTheSame) {
  const auto again = load_block_head(folder_.path(), *target_);
  EXPECT_EQ(again->note, "");
  EXPECT_EQ(again->config.plan, head_->config.plan);
  EXPECT_EQ(again->config.causal, head_->config.causal);
  const Tensor features = at::randn({6, head_->fc.in()});
  const std::vector<Token> committed(7, 2);
  const auto states = [&](const std::shared_ptr<BlockHead>& head) {
    BlockHeadModel model(head, target_, paged_kv(), {.max_length = 20});
    model.keep(committed, features);
    model.evaluate(3, 1);
    return model.states();
  };
  EXPECT_TRUE(at::equal(states(again), states(head_)));
  EXPECT_EQ(load_block_head(folder_.path(), *target_)->fingerprint, again->fingerprint);
}

TEST_F(DFlashFilesTest, KeysLieAtTheTopOrInDflashConfig) {
  json moved = config_;
  moved["dflash_config"]["block_size"] = moved["block_size"];
  moved["dflash_config"]["is_causal"] = false;
  moved["dflash_config"]["output_multiplier"] = 0.25;
  moved["dflash_config"]["final_logit_softcapping"] = 9.0;
  moved.erase("block_size");
  folder_.write("config.json", moved.dump());
  const BlockHeadConfig config = load_block_head_config(folder_.path());
  EXPECT_EQ(config.block_size, 5);
  EXPECT_EQ(config.causal, (std::vector<bool>{false, false}));
  EXPECT_EQ(config.output_multiplier, 0.25);
  EXPECT_EQ(config.soft_cap, 9.0);
}

TEST_F(DFlashFilesTest, WithoutAListOfLayersTheyAreZLabsChoice) {
  BlockHeadConfig config = head_->config;
  config.capture_layers.clear();
  TransformerConfig target;
  target.num_layers = 60;
  config.plan.resize(5);
  EXPECT_EQ(block_capture_layers(config, target), (std::vector<int64_t>{1, 15, 29, 43, 57}));
  config.plan.resize(1);
  EXPECT_EQ(block_capture_layers(config, target), (std::vector<int64_t>{30}));
}

TEST_F(DFlashFilesTest, WhatIsNotSupportedIsNamed) {
  EXPECT_THAT(error_of("is_neox_style", false), HasSubstr("is_neox_style"));
  EXPECT_THAT(error_of("attention_bias", true), HasSubstr("attention_bias"));
  for (const char* key : {"attention_sink_bias", "mask_embedding", "use_swa"}) {
    EXPECT_THAT(error_of([&](json& config) { config["dflash_config"][key] = true; }),
                HasSubstr(key));
  }
  EXPECT_THAT(error_of([](json& config) { config["dflash_config"]["causal"] = true; }),
              HasSubstr("is_causal"));
  EXPECT_THAT(error_of("draft_vocab_size", 5), HasSubstr("draft_vocab_size"));
  EXPECT_THAT(error_of("rope_parameters", {{"rope_type", "yarn"}, {"rope_theta", 1e6}}),
              HasSubstr("'yarn'; supported: default"));
  EXPECT_THAT(error_of("use_sliding_window", false), HasSubstr("drops the window"));
  EXPECT_THAT(error_of([](json& config) { config["dflash_config"]["projector_type"] = "rnn"; }),
              HasSubstr("'rnn'; supported: dflash"));
  EXPECT_THAT(error_of("architectures", {"Qwen3ForCausalLM"}), HasSubstr("DFlashDraftModel"));
  EXPECT_THAT(error_of("architectures", {"LlamaForCausalLMEagle3"}),
              HasSubstr("use drafter type eagle3"));
  EXPECT_THAT(error_of("hidden_act", "relu"), HasSubstr("hidden_act"));
}

TEST_F(DFlashFilesTest, ValuesThatCannotBeAreNamed) {
  EXPECT_THAT(error_of("block_size", 1), HasSubstr("block_size"));
  EXPECT_THAT(error_of("rope_parameters", json::object()), HasSubstr("rope_theta"));
  EXPECT_THAT(error_of("num_key_value_heads", 3), HasSubstr("num_key_value_heads"));
  EXPECT_THAT(error_of("layer_types", {"full_attention"}), HasSubstr("list of 2 layer types"));
  EXPECT_THAT(error_of([](json& config) { config["dflash_config"]["mask_token_id"] = 11; }),
              HasSubstr("mask_token_id"));
  EXPECT_THAT(error_of([](json& config) { config["dflash_config"].erase("mask_token_id"); }),
              HasSubstr("mask_token_id"));
  const auto layers = [&](const json& ids) {
    return error_of([&](json& config) { config["dflash_config"]["target_layer_ids"] = ids; });
  };
  EXPECT_THAT(layers({0, 2}), HasSubstr("names the output of layer 2"));
  EXPECT_THAT(layers({1, 1}), HasSubstr("twice"));
  EXPECT_THAT(layers({-1, 1}), HasSubstr("holds -1"));
  EXPECT_THAT(layers("all"), HasSubstr("list of layers"));
}

TEST_F(DFlashFilesTest, ATargetOfAnotherShapeIsRefused) {
  EXPECT_THAT(error_of("vocab_size", 12), HasSubstr("a vocabulary of 12"));
  EXPECT_THAT(error_of("hidden_size", 32), HasSubstr("a hidden size of 32"));
  EXPECT_THAT(error_of("num_target_layers", 6), HasSubstr("a number of layers of 6"));
}

TEST_F(DFlashFilesTest, DamagedFilesNameTheTensor) {
  EXPECT_THAT(error_of("intermediate_size", 48), HasSubstr("layers.0.mlp.gate_proj.weight"));
  EXPECT_THAT(error_of("num_hidden_layers", 3), HasSubstr("layer_types"));
  EXPECT_THAT(error_of([](json& config) {
                config["num_hidden_layers"] = 1;
                config["layer_types"] = {"sliding_attention"};
              }),
              HasSubstr("layers.1."));
  folder_.write("config.json", config_.dump());
  const std::string bytes = read_file(folder_.path() / "model.safetensors");
  folder_.write("model.safetensors", bytes.substr(0, bytes.size() - 8));
  EXPECT_THAT(load_error(), HasSubstr("model.safetensors"));
}

}  // namespace
}  // namespace specdec
