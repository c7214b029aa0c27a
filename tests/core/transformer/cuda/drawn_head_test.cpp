// Chains that heads on a target draw on its device, run on the CPU (core/kernels/cuda/emulation):
// they have the tokens that the host draws one by one, and are read back once.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "core/error.h"
#include "core/kernels/forwarding_ops.h"
#include "core/transformer/heads/drafting_functions.h"
#include "core/transformer/heads/feature_model.h"
#include "decoders/drafters/assistant.h"
#include "decoders/drafters/feature_drafter.h"
#include "decoders/drafters/medusa.h"
#include "decoders/shapes/draft_length.h"
#include "decoders/speculative.h"
#include "kv/paged_kv.h"
#include "tests/core/transformer/cuda/drawn_tree_bench.h"
#include "tests/core/transformer/cuda/module_bench.h"
#include "tests/support/locked_model.h"
#include "tests/support/recording_ops.h"

namespace specdec {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
using Modules = std::vector<std::unique_ptr<LanguageModel>>;

TransformerOptions head_options(std::shared_ptr<Ops> ops = cuda_ops(at::kCPU)) {
  return {.max_length = 128, .ops = std::move(ops)};
}

/// Speculation on a small target whose drafter is a head.
class HeadBench {
 public:
  using MakeDrafter = std::unique_ptr<Drafter> (*)(HeadBench&);
  HeadBench(DrawnBy who, MakeDrafter make, std::unique_ptr<Verifier> verifier,
            std::unique_ptr<DraftShape> shape, std::shared_ptr<Ops> ops = cuda_ops(at::kCPU))
      : who_(who),
        ops_(std::move(ops)),
        strategy_(target_, make(*this), std::move(verifier), std::move(shape)) {}
  HeadBench(DrawnBy who, MakeDrafter make, std::unique_ptr<Verifier> verifier, int64_t length,
            std::shared_ptr<Ops> ops = cuda_ops(at::kCPU))
      : HeadBench(who, make, std::move(verifier), std::make_unique<FixedDraftLength>(length),
                  std::move(ops)) {}

  Generation generate(const std::vector<Token>& prompt, const SamplingParams& sampling,
                      std::shared_ptr<const CompiledGrammar> grammar = nullptr) {
    return generate_chains(strategy_, prompt, sampling, 5, std::move(grammar));
  }

  DrawnBy who() const { return who_; }
  const std::shared_ptr<const TransformerWeights>& weights() const { return weights_; }
  TransformerModel& target() { return target_; }
  /// Options without graphs where the host draws.
  TransformerOptions options() const {
    TransformerOptions options = head_options(ops_);
    options.graphs = who_ == DrawnBy::kDevice ? options.graphs : 0;
    return options;
  }
  /// A drafter's module, which draws no chains where the host does.
  std::unique_ptr<LanguageModel> module(std::unique_ptr<LanguageModel> module) {
    if (who_ == DrawnBy::kDevice) {
      return module;
    }
    modules_.push_back(std::move(module));
    return std::make_unique<LockedModel>(*modules_.back());
  }

