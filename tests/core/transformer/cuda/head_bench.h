#pragma once
#include <ATen/ATen.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

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

namespace specdec {

inline TransformerOptions head_options(std::shared_ptr<Ops> ops = cuda_ops(at::kCPU)) {
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
  std::vector<std::unique_ptr<LanguageModel>> modules_;
  SpeculativeDecoding strategy_;
};

inline std::unique_ptr<Drafter> eagle_on(HeadBench& bench,
                                         const std::shared_ptr<const EagleHead>& head) {
  std::vector<std::unique_ptr<LanguageModel>> modules;
  modules.push_back(
      bench.module(make_eagle_model(head, bench.weights(), paged_kv(), bench.options())));
  return std::make_unique<FeatureDrafter>(
      std::move(modules), FeatureDrafterOptions{.capture_layers = eagle_capture_layers(
                                                    head->config, bench.weights()->config),
                                                .hidden_size = head->config.hidden_size});
}

inline std::unique_ptr<Drafter> drawn_eagle(HeadBench& bench) {
  const auto config = make_eagle_config(EagleVersion::kEagle, LayerStyle::kGemma, *bench.weights());
  return eagle_on(bench, random_eagle_head(config, {.seed = 5}));
}

/// An EAGLE-3 drafter whose draft vocabulary is 24 of the target's 40 tokens, in disorder.
inline std::unique_ptr<Drafter> drawn_eagle3(HeadBench& bench) {
  auto config = make_eagle_config(EagleVersion::kEagle3, LayerStyle::kLlama, *bench.weights());
  config.capture_layers = {0, 1};
  config.draft_vocab_size = 24;
  const auto head = random_eagle_head(config, {.seed = 6});
  head->target_ids = (at::arange(24) * 7 + 3).remainder(40);
  return eagle_on(bench, head);
}

inline std::unique_ptr<Drafter> mtp_on(HeadBench& bench, int64_t modules) {
  const auto head = random_mtp_head(*bench.weights(), 3, {.seed = 7});
  MtpModules made = make_mtp_modules(head, modules, bench.weights(), paged_kv(), bench.options());
  FeatureDrafterOptions options{.hidden_size = 16};
  if (bench.who() == DrawnBy::kDevice) {
    options.modules = drawing_of(made.drafts);
  }
  std::vector<std::unique_ptr<LanguageModel>> all;
  for (auto& model : made.models) {
    all.push_back(bench.module(std::move(model)));
  }
  return std::make_unique<FeatureDrafter>(std::move(all), options);
}

inline std::unique_ptr<Drafter> drawn_mtp(HeadBench& bench) { return mtp_on(bench, 1); }
inline std::unique_ptr<Drafter> two_modules(HeadBench& bench) { return mtp_on(bench, 2); }
inline std::unique_ptr<Drafter> three_modules(HeadBench& bench) { return mtp_on(bench, 3); }

/// Five heads over every other token of the target's head.
inline std::unique_ptr<Drafter> drawn_medusa(HeadBench& bench) {
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

inline std::unique_ptr<Drafter> assistant_on(HeadBench& bench, const AssistantShape& shape) {
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

inline constexpr AssistantShape kAssistantShape{
    .hidden_size = 8, .intermediate_size = 12, .heads = 2, .layers = 3};

inline std::unique_ptr<Drafter> drawn_assistant(HeadBench& bench) {
  return assistant_on(bench, kAssistantShape);
}

/// Scores the tokens of three of eight clusters.
inline std::unique_ptr<Drafter> ordered_assistant(HeadBench& bench) {
  AssistantShape shape = kAssistantShape;
  shape.clusters = 8;
  shape.chosen = 3;
  return assistant_on(bench, shape);
}

struct HeadKind {
  std::string name;
  HeadBench::MakeDrafter make;
};

inline const std::vector<HeadKind> kDrawnHeads = {{"eagle", drawn_eagle},
                                                  {"eagle3", drawn_eagle3},
                                                  {"mtp", drawn_mtp},
                                                  {"mtp of three modules", three_modules},
                                                  {"medusa", drawn_medusa},
                                                  {"assistant", drawn_assistant},
                                                  {"ordered assistant", ordered_assistant}};

}  // namespace specdec
