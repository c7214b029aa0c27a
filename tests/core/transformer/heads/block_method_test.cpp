// Block drafters whose slots depend on what was drafted before: against the reference's own numbers
// (golden sets) and against their equations, written plainly.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <ostream>

#include "core/error.h"
#include "core/families/model.h"
#include "core/formats/json_keys.h"
#include "core/formats/strict_json.h"
#include "core/transformer/heads/block_head.h"
#include "core/transformer/heads/head_files.h"
#include "kv/paged_kv.h"
#include "tests/support/error_message.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_gemma.h"

namespace specdec {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr double kGoldenTolerance = 1e-4;
constexpr int64_t kMethodVocab = 11;

/// A set's columns of logits among those of a draft vocabulary, which the sets keep in their files'
/// order: ascending here too.
Tensor logits_along(BlockHeadModel& model, const std::vector<Token>& path, Token newest) {
  Draft draft = Draft::root(newest);
  std::vector<Tensor> rows;
  for (int64_t node = 0; node < std::ssize(path); ++node) {
    rows.push_back(model.logits(draft, {&node, 1}));
    draft.add(path[static_cast<size_t>(node)], node);
  }
  return at::cat(rows);
}

Tensor confidence_along(BlockHeadModel& model, const std::vector<Token>& path, Token newest) {
  Draft draft = Draft::root(newest);
  std::vector<Tensor> rows;
  for (int64_t node = 0; node < std::ssize(path); ++node) {
    rows.push_back(model.confidence(draft, {&node, 1}));
    draft.add(path[static_cast<size_t>(node)], node);
  }
  return at::cat(rows);
}

class BlockMethodGoldenTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    SPECDEC_SKIP_WITHOUT(test_data(GetParam()));
    golden_ = std::make_unique<Golden>(GetParam());
    target_ = load_model(test_data("gemma3-a"));
    head_ = load_block_head(golden_->folder(), *target_);
    model_ = std::make_unique<BlockHeadModel>(head_, target_, paged_kv(),
                                              TransformerOptions{.max_length = 64});
    committed_ = golden_->tokens("tokens");
  }

  bool has(const std::string& name) const { return golden_->has(name); }

  /// The greedy drafts of the block that was evaluated, as the target's tokens.
  std::vector<Token> greedy() {
    Draft draft = Draft::root(committed_.back());
    std::vector<Token> tokens;
    for (int64_t node = 0; node < model_->depth(); ++node) {
      Tensor row = model_->logits(draft, {&node, 1});
      if (const DraftVocabulary* vocabulary = model_->draft_vocabulary()) {
        row = vocabulary->widened(row);
      }
      tokens.push_back(static_cast<Token>(row.argmax().item<int64_t>()));
      draft.add(tokens.back(), node);
    }
    return tokens;
  }

  /// Rows of the set that drafts come from: Domino's has the others too.
  Tensor drafting_rows(const Tensor& rows) const {
    return rows.size(0) == model_->depth()
               ? rows
               : rows.narrow(0, head_->config.first_slot, model_->depth());
  }

  /// Logits along a path of drafts, of the numbers that the set has of them.
  void expect_along(const std::string& name, const std::vector<Token>& path) {
    const Tensor logits = logits_along(*model_, path, committed_.back());
    if (has(name + "_step_logits")) {
      EXPECT_LE(max_difference(logits, golden_->tensor(name + "_step_logits")), kGoldenTolerance)
          << name;
    }
    if (has(name + "_scores")) {
      const std::string round = name == "forced2" ? "block2" : name;
      const Tensor candidates = golden_->tensor(round + "_candidates");
      EXPECT_LE(max_difference(logits.gather(1, candidates), golden_->tensor(name + "_scores")),
                kGoldenTolerance)
          << name;
      EXPECT_EQ(at::isfinite(logits).sum(1).max().item<int64_t>(), candidates.size(1));
    }
    if (has(name + "_confidence_logits")) {
      EXPECT_LE(max_difference(confidence_along(*model_, path, committed_.back()),
                               golden_->tensor(name + "_confidence_logits")),
                kGoldenTolerance)
          << name;
    }
  }

  void expect_block(const std::string& name) {
    model_->evaluate(committed_.back(), model_->depth());
    EXPECT_LE(max_difference(model_->states(), drafting_rows(golden_->tensor(name + "_hidden"))),
              kGoldenTolerance)
        << name;
    EXPECT_LE(max_difference(model_->slot_logits(), golden_->tensor(name + "_logits")),
              kGoldenTolerance)
        << name;
    const std::vector<Token> wanted = golden_->tokens(name + "_tokens");
    EXPECT_EQ(greedy(), wanted) << name;
    model_->evaluate(committed_.back(), model_->depth());
    expect_along(name, wanted);
  }

  /// The tokens of the second round, and what the target computed of them.
  void keep_second_round() {
    const auto accepted = golden_->tensor("accepted").item<int64_t>();
    const std::vector<Token> drafts = golden_->tokens("block1_tokens");
    committed_.insert(committed_.end(), drafts.begin(), drafts.begin() + accepted);
    committed_.push_back(golden_->tokens("anchor2").front());
    model_->keep(committed_, golden_->tensor("taps2"));
  }

  std::unique_ptr<Golden> golden_;
  std::shared_ptr<const TransformerWeights> target_;
  std::shared_ptr<const BlockHead> head_;
  std::unique_ptr<BlockHeadModel> model_;
  std::vector<Token> committed_;
};