 private:
  DrawnBy who_;
  std::shared_ptr<Ops> ops_;
  std::shared_ptr<const TransformerWeights> weights_ = small_gemma();
  TransformerModel target_{weights_, paged_kv(), head_options()};
  Modules modules_;
  SpeculativeDecoding strategy_;
};

std::unique_ptr<Drafter> eagle_on(HeadBench& bench, const std::shared_ptr<const EagleHead>& head) {
  Modules modules;
  modules.push_back(
      bench.module(make_eagle_model(head, bench.weights(), paged_kv(), bench.options())));
  return std::make_unique<FeatureDrafter>(
      std::move(modules), FeatureDrafterOptions{.capture_layers = eagle_capture_layers(
                                                    head->config, bench.weights()->config),
                                                .hidden_size = head->config.hidden_size});
}

std::unique_ptr<Drafter> drawn_eagle(HeadBench& bench) {
  const auto config = make_eagle_config(EagleVersion::kEagle, LayerStyle::kGemma, *bench.weights());
  return eagle_on(bench, random_eagle_head(config, {.seed = 5}));
}

/// An EAGLE-3 drafter whose draft vocabulary is 24 of the target's 40 tokens, in disorder.
std::unique_ptr<Drafter> drawn_eagle3(HeadBench& bench) {
  auto config = make_eagle_config(EagleVersion::kEagle3, LayerStyle::kLlama, *bench.weights());
  config.capture_layers = {0, 1};
  config.draft_vocab_size = 24;
  const auto head = random_eagle_head(config, {.seed = 6});
  head->target_ids = (at::arange(24) * 7 + 3).remainder(40);
  return eagle_on(bench, head);
}

std::unique_ptr<Drafter> mtp_on(HeadBench& bench, int64_t modules) {
  const auto head = random_mtp_head(*bench.weights(), 3, {.seed = 7});
  MtpModules made = make_mtp_modules(head, modules, bench.weights(), paged_kv(), bench.options());
  FeatureDrafterOptions options{.hidden_size = 16};
  if (bench.who() == DrawnBy::kDevice) {
    options.modules = drawing_of(made.drafts);
  }
  Modules all;
  for (auto& model : made.models) {
    all.push_back(bench.module(std::move(model)));
  }
  return std::make_unique<FeatureDrafter>(std::move(all), options);
}

std::unique_ptr<Drafter> drawn_mtp(HeadBench& bench) { return mtp_on(bench, 1); }
std::unique_ptr<Drafter> two_modules(HeadBench& bench) { return mtp_on(bench, 2); }
std::unique_ptr<Drafter> three_modules(HeadBench& bench) { return mtp_on(bench, 3); }

/// Five heads over every other token of the target's head.
std::unique_ptr<Drafter> drawn_medusa(HeadBench& bench) {
  MedusaHead head = new_medusa_head({.num_heads = 5, .num_layers = 1, .share_lm_head = true},
                                    unpack(*bench.weights()), at::kFloat);
  RandomTensors random({.seed = 8});
  for (auto& blocks : head.blocks) {
    blocks.front().weight = random.matrix(16, 16);
  }
  head.target_ids = at::arange(0, 40, 2);
  MedusaHeads heads =
      drafting_heads(std::make_shared<MedusaModel>(head, bench.weights(), bench.options()));
  if (bench.who() == DrawnBy::kHost) {
    heads.device_logits = {};
    heads.draw_chain = {};
    heads.draw_tree = {};
  }
  return std::make_unique<MedusaDrafter>(heads);
}

std::unique_ptr<Drafter> assistant_on(HeadBench& bench, const AssistantShape& shape) {
  const auto head = random_assistant(*bench.weights(), shape, {.seed = 9});
  AssistantSteps steps = drafting_steps(std::make_shared<AssistantModel>(
      head, AssistantOptions{.target = bench.weights()}, bench.options().ops));
  if (bench.who() == DrawnBy::kHost) {
    steps.device_step = {};
    steps.draw_chain = {};
    steps.draw_tree = {};
  }
  return std::make_unique<AssistantDrafter>(bench.target(), steps);
}

constexpr AssistantShape kAssistantShape{
    .hidden_size = 8, .intermediate_size = 12, .heads = 2, .layers = 3};

std::unique_ptr<Drafter> drawn_assistant(HeadBench& bench) {
  return assistant_on(bench, kAssistantShape);
}

/// Scores the tokens of three of eight clusters.
std::unique_ptr<Drafter> ordered_assistant(HeadBench& bench) {
  AssistantShape shape = kAssistantShape;
  shape.clusters = 8;
  shape.chosen = 3;
  return assistant_on(bench, shape);
}

struct HeadKind {
  std::string name;
  HeadBench::MakeDrafter make;
};

const std::vector<HeadKind> kDrawnHeads = {{"eagle", drawn_eagle},
                                           {"eagle3", drawn_eagle3},
                                           {"mtp", drawn_mtp},
                                           {"mtp of three modules", three_modules},
                                           {"medusa", drawn_medusa},
                                           {"assistant", drawn_assistant},
                                           {"ordered assistant", ordered_assistant}};

/// A step reads the chain and the decision about it: features stay.
void expect_few_read_backs(const Generation& generation, int64_t bytes_of_a_token) {
  for (const StepStatistics& step : generation.steps) {
    EXPECT_EQ(step.read_backs.count, 1);
    EXPECT_EQ(step.draft_read_backs.bytes, bytes_of_a_token * step.drafted);
  }
}

TEST(CudaDrawnHeadTest, GreedyTokensAreTheHosts) {
  for (const HeadKind& kind : kDrawnHeads) {
    SCOPED_TRACE(kind.name);
    HeadBench device(DrawnBy::kDevice, kind.make, verifier_of(DeviceRule::kNone), 3);
    HeadBench host(DrawnBy::kHost, kind.make, verifier_of(DeviceRule::kNone), 3);
    const Generation wanted = host.generate(kChainPrompts.front(), {});
    if (kind.make == three_modules) {  // the first of a key is drawn as a tree of one branch
      EXPECT_EQ(device.generate(kChainPrompts.front(), {}).tokens, wanted.tokens);
    }
    const Generation drawn = device.generate(kChainPrompts.front(), {});
    expect_the_hosts_tokens(drawn, wanted, 12);
    expect_few_read_backs(drawn, 12);
  }
}

/// Once their keys are known: what is fed and drafted in a step is a graph, for which the target's
/// features are copied, of several modules as of one.
TEST(CudaDrawnHeadTest, StepsOfSeveralModulesLaunchWhatThoseOfOneDo) {
  for (const bool is_tree : {false, true}) {
    for (const auto make : {drawn_mtp, three_modules}) {
      SCOPED_TRACE(testing::Message() << is_tree << (make == drawn_mtp));
      const auto ops = std::make_shared<RecordingOps>(cuda_ops(at::kCPU));
      std::unique_ptr<DraftShape> shape = std::make_unique<FixedDraftLength>(3);
      HeadBench bench(DrawnBy::kDevice, make, verifier_of(DeviceRule::kNone),
                      is_tree ? tree_shape() : std::move(shape), ops);
      for (int request = 0; request < 3; ++request) {
        bench.generate(kChainPrompts.front(), {});
      }
      ops->take_calls();
      const Generation generation = bench.generate(kChainPrompts.front(), {});
      const std::vector<std::string> calls = ops->take_calls();
      size_t steps = 0;
      for (const StepStatistics& step : generation.steps) {
        steps += step.drafted > 0 ? 1 : 0;
        EXPECT_EQ(step.draft_read_backs.count, step.drafted > 0 ? 1 : 0);
      }
      EXPECT_GT(steps, 1U);
      EXPECT_THAT(calls, testing::Each(testing::StartsWith("copy")));
      // The prompt goes to each module by itself, with features in and out of several.
      EXPECT_EQ(calls.size(), steps + (make == drawn_mtp ? 1 : 3 * 2 + 2));
    }
  }
}

/// A tree of 64 tokens is no graph: it grows behind one forward of each module, as larger ones do.
/// One of 63 may be a graph, which is to be fed the newest token.
TEST(CudaDrawnHeadTest, TreesThatNoGraphHoldsAreFedOnce) {
  std::vector<std::vector<int64_t>> paths;
  for (int64_t rank = 0; rank < 40; ++rank) {
    paths.push_back({rank});
  }
  for (int64_t rank = 0; rank < 24; ++rank) {
    paths.push_back({0, rank});
  }
  for (const auto& [tokens, fed] :
       std::vector<std::pair<size_t, std::vector<int64_t>>>{{63, {3, 2}}, {64, {4, 3}}}) {
    SCOPED_TRACE(tokens);
    const auto ops = std::make_shared<RecordingOps>(cuda_ops(at::kCPU));
    auto shape = std::make_unique<StaticTreeShape>(
        tree_of_paths({paths.begin(), paths.begin() + static_cast<std::ptrdiff_t>(tokens)}));
    HeadBench bench(DrawnBy::kDevice, two_modules, verifier_of(DeviceRule::kNone), std::move(shape),
                    ops);
    EXPECT_EQ(bench.generate(kChainPrompts.front(), {}).steps.front().drafted,
              static_cast<int64_t>(tokens));
    std::vector<std::string> evaluated;  // tokens of each forward of a module
    for (const std::string& call : ops->take_calls()) {
      if (call.rfind("embed_rows", 0) == 0) {
        evaluated.push_back(call);
      }
    }
    ASSERT_GT(evaluated.size(), 3U);
    for (size_t i = 0; i < 3; ++i) {
      const int64_t rows = i < 2 ? fed[i] : 1;
      EXPECT_EQ(evaluated[i], fmt::format("embed_rows [{0}] -> [{0}, 16]", rows)) << i;
    }
  }
}

/// Behind them some modules have kept nothing: a chain is drawn level by level, as trees are.
TEST(CudaDrawnHeadTest, TextsShorterThanThereAreModulesHaveTrees) {
  HeadBench device(DrawnBy::kDevice, three_modules, verifier_of(DeviceRule::kNone), 2);
  HeadBench host(DrawnBy::kHost, three_modules, verifier_of(DeviceRule::kNone), 2);
  const Generation wanted = host.generate({9}, {});
  // Chains are not the first of their keys afterwards.
  EXPECT_EQ(device.generate({9}, {}).tokens, wanted.tokens);
  const Generation drawn = device.generate({9}, {});
  expect_the_hosts_tokens(drawn, wanted, kTreeNodeBytes);
  int64_t fed = 1;
  int64_t trees = 0;
  int64_t chains = 0;
  for (const StepStatistics& step : drawn.steps) {
    const bool is_tree = fed < 3;
    EXPECT_EQ(step.draft_read_backs.bytes, (is_tree ? 2 * kTreeNodeBytes : 12) * step.drafted);
    (is_tree ? trees : chains) += step.drafted > 0 ? 1 : 0;
    fed += step.accepted + 1;
  }
  EXPECT_GT(trees, 0);
  EXPECT_GT(chains, 0);
}

TEST(CudaDrawnHeadTest, SampledTokensAreTheHosts) {
  const std::vector<SamplingParams> cases = {{.temperature = 1.0},
                                             {.temperature = 1.2, .top_k = 1000, .top_p = 0.9}};
  int64_t accepted = 0;
  int64_t drafted = 0;
  for (const HeadKind& kind : kDrawnHeads) {
    SCOPED_TRACE(kind.name);
    const DeviceRule rule = kind.name == "mtp" ? DeviceRule::kBlock : DeviceRule::kRejection;
    HeadBench device(DrawnBy::kDevice, kind.make, verifier_of(rule), 3);
    HeadBench host(DrawnBy::kHost, kind.make, verifier_of(rule), 3);
    for (size_t request = 0; request < cases.size(); ++request) {
      const auto& prompt = kChainPrompts[request];
      const SamplingParams& sampling = cases[request];
      const Generation drawn = device.generate(prompt, sampling);
      accepted += expect_the_hosts_tokens(drawn, host.generate(prompt, sampling), 8);
      expect_few_read_backs(drawn, 8);
      for (const StepStatistics& step : drawn.steps) {
        drafted += step.drafted;
      }
    }
  }
  EXPECT_GT(accepted, drafted / 10);
  EXPECT_LT(accepted, drafted);
}

TEST(CudaDrawnHeadTest, TreeTokensAreTheHosts) {
  const std::vector<SamplingParams> cases = {
      {.temperature = 1.0}, {}, {.temperature = 1.1, .top_k = 2}, {.top_k = 2}};
  int64_t accepted = 0;
  const std::vector<HeadBench::MakeDrafter> heads = {
      // few: the emulation is slow
      drawn_eagle3, two_modules, drawn_medusa, ordered_assistant};
  for (size_t i = 0; i < heads.size(); ++i) {
    const SamplingParams& sampling = cases[i];
    SCOPED_TRACE(i);
    const auto generate = [&](DrawnBy who) {
      HeadBench bench(who, heads[i],
                      verifier_of(sampling.greedy() ? DeviceRule::kNone : DeviceRule::kRejection),
                      tree_shape());
      return bench.generate(kChainPrompts.front(), sampling);
    };
    accepted += expect_the_hosts_tokens(generate(DrawnBy::kDevice), generate(DrawnBy::kHost),
                                        kTreeNodeBytes);
  }
  EXPECT_GT(accepted, 1);
}

/// Later requests run the graphs of the first one's trees.
TEST(CudaDrawnHeadTest, TreesOfLaterRequestsAreTheHosts) {
  int64_t accepted = 0;
  for (const auto make : {drawn_eagle, drawn_mtp, three_modules, drawn_assistant}) {
    const SamplingParams sampling{.temperature = make == drawn_mtp ? 0.0 : 1.0};
    const DeviceRule rule = sampling.greedy() ? DeviceRule::kNone : DeviceRule::kRejection;
    const auto ops = std::make_shared<DraftGraphOps>();
    HeadBench device(DrawnBy::kDevice, make, verifier_of(rule), tree_shape(), ops);
    HeadBench host(DrawnBy::kHost, make, verifier_of(rule), tree_shape());
    const size_t requests = make == three_modules ? 12 : 6;  // few drafts have the same key
    for (size_t request = 0; request < requests; ++request) {
      SCOPED_TRACE(request);
      const std::vector<Token>& prompt = kChainPrompts[request % 2];
      accepted += expect_the_hosts_tokens(device.generate(prompt, sampling),
                                          host.generate(prompt, sampling), kTreeNodeBytes);
    }
    EXPECT_GT(ops->replays(), 0);
  }
  EXPECT_GT(accepted, 1);
}

/// Eagle 3 and Medusa have columns for some of the tokens, and for none that may follow some texts.
TEST(CudaDrawnHeadTest, TokensUnderAGrammarAreTheHosts) {
  const auto grammar = chain_grammar();
  const std::vector<HeadBench::MakeDrafter> heads = {drawn_eagle3, two_modules, drawn_medusa,
                                                     drawn_assistant};
  int64_t drafted = 0;
  int64_t accepted = 0;
  for (size_t i = 0; i < heads.size(); ++i) {
    SCOPED_TRACE(i);
    const SamplingParams sampling{.temperature = i % 2 == 0 ? 1.0 : 0.0};
    const auto generate = [&](DrawnBy who) {
      const DeviceRule rule = sampling.greedy() ? DeviceRule::kNone : DeviceRule::kRejection;
      std::unique_ptr<DraftShape> shape = std::make_unique<FixedDraftLength>(3);
      HeadBench bench(who, heads[i], verifier_of(rule), i < 2 ? std::move(shape) : tree_shape());
      return bench.generate(kChainPrompts.front(), sampling, grammar);
    };
    const Generation device = generate(DrawnBy::kDevice);
    accepted += expect_the_hosts_drafts(device, generate(DrawnBy::kHost));
    for (const StepStatistics& step : device.steps) {
      drafted += step.drafted;
      if (i < 2) {
        EXPECT_EQ(step.draft_read_backs.bytes, 8 * step.draft_read_backs.count);
      }
    }
  }
  EXPECT_GT(accepted, 1);
  EXPECT_GT(drafted, accepted);
}

TEST(CudaDrawnHeadTest, WhatTheHostReadsItDraws) {
  const SamplingParams penalised{.temperature = 1.0, .repetition_penalty = 1.3};
  HeadBench device(DrawnBy::kDevice, drawn_eagle3, verifier_of(DeviceRule::kRejection), 3);
  HeadBench host(DrawnBy::kHost, drawn_eagle3, verifier_of(DeviceRule::kRejection), 3);
  for (const SamplingParams& sampling : {penalised, SamplingParams{.temperature = 1.0}}) {
    EXPECT_EQ(device.generate(kChainPrompts.front(), sampling).tokens,
              host.generate(kChainPrompts.front(), sampling).tokens);
  }
}

/// Ops whose logits become NaN from the second row on.
class DamagedRowOps final : public ForwardingOps {
 public:
  DamagedRowOps() : ForwardingOps(cuda_ops(at::kCPU)) {}
  void linear(const Linear& weight, const Tensor& input, Tensor& out) override {
    ForwardingOps::linear(weight, input, out);
    if (out.size(1) == 40 && ++heads_ > 1) {
      out.fill_(std::nan(""));
    }
  }

