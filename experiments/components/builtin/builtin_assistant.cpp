#include <fmt/format.h>

#include <memory>

#include "core/error.h"
#include "core/families/gemma/assistant.h"
#include "core/families/model.h"
#include "core/transformer/heads/drafting_functions.h"
#include "decoders/drafters/assistant.h"
#include "experiments/components/builtin/builtin.h"

namespace specdec {
namespace {

struct AssistantConfigOptions : WeightsOptions {
  int64_t sliding_keys = 0;
  bool score_all = true;
};

OptionTable<AssistantConfigOptions> assistant_options() {
  return OptionTable<AssistantConfigOptions>()
      .require("weights", &AssistantConfigOptions::weights,
               "the assistant's folder or GGUF file, made for this target")
      .add("sample", &AssistantConfigOptions::sample, kSampleMeaning, {}, kSampleDefault)
      .add("sliding_keys", &AssistantConfigOptions::sliding_keys,
           "newest keys that its sliding layers see; 0 = their window + 1, as transformers gives "
           "them; a cache cut to its window leaves window - 1",
           {0, 1 << 24})
      .add("score_all", &AssistantConfigOptions::score_all,
           "an ordered head scores some clusters of tokens: true gives the others the smallest "
           "score - 1, as transformers does, false never drafts them");
}

DrafterRegistry::Make prepare_assistant(const ConfigNode& node, const RunPlan& plan) {
  const AssistantConfigOptions given = assistant_options().read(node);
  const AssistantOptions model{
      .sliding_keys = given.sliding_keys,
      .fill = given.score_all ? CentroidFill::kBelowMinimum : CentroidFill::kNothing};
  check_sample(node, plan, given.sample);
  note_hidden_states(plan);
  std::filesystem::path target_folder;
  if (!given.weights.empty() && plan.target != nullptr) {
    target_folder = plan.target->folder;
    note_error(node, "weights", [&] {
      (void)load_assistant(given.weights, unloaded_target(plan.target->config, plan.target->plan));
      note_head(node, plan,
                {.open = [folder = given.weights] { return open_assistant(folder).tensors; }});
    });
  }
  return [=](BuildContext& context) {
    const auto target = context.models.weights(target_folder);
    const LoadedAssistant loaded =
        load_assistant(given.weights, *target, parse_dtype(context.models.options().dtype));
    context.models.note_fingerprint(given.weights.string(), loaded.head->weights.fingerprint);
    context.models.note_warning(loaded.note);
    AssistantOptions own = model;
    own.target = target;
    own.graphs = context.models.options().cuda_graphs;
    const auto assistant = std::make_shared<AssistantModel>(loaded.head, own);
    return std::make_unique<AssistantDrafter>(context.target, drafting_steps(assistant),
                                              AssistantDrafterOptions{.sample = given.sample});
  };
}

/// Writes assistants for `specdec certify`: random ones for the random target, with a dense and an
/// ordered head.
void write_assistants(const std::filesystem::path& folder, uint64_t seed) {
  const auto target = load_model(folder / "target");
  AssistantShape shape{.hidden_size = 8, .intermediate_size = 8, .heads = 1, .layers = 2};
  save_assistant(*random_assistant(*target, shape, {.seed = seed}), *target, folder / "assistant",
                 at::kFloat);
  shape.clusters = target->config.vocab_size;
  shape.chosen = (shape.clusters + 1) / 2;
  save_assistant(*random_assistant(*target, shape, {.seed = seed + 1}), *target,
                 folder / "assistant_ordered", at::kFloat);
}

}  // namespace

void add_assistant(DrafterRegistry& drafters) {
  drafters.add(
      "gemma4_assistant",
      {.help = "Gemma 4's multi-token-prediction drafter: layers that read the target's keys and "
               "values",
       .source = "transformers' Gemma4Assistant",
       .page = "docs/assistant.md",
       .options = assistant_options().help(),
       .promise = Promise::kLossless,
       .prepare = prepare_assistant,
       .examples = {{"{type: gemma4_assistant, weights: <folder>/assistant, sample: true}"},
                    {"{type: gemma4_assistant, weights: <folder>/assistant, sample: false}"},
                    {"{type: gemma4_assistant, weights: <folder>/assistant_ordered, score_all: "
                     "false, sample: true}"}},
       .write_example_files = write_assistants});
}

}  // namespace specdec
