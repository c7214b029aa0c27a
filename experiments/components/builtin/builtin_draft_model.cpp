#include <fmt/format.h>

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/prefix_cached_model.h"
#include "decoders/drafters/draft_model.h"
#include "experiments/components/builtin/builtin.h"
#include "experiments/components/cache_checks.h"

namespace specdec {
namespace {

OptionTable<WeightsOptions> draft_model_options() {
  return weights_options("its checkpoint folder")
      .describe({draft_cache_help("as the target's")})
      .describe(format_choice_help());
}

/// What a draft model in `folder` has of its own: formats, and a cache beside the run's.
struct OwnDraftModel {
  std::filesystem::path folder;
  FormatChoice formats;
  std::optional<CacheChoice> cache;
};

/// Notes as a mistake of a draft model's key that its activations, by `check`, are not for its
/// weights.
void check_draft_activations(const ConfigNode& node, const FormatChoice& formats,
                             const std::function<void()>& check) {
  if (formats.activations) {
    note_error(node, "activations", check);
    return;
  }
  try {
    check();
  } catch (const ConfigError& error) {
    node.fail("weights",
              fmt::format("model.activations are the draft model's too: {}, or put its weights in "
                          "blocks (specdec convert --dtype int8), or give it activations: float32",
                          error.what()));
  }
}

/// `options`: those of the draft model, but for its cache.
void check_draft_formats(const ConfigNode& node, const OwnDraftModel& own, ModelOptions options) {
  if (!own.formats.is_given()) {
    return;  // as the target's, whose mistakes are noted
  }
  const std::optional<KvFormat> shared = options.cache.format;
  if (own.cache) {
    options.cache = *own.cache;
  } else if (shared && own.formats.dtype == "float64") {
    node.fail("dtype", fmt::format("is float64, but its cache is like the target's, whose format "
                                   "{} is for float32 activations: give it a cache of its own",
                                   kv_format_name(*shared)));
  }
  if (!own.formats.kv_dtype && options.cache.format) {
    options.kv_dtype.clear();  // the target's, which the format replaces
  }
  check_formats(node, options);
  check_device_formats(node, own.formats, options);
  check_draft_activations(node, own.formats, [&] { check_activations(options); });
}

/// How it is loaded: with its own cache, or one like the target's.
ModelOptions draft_options(const OwnDraftModel& own, ModelOptions loading) {
  loading.cache = own.cache.value_or(loading.cache.beside_target());
  return loading;
}

std::unique_ptr<Drafter> draft_with(BuildContext& context, const OwnDraftModel& own,
                                    const DraftModelOptions& options) {
  std::unique_ptr<LanguageModel> model = context.models.load(
      own.folder, {}, own.cache.value_or(context.models.options().cache.beside_target()),
      own.formats);
  if (context.keeps_prefixes) {
    model = std::make_unique<PrefixCachedModel>(std::move(model));
  }
  context.draft_model = model.get();
  context.draft_model_name = own.folder.string();
  if (own.formats.is_given()) {  // what its forwards read depends on them and on the cache
    context.draft_model_name += fmt::format(" ({})", own.formats.text());
  }
  if (own.cache && !own.cache->loss.empty()) {
    context.draft_model_name += fmt::format(" (cache {})", own.cache->loss);
  }
  return std::make_unique<DraftModelDrafter>(std::move(model), options);
}

DrafterRegistry::Make prepare_draft_model(const ConfigNode& node, const RunPlan& plan) {
  const WeightsOptions given = draft_model_options().read(node);
  OwnDraftModel own{.folder = given.weights, .formats = read_format_choice(node), .cache = {}};
  const bool is_known = plan.target_options != nullptr;
  const ModelOptions loading = own.formats.over(is_known ? *plan.target_options : ModelOptions{});
  RunPlan draft_plan = plan;
  draft_plan.target_options = is_known ? &loading : nullptr;
  own.cache = read_draft_cache(node, draft_plan);
  check_draft_formats(node, own, loading);
  DraftModelOptions options{.sample = given.sample};
  options.own_cache = own.cache ? node.path() + ".cache" : "";
  check_sample(node, plan, given.sample);
  if (!own.folder.empty() && plan.target != nullptr) {
    options.vocab_size = plan.target->config.vocab_size;
    note_error(node, "weights", [&] {
      const auto& draft = plan.models.read(own.folder);
      const auto mismatch = vocabulary_mismatch(*plan.target, draft);
      if (!mismatch.empty()) {
        node.fail("weights", mismatch + "; a draft model must share the target's tokenizer");
      } else if (draft.config.bidirectional) {
        node.fail("weights",
                  "is an encoder (bidirectional attention), which cannot decode; 'specdec embed' "
                  "gives its embeddings");
      } else {
        check_draft_layers(node, draft_plan, draft.plan, draft.config, own.cache);
        note_draft_model(node, plan, draft, draft_options(own, loading));
        if (is_known || own.formats.dtype) {
          check_draft_activations(node, own.formats,
                                  [&] { check_activations(loading, *draft.open); });
        }
      }
    });
  }
  if (own.cache) {
    check_draft_levels(node, plan, *own.cache, 0);
  }
  return [own, options](BuildContext& context) { return draft_with(context, own, options); };
}

}  // namespace

void add_draft_model(DrafterRegistry& drafters) {
  drafters.add("draft_model",
               {.help = "a smaller model with the same tokenizer decodes ahead",
                .source = "Leviathan et al., 2023, arXiv:2211.17192",
                .page = "docs/trees.md",
                .options = draft_model_options().help(),
                .promise = Promise::kLossless,
                .prepare = prepare_draft_model,
                .examples = {{"{type: draft_model, weights: <folder>/draft, sample: true}"},
                             {"{type: draft_model, weights: <folder>/draft, sample: false}"},
                             {"{type: draft_model, weights: <folder>/recurrent_draft, "
                              "cache: {type: paged, state_every: 2}}"}}});
}

}  // namespace specdec