 private:
  int64_t heads_ = 0;
};

TEST(CudaDrawnHeadTest, DamagedLogitsAreTheHostsError) {
  for (const auto make : {drawn_eagle, drawn_mtp, two_modules, drawn_assistant}) {
    HeadBench bench(DrawnBy::kDevice, make, verifier_of(DeviceRule::kRejection), 3,
                    std::make_shared<DamagedRowOps>());
    EXPECT_THAT([&] { bench.generate(kChainPrompts.front(), {.temperature = 1.0}); },
                ThrowsMessage<Error>(HasSubstr("logit")));
  }
}

/// Ops whose logits, of all tokens or of drawn_medusa's, become NaN in the first graph that holds
/// some, and in all that follows.
class DamagedGraphOps final : public ForwardingOps {
 public:
  DamagedGraphOps() : ForwardingOps(cuda_ops(at::kCPU)) {}
  void linear(const Linear& weight, const Tensor& input, Tensor& out) override {
    ForwardingOps::linear(weight, input, out);
    if (out.size(1) == 40 || out.size(1) == 20) {
      is_damaged_ = is_damaged_ || is_recording_;
      ForwardingOps::scale(out, is_damaged_ ? std::nan("") : 1.0);  // in the graph, too
    }
  }
  bool records() const override { return true; }
  std::unique_ptr<OpsGraph> record(const std::function<void()>& calls) override {
    is_recording_ = true;
    auto graph = ops().record(calls);
    is_recording_ = false;
    return graph;
  }
  bool is_damaged() const { return is_damaged_; }

