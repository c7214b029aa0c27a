#include <fmt/format.h>

#include <memory>

#include "core/families/model.h"
#include "core/transformer/heads/dflash_head.h"
#include "decoders/drafters/block.h"
#include "experiments/components/builtin.h"

namespace specdec {
namespace {

constexpr const char* kDFlashWeights = "the head's folder, trained for this target";

DrafterRegistry::Make prepare_dflash(const ConfigNode& node, const RunPlan& plan) {
  const WeightsOptions given = weights_options(kDFlashWeights).read(node);
  BlockDrafterOptions options{.sample = given.sample};
  check_sample(node, plan, given.sample);
  note_hidden_states(plan);
  std::filesystem::path target_folder;
  if (!given.weights.empty() && plan.target != nullptr) {
    target_folder = plan.target->folder;
    note_error(node, "weights", [&] {
      const DFlashConfig config = load_dflash_config(given.weights);
      check_dflash_config(config, plan.target->config, given.weights);
      (void)CheckpointTensors(given.weights);
      options.capture_layers = dflash_capture_layers(config, plan.target->config);
    });
  }
  return [=](BuildContext& context) {
    const auto target = context.models.weights(target_folder);
    const auto head =
        load_dflash_head(given.weights, *target, parse_dtype(context.models.options().dtype));
    context.models.note_fingerprint(given.weights.string(), head->fingerprint);
    context.models.note_warning(head->note);
    const TransformerOptions engine{.max_length = context.target.max_length()};
    return std::make_unique<BlockDrafter>(
        std::make_unique<DFlashModel>(head, target, context.models.kv_store(), engine), options);
  };
}

/// For `specdec certify`: a random one for the random target, with layers of both kinds.
void write_dflash(const std::filesystem::path& folder, uint64_t seed) {
  const auto target = load_model(folder / "target");
  DFlashConfig config = make_dflash_config(*target, 2, 4);
  config.plan.front().window = 3;
  config.causal.front() = true;
  config.soft_cap = 5.0;
  save_dflash_head(*random_dflash_head(config, {.seed = seed}), folder / "dflash", at::kFloat);
}

}  // namespace

void add_dflash(DrafterRegistry& drafters) {
  drafters.add("dflash",
               {.help = "DFlash: a head that drafts a block of tokens in one forward, over the "
                        "target's hidden states",
                .source = "z-lab, 2026, arXiv:2602.06036",
                .page = "docs/dflash.md",
                .options = weights_options(kDFlashWeights).help(),
                .promise = Promise::kLossless,
                .prepare = prepare_dflash,
                .examples = {{"{type: dflash, weights: <folder>/dflash, sample: true}"},
                             {"{type: dflash, weights: <folder>/dflash, sample: false}"}},
                .write_example_files = write_dflash});
}

}  // namespace specdec
