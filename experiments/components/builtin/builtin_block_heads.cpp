#include <fmt/format.h>

#include <memory>

#include "core/families/model.h"
#include "core/transformer/heads/block_head.h"
#include "decoders/drafters/block.h"
#include "experiments/components/builtin/builtin.h"
#include "experiments/components/cache_checks.h"

namespace specdec {
namespace {

constexpr const char* kBlockWeights = "the head's folder, trained for this target";

struct BlockHeadOptions : WeightsOptions {
  double confidence_threshold = 0.0;
};

/// DSpark's heads predict whether a draft is accepted.
OptionTable<BlockHeadOptions> block_head_options(BlockMethod method) {
  OptionTable<BlockHeadOptions> options;
  options.require("weights", &BlockHeadOptions::weights, kBlockWeights)
      .add("sample", &BlockHeadOptions::sample, kSampleMeaning, {}, kSampleDefault);
  if (method == BlockMethod::kDSpark) {
    options.add("confidence_threshold", &BlockHeadOptions::confidence_threshold,
                "a draft ends before the first token that the head's confidence head gives less "
                "than this probability of being accepted; 0: it does not",
                {0.0, 1.0});
  }
  return options;
}

/// Notes what the head takes.
void note_block_head(const ConfigNode& node, const RunPlan& plan,
                     const std::filesystem::path& folder, const BlockHeadConfig& config) {
  PlannedHead head{.open = [folder] { return std::make_shared<CheckpointTensors>(folder); },
                   .layers = config.plan};
  if (!config.own_embedding) {
    head.left_out.emplace_back("embed_tokens.weight");
  }
  if (!config.own_head) {
    head.left_out.emplace_back("lm_head.weight");
  }
  head.feature_width =
      config.hidden_size * std::ssize(block_capture_layers(config, plan.target->config));
  note_head(node, plan, std::move(head));
}

/// Notes what is wrong with the head's config, and which layers it captures.
void check_block_head(const ConfigNode& node, const RunPlan& plan, BlockMethod method,
                      const BlockHeadOptions& given, BlockDrafterOptions& options) {
  note_error(node, "weights", [&] {
    const BlockHeadConfig config = load_block_head_config(given.weights);
    if (config.method != method) {
      throw WeightsError(fmt::format("{0}: holds a head of type {1}; use drafter type {1}",
                                     given.weights.string(), block_method_name(config.method)));
    }
    check_block_head_config(config, plan.target->config, given.weights);
    if (given.confidence_threshold > 0.0 && !config.markov.confidence) {
      throw WeightsError(
          fmt::format("{}: has no confidence head for confidence_threshold; leave "
                      "that out",
                      given.weights.string()));
    }
    (void)load_block_head(given.weights, unloaded_target(plan.target->config, plan.target->plan));
    options.capture_layers = block_capture_layers(config, plan.target->config);
    check_draft_layers(node, plan, config.plan, plan.target->config);
    note_block_head(node, plan, given.weights, config);
  });
}

DrafterRegistry::Make prepare_block_head(BlockMethod method, const ConfigNode& node,
                                         const RunPlan& plan) {
  const BlockHeadOptions given = block_head_options(method).read(node);
  BlockDrafterOptions options{.sample = given.sample,
                              .confidence_threshold = given.confidence_threshold};
  check_sample(node, plan, given.sample);
  note_hidden_states(plan);
  std::filesystem::path target_folder;
  if (!given.weights.empty() && plan.target != nullptr) {
    target_folder = plan.target->folder;
    check_block_head(node, plan, method, given, options);
  }
  return [=](BuildContext& context) {
    const auto target = context.models.weights(target_folder);
    const auto head =
        load_block_head(given.weights, *target, parse_dtype(context.models.options().dtype));
    context.models.note_fingerprint(given.weights.string(), head->fingerprint);
    context.models.note_warning(head->note);
    const TransformerOptions engine{.max_length = context.target.max_length()};
    return std::make_unique<BlockDrafter>(
        std::make_unique<BlockHeadModel>(head, target, context.models.kv_store(), engine), options);
  };
}

/// What the method adds to a small random head.
void add_method(BlockMethod method, BlockHeadConfig& config) {
  config.method = method;
  switch (method) {
    case BlockMethod::kDFlash:
      config.plan.front().window = 3;
      config.causal.front() = true;
      config.soft_cap = 5.0;
      return;
    case BlockMethod::kDSpark:
      config.markov = {
          .rank = 4, .gate = MarkovGate::kRnn, .confidence = true, .confidence_with_markov = true};
      return;
    case BlockMethod::kDomino:
      config.domino = {.state_size = 6, .rank = 4, .plain_drafts = 1};
      config.first_slot = 0;
      return;
    case BlockMethod::kDFlash2:
      config.dflash2 = {.rank = 4, .candidates = 2, .kernel_size = 2, .group_size = 2};
      return;
  }
}

/// Writes a block head for `specdec certify`: a random one for the random target.
void write_block_head(BlockMethod method, const std::filesystem::path& folder, uint64_t seed) {
  const auto target = load_model(folder / "target");
  BlockHeadConfig config = make_block_head_config(*target, 2, 4);
  add_method(method, config);
  save_block_head(*random_block_head(config, {.seed = seed}), folder / block_method_name(method),
                  at::kFloat);
}

std::vector<Example> block_head_examples(BlockMethod method) {
  const std::string start =
      fmt::format("{{type: {0}, weights: <folder>/{0}, sample: ", block_method_name(method));
  switch (method) {
    case BlockMethod::kDFlash:
      return {{start + "true}"}, {start + "false}"}};
    case BlockMethod::kDSpark:
      return {{start + "true, confidence_threshold: 0.05}"}};
    case BlockMethod::kDomino:
    case BlockMethod::kDFlash2:
      return {{start + "true}"}};
  }
  return {};
}

void add_block_head(DrafterRegistry& drafters, BlockMethod method, const char* help,
                    const char* source) {
  drafters.add(
      block_method_name(method),
      {.help = help,
       .source = source,
       .page = "docs/block_heads.md",
       .options = block_head_options(method).help(),
       .promise = Promise::kLossless,
       .prepare = [method](const ConfigNode& node,
                           const RunPlan& plan) { return prepare_block_head(method, node, plan); },
       .examples = block_head_examples(method),
       .write_example_files = [method](const std::filesystem::path& folder,
                                       uint64_t seed) { write_block_head(method, folder, seed); }});
}

}  // namespace

void add_block_heads(DrafterRegistry& drafters) {
  add_block_head(drafters, BlockMethod::kDFlash,
                 "DFlash: a head that drafts a block of tokens in one forward, over the target's "
                 "hidden states",
                 "z-lab, 2026, arXiv:2602.06036");
  add_block_head(drafters, BlockMethod::kDSpark,
                 "DSpark: a block in one forward, each token biased by the one before it, with a "
                 "prediction of what is accepted",
                 "DeepSeek-AI, 2026, arXiv:2607.05147");
  add_block_head(
      drafters, BlockMethod::kDomino,
      "Domino: a block in one forward, each token biased by a recurrent layer over those "
      "before it",
      "2026, arXiv:2605.29707");
  add_block_head(drafters, BlockMethod::kDFlash2,
                 "DFlash2: DFlash with convolutions in its layers and a choice among a few tokens "
                 "by the one before",
                 "z-lab, 2026");
}

}  // namespace specdec
