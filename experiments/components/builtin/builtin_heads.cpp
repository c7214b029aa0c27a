#include <ATen/ops/arange.h>
#include <fmt/format.h>

#include <memory>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/families/model.h"
#include "core/transformer/heads/drafting_functions.h"
#include "core/transformer/heads/feature_model.h"
#include "core/transformer/heads/head_files.h"
#include "core/transformer/heads/parallel_eagle.h"
#include "decoders/drafters/block.h"
#include "decoders/drafters/feature_drafter.h"
#include "experiments/components/builtin/builtin.h"
#include "experiments/components/cache_checks.h"

namespace specdec {
namespace {

constexpr const char* kHeadWeights = "the head's folder, trained for this target";

TransformerOptions engine_options(const BuildContext& context) {
  return {.max_length = context.target.max_length(),
          .graphs = context.models.options().cuda_graphs,
          .prefill_graphs = context.models.options().prefill_graphs};
}

/// Notes what an EAGLE head takes; `config` as its folder has it.
void note_eagle(const ConfigNode& node, const RunPlan& plan, const std::filesystem::path& folder,
                const EagleConfig& config) {
  const bool third = captures_streams(config.version);
  PlannedHead head{.open = [folder] { return std::make_shared<CheckpointTensors>(folder); },
                   .keeps_tensors = config.version == EagleVersion::kPEagle,
                   .follows_blocks = true,
                   .layers = {static_cast<size_t>(config.layers), config.plan}};
  if (!config.own_embedding) {
    head.left_out = {"embed_tokens.weight"};
  }
  if (!third && config.draft_vocab_size < config.vocab_size) {
    head.target_rows = config.draft_vocab_size;
  }
  const auto captured = std::ssize(eagle_capture_layers(config, plan.target->config));
  head.feature_width = config.hidden_size * (third ? captured : 1);
  note_head(node, plan, std::move(head));
}

DrafterRegistry::Make prepare_eagle(const ConfigNode& node, const RunPlan& plan,
                                    EagleVersion version) {
  const WeightsOptions given = weights_options(kHeadWeights).read(node);
  const auto& folder = given.weights;
  FeatureDrafterOptions options{.sample = given.sample};
  check_sample(node, plan, given.sample);
  note_hidden_states(plan);
  std::filesystem::path target_folder;
  if (!folder.empty() && plan.target != nullptr) {
    target_folder = plan.target->folder;
    note_error(node, "weights", [&] {
      const EagleConfig config = load_eagle_config(folder, version);
      check_eagle_config(config, plan.target->config, folder);
      (void)load_eagle_head(folder, version, unloaded_target(plan.target->config));
      options.capture_layers = eagle_capture_layers(config, plan.target->config);
      options.hidden_size = config.hidden_size;
      const std::vector<LayerPlan> layers(static_cast<size_t>(config.layers), config.plan);
      check_draft_layers(node, plan, layers, plan.target->config);
      note_eagle(node, plan, folder, config);
    });
  }
  return [=](BuildContext& context) -> std::unique_ptr<Drafter> {
    const auto target = context.models.weights(target_folder);
    const auto head =
        load_eagle_head(folder, version, *target, parse_dtype(context.models.options().dtype));
    context.models.note_fingerprint(folder.string(), head->fingerprint);
    context.models.note_warning(head->note);
    if (version == EagleVersion::kPEagle) {
      return std::make_unique<BlockDrafter>(
          std::make_unique<ParallelEagleModel>(head, target, context.models.kv_store(),
                                               engine_options(context)),
          BlockDrafterOptions{.sample = options.sample, .capture_layers = options.capture_layers});
    }
    std::vector<std::unique_ptr<LanguageModel>> modules;
    modules.push_back(
        make_eagle_model(head, target, context.models.kv_store(), engine_options(context)));
    context.draft_model = modules.front().get();
    context.draft_model_name = folder.string();
    return std::make_unique<FeatureDrafter>(std::move(modules), options);
  };
}

struct MtpOptions {
  int64_t modules = 0;
  std::optional<bool> sample = {};
};

OptionTable<MtpOptions> mtp_options() {
  return OptionTable<MtpOptions>()
      .add(
          "modules", &MtpOptions::modules,
          "how many are used, 0 = all; the last one drafts all deeper tokens from its own features",
          {0, 1024})
      .add("sample", &MtpOptions::sample, kSampleMeaning, {}, kSampleDefault);
}

void check_mtp(const ConfigNode& node, const RunPlan& plan, int64_t wanted) {
  const auto count = plan.target == nullptr ? wanted : count_mtp_modules(plan.target->folder);
  if (!plan.include_mtp) {
    node.fail_at("type",
                 "mtp needs the target's multi-token-prediction modules, and model.include_mtp is "
                 "false: set it to true");
  } else if (plan.target != nullptr && count == 0) {
    node.fail_at("type", fmt::format("{}: this checkpoint has no multi-token-prediction modules "
                                     "(tensors 'mtp.*', or mtp.safetensors)",
                                     plan.target->folder.string()));
  } else if (wanted > count) {
    node.fail("modules", fmt::format("is {}, but {} holds {} modules: give at most that many",
                                     wanted, plan.target->folder.string(), count));
  } else if (plan.target != nullptr) {
    const auto head =
        load_mtp_head(plan.target->folder, unloaded_target(plan.target->config, plan.target->plan));
    check_draft_layers(node, plan, {head->layers.front().plan}, plan.target->config);
    note_head(
        node, plan,
        {.open =
             [folder = plan.target->folder] {
               return std::make_shared<CheckpointTensors>(head_tensors(folder, "mtp.safetensors"));
             },
         .prefix = "mtp.",
         .left_out = {"embed_tokens.weight", "lm_head.weight"},  // copies of the target's
         .layer_is_module = true,
         .follows_blocks = true,
         .layers = {head->layers.front().plan},
         .modules = wanted == 0 ? count : wanted,
         .feature_width = plan.target->config.hidden_size});
  }
}

DrafterRegistry::Make prepare_mtp(const ConfigNode& node, const RunPlan& plan) {
  const MtpOptions given = mtp_options().read(node);
  const int64_t wanted = given.modules;
  FeatureDrafterOptions options{.sample = given.sample};
  check_sample(node, plan, given.sample);
  note_hidden_states(plan);
  std::filesystem::path folder;
  note_error(node, "type", [&] { check_mtp(node, plan, wanted); });
  if (plan.target != nullptr) {
    folder = plan.target->folder;
    options.hidden_size = plan.target->config.hidden_size;
  }
  return [=](BuildContext& context) {
    const auto target = context.models.weights(folder);
    const auto head = load_mtp_head(folder, *target, parse_dtype(context.models.options().dtype));
    const auto count = static_cast<int64_t>(head->layers.size());
    context.models.note_fingerprint(folder.string() + " (mtp)", head->fingerprint);
    context.models.note_warning(head->note);
    MtpModules modules = make_mtp_modules(head, wanted == 0 ? count : wanted, target,
                                          context.models.kv_store(), engine_options(context));
    FeatureDrafterOptions own = options;
    own.modules = drawing_of(modules.drafts);
    context.draft_model = modules.models.front().get();
    context.draft_model_name = folder.string() + " (mtp)";
    return std::make_unique<FeatureDrafter>(std::move(modules.models), own);
  };
}

// For `specdec certify`: random heads for the random target.

void write_eagle(const std::filesystem::path& folder, uint64_t seed) {
  const auto target = load_model(folder / "target");
  const auto config = make_eagle_config(EagleVersion::kEagle, LayerStyle::kGemma, *target);
  save_eagle_head(*random_eagle_head(config, {.seed = seed}), folder / "eagle", at::kFloat);
}

/// Writes an EAGLE-3 head whose draft vocabulary leaves out a token of the target, as published
/// ones do.
void write_eagle3(const std::filesystem::path& folder, uint64_t seed) {
  const auto target = load_model(folder / "target");
  auto config = make_eagle_config(EagleVersion::kEagle3, LayerStyle::kLlama, *target);
  config.capture_layers = {0, 1};
  config.draft_vocab_size = target->config.vocab_size - 1;
  const auto head = random_eagle_head(config, {.seed = seed});
  head->target_ids = at::arange(1, target->config.vocab_size, at::kLong);
  save_eagle_head(*head, folder / "eagle3", at::kFloat);
}

void write_peagle(const std::filesystem::path& folder, uint64_t seed) {
  const auto target = load_model(folder / "target");
  EagleConfig config = make_eagle_config(EagleVersion::kPEagle, LayerStyle::kLlama, *target);
  config.layers = 2;
  config.draft_vocab_size = config.vocab_size - 1;  // as published ones leave tokens out
  save_eagle_head(*random_eagle_head(config, {.seed = seed}), folder / "peagle", at::kFloat);
}

void write_mtp(const std::filesystem::path& folder, uint64_t seed) {
  const auto target = load_model(folder / "target");
  const auto head = random_mtp_head(*target, 2, {.seed = seed});
  save_mtp_head(*head, *target, folder / "target", at::kFloat);
}

void add_eagle(DrafterRegistry& drafters) {
  drafters.add("eagle", {.help = "EAGLE-1/2: a one-layer head that continues the target's features",
                         .source = "Li et al., 2024, arXiv:2401.15077",
                         .page = "docs/eagle.md",
                         .options = weights_options(kHeadWeights).help(),
                         .promise = Promise::kLossless,
                         .prepare =
                             [](const ConfigNode& node, const RunPlan& plan) {
                               return prepare_eagle(node, plan, EagleVersion::kEagle);
                             },
                         .examples = {{"{type: eagle, weights: <folder>/eagle, sample: true}"},
                                      {"{type: eagle, weights: <folder>/eagle, sample: false}"}},
                         .write_example_files = write_eagle});
  drafters.add("eagle3",
               {.help = "EAGLE-3: a small head over several of the target's layers, with a "
                        "draft vocabulary",
                .source = "Li et al., 2025, arXiv:2503.01840",
                .page = "docs/eagle.md",
                .options = weights_options(kHeadWeights).help(),
                .promise = Promise::kLossless,
                .prepare =
                    [](const ConfigNode& node, const RunPlan& plan) {
                      return prepare_eagle(node, plan, EagleVersion::kEagle3);
                    },
                .examples = {{"{type: eagle3, weights: <folder>/eagle3, sample: true}"},
                             {"{type: eagle3, weights: <folder>/eagle3, sample: false}"}},
                .write_example_files = write_eagle3});
  drafters.add("peagle",
               {.help = "P-EAGLE: EAGLE-3's features, with all tokens of a draft in one forward",
                .source = "2026, arXiv:2602.01469",
                .page = "docs/block_heads.md",
                .options = weights_options(kHeadWeights).help(),
                .promise = Promise::kLossless,
                .prepare =
                    [](const ConfigNode& node, const RunPlan& plan) {
                      return prepare_eagle(node, plan, EagleVersion::kPEagle);
                    },
                .examples = {{"{type: peagle, weights: <folder>/peagle, sample: true}"}},
                .write_example_files = write_peagle});
}

}  // namespace

void add_head_drafters(DrafterRegistry& drafters) {
  add_eagle(drafters);
  drafters.add("mtp", {.help = "multi-token-prediction modules of the target's own checkpoint "
                               "(model.include_mtp: true)",
                       .source = "DeepSeek-V3, arXiv:2412.19437",
                       .page = "docs/mtp.md",
                       .options = mtp_options().help(),
                       .promise = Promise::kLossless,
                       .prepare = prepare_mtp,
                       .examples = {{"{type: mtp, modules: 1, sample: true}"},
                                    {"{type: mtp, modules: 2, sample: true}"},
                                    {"{type: mtp, modules: 2, sample: false}"}},
                       .write_example_files = write_mtp});
}

}  // namespace specdec