TEST_P(BlockMethodGoldenTest, DraftsWhatTheReferenceDrafts) {
  committed_.push_back(golden_->tokens("anchor1").front());
  model_->keep(committed_, golden_->tensor("taps1"));
  expect_block("block1");
  keep_second_round();
  expect_block("block2");
  if (has("forced2_tokens")) {
    model_->evaluate(committed_.back(), model_->depth());
    expect_along("forced2", golden_->tokens("forced2_tokens"));
  }
  for (int64_t layer = 0; has("context_k") && layer < std::ssize(head_->config.plan); ++layer) {
    const auto [keys, values] = model_->layers().key_values(layer);
    EXPECT_LE(max_difference(keys, golden_->tensor("context_k")[layer]), kGoldenTolerance);
    EXPECT_LE(max_difference(values, golden_->tensor("context_v")[layer]), kGoldenTolerance);
  }
}

TEST_P(BlockMethodGoldenTest, TheTargetsStreamsAreThoseThatTheReferenceTaps) {
  TransformerModel target(target_, paged_kv());
  const auto result = target.prefill(committed_, {.capture_layers = head_->config.capture_layers});
  EXPECT_LE(max_difference(at::cat(result.captured, 1), golden_->tensor("taps1")), 5e-4);
}

// As inspect and check do it.
TEST_P(BlockMethodGoldenTest, IsReadForATargetThatIsNotLoaded) {
  const auto head =
      load_block_head(golden_->folder(), unloaded_target(target_->config, target_->plan));
  EXPECT_EQ(head->config.draft_vocab_size, head_->config.draft_vocab_size);
}