 private:
  bool is_recording_ = false;
  bool is_damaged_ = false;
};

TEST(CudaDrawnHeadTest, DamagedGraphsAreTheHostsError) {
  for (const bool is_tree : {false, true}) {
    for (const auto make : {drawn_eagle, two_modules, drawn_assistant}) {
      if (is_tree && make == drawn_assistant) {
        continue;
      }
      std::unique_ptr<DraftShape> shape = std::make_unique<FixedDraftLength>(3);
      const auto ops = std::make_shared<DamagedGraphOps>();
      HeadBench bench(DrawnBy::kDevice, make, verifier_of(DeviceRule::kNone),
                      is_tree ? tree_shape() : std::move(shape), ops);
      EXPECT_THAT(
          [&] {
            for (int request = 0; request < 3; ++request) {
              bench.generate(kChainPrompts.front(), {});
            }
          },
          ThrowsMessage<Error>(HasSubstr("logit")));
      EXPECT_TRUE(ops->is_damaged());
    }
  }
}

TEST(CudaDrawnHeadTest, DamagedGraphsOfTreesAreTheHostsError) {
  for (const auto make : {drawn_medusa, drawn_assistant}) {
    const auto ops = std::make_shared<DamagedGraphOps>();
    HeadBench bench(DrawnBy::kDevice, make, verifier_of(DeviceRule::kNone), tree_shape(), ops);
    EXPECT_THAT(
        [&] {
          for (int request = 0; request < 3; ++request) {
            bench.generate(kChainPrompts.front(), {});
          }
        },
        ThrowsMessage<Error>(HasSubstr("logit")));
    EXPECT_TRUE(ops->is_damaged());
  }
}

/// A head's chain, and what it is fed.
struct HeadChain {
  std::string name;
  std::function<std::unique_ptr<LanguageModel>(const TransformerOptions& options)> make;
  int64_t feature_width;
  int64_t fed;
  bool is_drawn;
};

std::vector<HeadChain> head_chains() {
  const auto weights = small_gemma();
  const auto eagle = random_eagle_head(
      make_eagle_config(EagleVersion::kEagle, LayerStyle::kGemma, *weights), {.seed = 5});
  auto config = make_eagle_config(EagleVersion::kEagle3, LayerStyle::kLlama, *weights);
  config.capture_layers = {0, 1};
  config.draft_vocab_size = 24;
  const auto eagle3 = random_eagle_head(config, {.seed = 6});
  eagle3->target_ids = (at::arange(24) * 7 + 3).remainder(40);
  config.layers = 3;
  const auto layered = random_eagle_head(config, {.seed = 6});
  layered->target_ids = eagle3->target_ids;
  const auto mtp = random_mtp_head(*weights, 2, {.seed = 7});
  const auto make_eagle = [weights](const std::shared_ptr<const EagleHead>& head) {
    return [weights, head](const TransformerOptions& options) -> std::unique_ptr<LanguageModel> {
      return make_eagle_model(head, weights, paged_kv(), options);
    };
  };
  return {{"eagle", make_eagle(eagle), 16, 1, true},
          {"eagle3", make_eagle(eagle3), 32, 2, true},
          {"eagle3 of best tokens", make_eagle(eagle3), 32, 1, false},
          {"eagle3 of three layers", make_eagle(layered), 32, 2, true},
          {"mtp",
           [weights, mtp](const TransformerOptions& options) -> std::unique_ptr<LanguageModel> {
             return make_mtp_model(mtp, 1, weights, paged_kv(), options);
           },
           16, 2, false}};
}

/// The only op beside the graph of a draft: the target's features are copied to where it reads
/// them.
std::string copied_features(const HeadChain& head) {
  return fmt::format("copy [{0}, {1}] -> [{0}, {1}]", head.fed, head.feature_width);
}

// The first chain of a key runs forward by forward, the second op by op.
TEST(CudaDrawnHeadTest, AChainIsOneGraph) {
  const ChainDraws draws;
  for (const HeadChain& head : head_chains()) {
    SCOPED_TRACE(head.name);
    const auto ops = std::make_shared<RecordingOps>(cuda_ops(at::kCPU));
    TransformerOptions without = head_options();
    without.graphs = 0;
    const auto graphed = head.make(head_options(ops));
    const auto plain = head.make(without);
    for (Token chain = 0; chain < 5; ++chain) {
      SCOPED_TRACE(chain);
      const std::vector<Token> fed = {chain, 9};
      const TokenSpan tokens = TokenSpan(fed).first(static_cast<size_t>(head.fed));
      const ForwardInputs inputs{.features = at::randn({head.fed, head.feature_width})};
      ChainDraws own = draws;
      own.random.position = chain;
      const ChainRequest request = head.is_drawn ? own.drawn(4) : own.best(4);
      const auto wanted = plain->draw_chain(tokens, request, {}, inputs);
      const DraftLaunches launches(*ops);
      const auto drawn = graphed->draw_chain(tokens, request, {}, inputs);
      if (chain < 2) {
        EXPECT_THAT(ops->take_calls(), testing::Contains(HasSubstr("paged_attention")));
      } else {
        EXPECT_THAT(ops->take_calls(), testing::ElementsAre(copied_features(head)));
        // A draft vocabulary's distributions are widened to the target's.
        EXPECT_LE(launches.copies(), head.feature_width == 32 && head.is_drawn ? 2 : 1);
      }
      ASSERT_TRUE(drawn.has_value() && wanted.has_value());
      EXPECT_EQ(drawn->tokens, wanted->tokens);
      EXPECT_EQ(drawn->read_backs, wanted->read_backs);
      ASSERT_EQ(drawn->probs.defined(), head.is_drawn);
      EXPECT_TRUE(!head.is_drawn || at::equal(drawn->probs, wanted->probs));
      for (LanguageModel* model : {graphed.get(), plain.get()}) {
        EXPECT_EQ(model->pending(), head.fed + 3);
        model->commit(chain_path(head.fed));
      }
    }
    const std::vector<Token> fed(static_cast<size_t>(head.fed), 9);
    const ForwardInputs damaged{.features = at::full({head.fed, head.feature_width}, std::nan(""))};
    const ChainRequest last = head.is_drawn ? draws.drawn(4) : draws.best(4);
    ops->take_calls();
    EXPECT_FALSE(graphed->draw_chain(fed, last, {}, damaged).has_value());
    EXPECT_THAT(ops->take_calls(), testing::ElementsAre(copied_features(head)));
    EXPECT_EQ(graphed->pending(), 0);
    // What chains leave in the cache is what forwards do.
    const TokenBatch next{.tokens = token_tensor(std::vector<Token>{3}),
                          .rows = {0},
                          .inputs = {.features = at::randn({1, head.feature_width})}};
    EXPECT_TRUE(at::equal(graphed->forward(next).logits, plain->forward(next).logits));
  }
}

/// Levels of the same sizes, whose features go to other nodes, and others.
const std::vector<std::vector<int64_t>> kHeadTrees = {
    {-1, 0, 0, 0, 1, 1, 2, 5, 6, 6}, {-1, 0, 0, 0, 2, 3, 3, 5, 5, 6}, {-1, 0, 1, 2, 3, 3}};
const std::vector<int64_t> kHeadRanks = {0, 0, 1, 2, 0, 1, 2, 3, 4, 5};

// The first tree of a key runs by forwards, which may be graphs, the second op by op.
TEST(CudaDrawnHeadTest, ATreeIsOneGraph) {
  const ChainDraws draws;
  const auto trees = static_cast<Token>(kHeadTrees.size());
  for (const HeadChain& head : head_chains()) {
    SCOPED_TRACE(head.name);
    const auto ops = std::make_shared<RecordingOps>(cuda_ops(at::kCPU));
    TransformerOptions without = head_options();
    without.graphs = 0;
    const auto graphed = head.make(head_options(ops));
    const auto plain = head.make(without);
    for (Token draft = 0; draft < 4 * trees; ++draft) {
      SCOPED_TRACE(draft);
      const std::vector<int64_t>& parents = kHeadTrees[static_cast<size_t>(draft % trees)];
      TreeRequest request{.parents = parents,
                          .ranks = std::span(kHeadRanks).first(parents.size()),
                          .sampling = draws.sampling};
      if (head.is_drawn) {
        request.random = DeviceRandomness{.key = draws.random.key, .position = draft};
      }
      const std::vector<Token> fed = {draft, 9};
      const TokenSpan tokens = TokenSpan(fed).first(static_cast<size_t>(head.fed));
      const Tensor features = at::randn({head.fed, head.feature_width});
      const auto wanted = grown_tree(*plain, tokens, request, features);
      ops->take_calls();
      const auto drawn = graphed->draw_tree(tokens, request, {}, {.features = features});
      const std::vector<std::string> calls = ops->take_calls();
      const bool attends = testing::Matches(testing::Contains(HasSubstr("paged_attention")))(calls);
      if (draft > 5) {
        EXPECT_THAT(calls, testing::ElementsAre(copied_features(head)));
      }
      // The first two trees have one key, so that of the third one alone is new to the second
      // round.
      EXPECT_TRUE(draft < trees || attends == (draft == 5));
      expect_the_same_tree(drawn, wanted);
      EXPECT_EQ(graphed->pending(), head.fed + plain->pending());
      graphed->commit(chain_path(head.fed));
      plain->commit({});
      for (LanguageModel* model : {graphed.get(), plain.get()}) {
        model->truncate(std::min<int64_t>(model->length(), 4));
      }
    }
    const std::vector<Token> fed(static_cast<size_t>(head.fed), 9);
    const TreeRequest last{
        .parents = kHeadTrees.front(), .ranks = kHeadRanks, .sampling = draws.sampling};
    const ForwardInputs damaged{.features = at::full({head.fed, head.feature_width}, std::nan(""))};
    EXPECT_FALSE(graphed->draw_tree(fed, last, {}, damaged).has_value());
    EXPECT_EQ(graphed->pending(), 0);
    EXPECT_THROW(graphed->draw_tree({}, last), InternalError);
    EXPECT_THROW(graphed->draw_tree(std::vector<Token>{40}, last), Error);
    // What trees leave in the cache is what forwards do.
    const TokenBatch next{.tokens = token_tensor(std::vector<Token>{3}),
                          .rows = {0},
                          .inputs = {.features = at::randn({1, head.feature_width})}};
    EXPECT_TRUE(at::equal(graphed->forward(next).logits, plain->forward(next).logits));
  }
}

TEST(CudaDrawnHeadTest, AHeadDrawsBehindWhatItKeepsOrNothing) {
  const auto weights = small_gemma();
  const auto head = random_mtp_head(*weights, 1, {.seed = 7});
  const SamplingParams greedy;
  const ChainRequest chain{.count = 3, .sampling = greedy};
  const std::vector<Token> fed = {7, 8};
  const ForwardInputs inputs{.features = at::randn({2, 16})};

  const auto model = make_mtp_model(head, 0, weights, paged_kv(), head_options());
  ASSERT_TRUE(model->draws_drafts());
  const auto drawn = model->draw_chain(fed, chain, {}, inputs);
  ASSERT_TRUE(drawn.has_value());
  EXPECT_EQ(drawn->read_backs, (ReadBacks{1, 3 * 12}));
  EXPECT_EQ(model->pending(), 4) << "the last token is not evaluated";
  EXPECT_THROW(model->draw_chain(fed, chain, {}, inputs), InternalError) << "nodes are pending";
  EXPECT_EQ(model->pending(), 4);
  model->truncate(0);
  EXPECT_THROW(model->draw_chain({}, chain), InternalError);
  EXPECT_THROW(model->draw_chain(std::vector<Token>{40}, chain), Error);
  EXPECT_THROW(model->draw_chain(std::vector<Token>{7}, {.count = 129, .sampling = greedy}), Error);
  EXPECT_EQ(model->pending(), 0);

  const auto damaged =
      make_mtp_model(head, 0, weights, paged_kv(), head_options(std::make_shared<DamagedRowOps>()));
  EXPECT_FALSE(damaged->draw_chain(fed, chain, {}, inputs).has_value());
  EXPECT_EQ(damaged->pending(), 0);
}

}  // namespace
}  // namespace specdec
