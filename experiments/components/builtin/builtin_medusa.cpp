#include <memory>

#include "core/error.h"
#include "core/families/model.h"
#include "core/transformer/heads/drafting_functions.h"
#include "core/transformer/random_weights.h"
#include "decoders/drafters/medusa.h"
#include "experiments/components/builtin/builtin.h"

namespace specdec {
namespace {

constexpr const char* kHeadsWeights = "the heads' folder, trained for this target";

DrafterRegistry::Make prepare_medusa(const ConfigNode& node, const RunPlan& plan) {
  const WeightsOptions given = weights_options(kHeadsWeights).read(node);
  const auto& folder = given.weights;
  const MedusaOptions options{.sample = given.sample};
  check_sample(node, plan, given.sample);
  note_hidden_states(plan);
  std::filesystem::path target_folder;
  if (!folder.empty() && plan.target != nullptr) {
    target_folder = plan.target->folder;
    note_error(node, "weights", [&] {
      const MedusaHead head = load_medusa_head(folder, unloaded_target(plan.target->config));
      note_head(
          node, plan,
          {.open = [folder] { return std::make_shared<CheckpointTensors>(medusa_tensors(folder)); },
           .follows_blocks = true,
           .target_rows = head.config.draft_vocab_size});
    });
  }
  return [=](BuildContext& context) {
    const auto target = context.models.weights(target_folder);
    const MedusaHead head =
        load_medusa_head(folder, *target, parse_dtype(context.models.options().dtype));
    context.models.note_fingerprint(folder.string(), head.fingerprint);
    context.models.note_warning(head.note);
    const auto model = std::make_shared<MedusaModel>(
        head, target, TransformerOptions{.graphs = context.models.options().cuda_graphs});
    return std::make_unique<MedusaDrafter>(drafting_heads(model), options);
  };
}

/// Writes heads for `specdec certify` that resemble the target's own.
void write_examples(const std::filesystem::path& folder, uint64_t seed) {
  const auto target = load_model_tensors(folder / "target");
  for (const bool shared : {false, true}) {
    MedusaHead head = new_medusa_head({.num_heads = 3, .num_layers = 1, .share_lm_head = shared},
                                      *target, at::kFloat);
    RandomTensors random({.seed = seed});
    for (auto& blocks : head.blocks) {
      const int64_t hidden = head.config.hidden_size;
      blocks.front().weight = random.matrix(hidden, hidden);
    }
    save_medusa_head(head, folder / (shared ? "medusa_shared" : "medusa"), at::kFloat);
  }
}

}  // namespace

void add_medusa(DrafterRegistry& drafters) {
  drafters.add("medusa",
               {.help = "heads on the target's last hidden state, one for each depth",
                .source = "Medusa: Cai et al., 2024, arXiv:2401.10774",
                .page = "docs/medusa.md",
                .options = weights_options(kHeadsWeights).help(),
                .promise = Promise::kLossless,
                .prepare = prepare_medusa,
                .examples = {{"{type: medusa, weights: <folder>/medusa, sample: true}"},
                             {"{type: medusa, weights: <folder>/medusa_shared, sample: false}"}},
                .write_example_files = write_examples});
}

}  // namespace specdec