INSTANTIATE_TEST_SUITE_P(All, BlockMethodGoldenTest,
                         testing::Values("dspark-a", "dspark-speculators-a", "domino-a",
                                         "dflash2-a", "dflash2-speculators-a"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

/// A method, by what it adds to a config.
struct MethodCase {
  std::string name;
  std::function<void(BlockHeadConfig&)> change;
};

void PrintTo(const MethodCase& one, std::ostream* out) { *out << one.name; }

std::function<void(BlockHeadConfig&)> dspark(MarkovGate gate) {
  return [gate](BlockHeadConfig& config) {
    config.method = BlockMethod::kDSpark;
    config.markov = {.rank = 5, .gate = gate, .confidence = true, .confidence_with_markov = true};
  };
}

std::function<void(BlockHeadConfig&)> domino(bool shifted) {
  return [shifted](BlockHeadConfig& config) {
    config.method = BlockMethod::kDomino;
    config.domino = {.state_size = 6, .rank = 4, .plain_drafts = 1};
    config.first_slot = shifted ? 0 : 1;
  };
}

void dflash2(BlockHeadConfig& config) {
  config.method = BlockMethod::kDFlash2;
  config.dflash2 = {.rank = 4, .candidates = 3, .kernel_size = 3, .group_size = 4};
}

class BlockMethodTest : public testing::TestWithParam<MethodCase> {
 protected:
  BlockMethodTest() {
    BlockHeadConfig config = make_block_head_config(*target_, 2, 5);
    config.mask_token = 4;
    GetParam().change(config);
    head_ = random_block_head(config, {.seed = 3, .dtype = at::kDouble, .norm_deviation = 0.3});
    at::manual_seed(5);
    features_ = at::randn({20, head_->fc.in()}, at::kDouble);
  }

  std::unique_ptr<BlockHeadModel> model(const std::shared_ptr<const BlockHead>& head) const {
    auto model = std::make_unique<BlockHeadModel>(head, target_, paged_kv(),
                                                  TransformerOptions{.max_length = 64});
    const std::vector<Token> committed(static_cast<size_t>(features_.size(0)) + 1, 1);
    model->keep(committed, features_);
    return model;
  }

  std::shared_ptr<TransformerWeights> target_ = tiny_gemma(kMethodVocab);
  std::shared_ptr<BlockHead> head_;
  Tensor features_;
};

TEST_P(BlockMethodTest, ANodesLogitsFollowFromItsPathAlone) {
  const auto chains = model(head_);
  const auto tree = model(head_);
  tree->evaluate(6, 4);
  Draft draft = Draft::root(6);
  for (const int64_t parent : {0, 0, 1, 1, 2, 3, 5}) {
    draft.add(static_cast<Token>((3 * draft.size() + 2) % kMethodVocab), parent);
  }
  std::vector<Tensor> by_level;
  for (const std::vector<int64_t>& level :
       {std::vector<int64_t>{0}, {1, 2}, {3, 4, 5}, {6}}) {  // all of depths 0, 1, 2 and 3
    by_level.push_back(tree->logits(draft, level));
  }
  const Tensor in_tree = at::cat(by_level);
  for (int64_t node = 0; node < 7; ++node) {
    std::vector<Token> path;
    for (const int64_t on_path : draft.path_to(node)) {
      path.push_back(draft.tokens[static_cast<size_t>(on_path)]);
    }
    path.erase(path.begin());
    path.push_back(0);  // its logits are those before this one
    chains->evaluate(6, 4);
    EXPECT_TRUE(at::allclose(logits_along(*chains, path, 6)[-1], in_tree[node], 1e-12, 1e-12))
        << node;
  }
}

TEST_P(BlockMethodTest, TokensDraftedBeforeMatter) {
  const auto drafting = model(head_);
  drafting->evaluate(6, 4);
  const Tensor one = logits_along(*drafting, {2, 3, 5, 0}, 6);
  drafting->evaluate(6, 4);
  const Tensor other = logits_along(*drafting, {4, 3, 5, 0}, 6);
  EXPECT_TRUE(at::equal(one[0], other[0]));
  EXPECT_FALSE(at::allclose(one[1], other[1]));
}

TEST_P(BlockMethodTest, SavedAndLoadedItIsTheSame) {
  const TemporaryFolder folder;
  save_block_head(*head_, folder.path(), at::kDouble);
  const auto again = load_block_head(folder.path(), *target_);
  EXPECT_EQ(again->config.method, head_->config.method);
  const auto before = model(head_);
  const auto after = model(again);
  before->evaluate(6, 4);
  after->evaluate(6, 4);
  const std::vector<Token> path = {2, 3, 5, 0};
  EXPECT_TRUE(at::equal(logits_along(*after, path, 6), logits_along(*before, path, 6)));
  if (head_->config.markov.confidence) {
    EXPECT_TRUE(at::equal(confidence_along(*after, path, 6), confidence_along(*before, path, 6)));
  }
}

TEST_P(BlockMethodTest, TensorsThatTheConfigDoesNotSpeakOfAreNamed) {
  const TemporaryFolder folder;
  save_block_head(*head_, folder.path(), at::kDouble);
  json config = parse_json_object(read_file(folder.path() / "config.json"), "config.json");
  config["dflash_config"]["projector_type"] = "dflash";
  config["architectures"] = {"DFlashDraftModel"};
  folder.write("config.json", config.dump());
  EXPECT_THAT(error_message<WeightsError>([&] { load_block_head(folder.path(), *target_); }),
              HasSubstr("belongs to no layer that config.json describes"));
}

INSTANTIATE_TEST_SUITE_P(All, BlockMethodTest,
                         testing::Values(MethodCase{"dspark", dspark(MarkovGate::kVanilla)},
                                         MethodCase{"dspark_gated", dspark(MarkovGate::kGated)},
                                         MethodCase{"dspark_rnn", dspark(MarkovGate::kRnn)},
                                         MethodCase{"domino", domino(false)},
                                         MethodCase{"domino_shifted", domino(true)},
                                         MethodCase{"dflash2", dflash2}),
                         [](const auto& info) { return info.param.name; });

/// The tensors of a random correction, by name.
struct NamedTensors {
  std::map<std::string, Tensor> tensors;
  HeadTensors maker() {
    const auto small = [this](const std::string& name, const std::vector<int64_t>& shape) {
      return tensors[name] = at::randn(shape, at::kDouble);
    };
    return {.small = small,
            .matrix = [small](const std::string& name, const std::vector<int64_t>& shape,
                              const Tensor&) { return pack(small(name, shape)); }};
  }
};

/// Two slots of a block, and a draft of two tokens beside the root.
struct TwoSlots {
  TwoSlots() {
    slots.logits = at::randn({2, 7}, at::kDouble);
    slots.states = at::randn({2, 6}, at::kDouble);
    slots.ops = ops.get();
    draft.add(5, 0);
  }
  BlockHeadConfig config(BlockMethod method) const {
    BlockHeadConfig config;
    config.method = method;
    config.hidden_size = 6;
    config.vocab_size = config.draft_vocab_size = 7;
    return config;
  }
  Tensor corrected(const BlockCorrection& correction) {
    const int64_t root = 0;
    const int64_t child = 1;
    const Tensor first = correction.correct(slots, draft, {&root, 1});
    return at::cat({first, correction.correct(slots, draft, {&child, 1})});
  }
  std::shared_ptr<Ops> ops = cpu_ops();
  BlockSlots slots;
  Draft draft = Draft::root(3);
};

TEST(BlockCorrectionTest, ARecurrentMarkovHeadFollowsItsEquations) {
  TwoSlots two;
  NamedTensors named;
  BlockHeadConfig config = two.config(BlockMethod::kDSpark);
  config.markov = {.rank = 4, .gate = MarkovGate::kRnn};
  const auto correction = make_block_correction(config, named.maker());
  Tensor state = at::zeros({4}, at::kDouble);
  std::vector<Tensor> wanted;
  for (int64_t slot = 0; slot < 2; ++slot) {
    const Tensor e = named.tensors["markov_head.markov_w1.weight"][slot == 0 ? 3 : 5];
    const Tensor parts = at::mv(named.tensors["markov_head.joint_proj.weight"],
                                at::cat({state, e, two.slots.states[slot]})) +
                         named.tensors["markov_head.joint_proj.bias"];
    const Tensor gate = at::sigmoid(parts.slice(0, 0, 4));
    state = gate * state + (1 - gate) * at::tanh(parts.slice(0, 4, 8));
    wanted.push_back(two.slots.logits[slot] + at::mv(named.tensors["markov_head.markov_w2.weight"],
                                                     at::tanh(parts.slice(0, 8, 12))));
  }
  EXPECT_LE(max_difference(two.corrected(*correction), at::stack(wanted)), 1e-12);
}

TEST(BlockCorrectionTest, AGatedMarkovHeadFollowsItsEquations) {
  TwoSlots two;
  NamedTensors named;
  BlockHeadConfig config = two.config(BlockMethod::kDSpark);
  config.markov = {.rank = 4, .gate = MarkovGate::kGated};
  const auto correction = make_block_correction(config, named.maker());
  std::vector<Tensor> wanted;
  for (int64_t slot = 0; slot < 2; ++slot) {
    const Tensor e = named.tensors["markov_head.markov_w1.weight"][slot == 0 ? 3 : 5];
    const Tensor gate = at::sigmoid(at::mv(named.tensors["markov_head.gate_proj.weight"],
                                           at::cat({two.slots.states[slot], e})) +
                                    named.tensors["markov_head.gate_proj.bias"]);
    wanted.push_back(two.slots.logits[slot] +
                     at::mv(named.tensors["markov_head.markov_w2.weight"], e * gate));
  }
  EXPECT_LE(max_difference(two.corrected(*correction), at::stack(wanted)), 1e-12);
}

TEST(BlockCorrectionTest, OfEqualLogitsTheLowestIdsAreCandidates) {
  TwoSlots two;
  two.slots.logits.fill_(1.0);
  NamedTensors named;
  BlockHeadConfig config = two.config(BlockMethod::kDFlash2);
  config.dflash2 = {.rank = 2, .candidates = 3, .kernel_size = 2, .group_size = 2};
  const auto correction = make_block_correction(config, named.maker());
  const Tensor scores = two.corrected(*correction);
  EXPECT_TRUE(at::isfinite(scores.slice(1, 0, 3)).all().item<bool>());
  EXPECT_TRUE(at::isinf(scores.slice(1, 3)).all().item<bool>());
}

/// Configs of golden sets, changed.
class BlockFormatTest : public testing::Test {
 protected:
  std::string error_of(const std::string& set, const std::function<void(json&)>& change) const {
    const std::filesystem::path source = test_data(set);
    json config = parse_json_object(read_file(source / "config.json"), "config.json");
    change(config);
    folder_.write("config.json", config.dump());
    return error_message<WeightsError>([&] { load_block_head_config(folder_.path()); });
  }
  TemporaryFolder folder_;
};

TEST_F(BlockFormatTest, WhatDeepSpecsFormatCannotBeIsNamed) {
  const auto error = [&](const char* key, const json& value) {
    return error_of("dspark-a", [&](json& config) { config[key] = value; });
  };
  EXPECT_THAT(error("markov_head_type", "lstm"), HasSubstr("'lstm'; supported: vanilla"));
  EXPECT_THAT(error("markov_rank", 0), HasSubstr("enable_confidence_head"));
  EXPECT_THAT(error("model_type", "llama"), HasSubstr("model_type"));
  EXPECT_THAT(error("layer_types", {"sliding_attention", "full_attention"}),
              HasSubstr("layer_types"));
  EXPECT_THAT(error("enable_moe_block", true), HasSubstr("enable_moe_block"));
  EXPECT_THAT(error("target_layer_ids", {-1, 1}), HasSubstr("embedding"));
  EXPECT_THAT(error("num_kv_shared_layers", 1), HasSubstr("num_kv_shared_layers"));
}

TEST_F(BlockFormatTest, WhatSpeculatorsFormatCannotBeIsNamed) {
  SPECDEC_SKIP_WITHOUT(test_data("dspark-speculators-a"));
  const auto error = [&](const char* key, const json& value) {
    return error_of("dspark-speculators-a", [&](json& config) { config[key] = value; });
  };
  EXPECT_THAT(error("aux_hidden_state_layer_ids", {0, 2}), HasSubstr("embedding"));
  EXPECT_THAT(error("draft_vocab_size", 513), HasSubstr("more than vocab_size"));
  EXPECT_THAT(error("target_hidden_size", 128), HasSubstr("target_hidden_size"));
  EXPECT_THAT(error("speculators_model_type", "xpress"), HasSubstr("xpress"));
  EXPECT_THAT(
      error_of("dspark-speculators-a",
               [](json& config) { config["transformer_layer_config"]["model_type"] = "llama"; }),
      HasSubstr("llama"));
  SPECDEC_SKIP_WITHOUT(test_data("dflash2-speculators-a"));
  EXPECT_THAT(
      error_of("dflash2-speculators-a", [](json& config) { config["draft_vocab_size"] = 100; }),
      HasSubstr("draft_vocab_size"));
}

TEST_F(BlockFormatTest, WhatDominoNeedsIsNamed) {
  SPECDEC_SKIP_WITHOUT(test_data("domino-a"));
  const auto without = [&](const char* key) {
    return error_of("domino-a", [&](json& config) {
      config["dflash_config"].erase(key);
      config.erase(key);
    });
  };
  EXPECT_THAT(without("shift_label"), HasSubstr("shift_label"));
  EXPECT_THAT(without("gru_hidden_dim"), HasSubstr("gru_hidden_dim"));
  EXPECT_THAT(without("emb_dim"), HasSubstr("emb_dim"));
}

}  // namespace
}  // namespace specdec
