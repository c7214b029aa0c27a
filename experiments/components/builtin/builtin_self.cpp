#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/families/model.h"
#include "core/transformer/adapters/lora_config.h"
#include "core/transformer/adapters/lora_modules.h"
#include "core/transformer/adapters/lora_writer.h"
#include "decoders/drafters/self_drafter.h"
#include "experiments/components/builtin/builtin.h"
#include "experiments/components/cache_checks.h"
#include "kv/paged_kv.h"

namespace specdec {
namespace {

using LayerNumbers = std::vector<int64_t>;

bool holds_layer(const LayerNumbers& layers, int64_t layer) {
  return std::find(layers.begin(), layers.end(), layer) != layers.end();
}

/// Some layers of a model, renumbered.
std::shared_ptr<const TransformerWeights> weights_of_layers(const TransformerWeights& whole,
                                                            const LayerNumbers& layers) {
  auto weights = std::make_shared<TransformerWeights>(whole);
  weights->config.num_layers = std::ssize(layers);
  weights->plan = select_layers(whole.plan, layers);
  weights->layers.clear();
  for (const int64_t layer : layers) {
    weights->layers.push_back(whole.layers.at(static_cast<size_t>(layer)));
  }
  return weights;
}

/// An adapter for weights_of_layers of its base.
std::shared_ptr<const LoraAdapter> adapter_of_layers(
    const LoraAdapter& adapter, const LayerNumbers& layers,
    std::shared_ptr<const TransformerWeights> fewer) {
  std::vector<LoraModule> before = lora_modules(*adapter.base);
  std::erase_if(before, [&layers](const LoraModule& module) {
    return module.layer >= 0 && !holds_layer(layers, module.layer);
  });
  const std::vector<LoraModule> after = lora_modules(*fewer);
  SPECDEC_CHECK(before.size() == after.size(), "{} modules became {}", before.size(), after.size());
  auto moved = std::make_shared<LoraAdapter>(adapter);
  moved->base = std::move(fewer);
  for (LoraPair& pair : moved->pairs) {
    const auto found =
        std::find_if(before.begin(), before.end(), [&pair](const LoraModule& module) {
          return module.matrix == pair.matrix && module.first == pair.first;
        });
    pair.matrix = after.at(static_cast<size_t>(found - before.begin())).matrix;
  }
  return moved;
}

/// A cache of which attention reads as many bytes as the upper halves of a hierarchical one have.
KvStoreFactory upper_half_store() { return paged_kv(kDefaultPageSize, KvFormat::kQ4); }

/// Some of the target's layers as a model of their own, which a cost curve can be measured of.
std::shared_ptr<LanguageModel> model_of_layers(BuildContext& context,
                                               const TransformerWeights& target,
                                               const LayerNumbers& layers,
                                               const SelfDrafterOptions& options) {
  const auto weights = weights_of_layers(target, layers);
  auto model = std::make_shared<TransformerModel>(
      weights, options.upper_half ? upper_half_store() : context.models.kv_store(),
      TransformerOptions{.max_length = context.target.max_length(),
                         .graphs = context.models.options().cuda_graphs,
                         .prefill_graphs = context.models.options().prefill_graphs});
  if (options.adapters != nullptr) {
    for (const ScaledAdapter& one : options.adapters->adapters()) {
      model->push_adapter({adapter_of_layers(*one.adapter, layers, weights), one.scale});
    }
  }
  return model;
}

/// Throws ConfigError where one of `layers` reads the keys and values of a layer that is none.
void check_sources(const LayerNumbers& layers, const std::vector<LayerPlan>& plan) {
  for (const int64_t layer : layers) {
    const int64_t source = plan.at(static_cast<size_t>(layer)).kv_source;
    if (source >= 0 && !holds_layer(layers, source)) {
      throw ConfigError(fmt::format(
          "layer {} reads the keys and values of layer {}, which is left out: keep that one, or "
          "leave out both",
          layer, source));
    }
  }
}

[[noreturn]] void refuse_adapted(const std::string& adapter, const std::string& what,
                                 const LayerNumbers& layers) {
  throw ConfigError(
      fmt::format("{}: adapts {}, which does not draft: layers {} do. Give an adapter of these "
                  "layers, or let the layers draft that it was trained for",
                  adapter, what, fmt::join(layers, ", ")));
}

/// Throws ConfigError where an adapter's config names a layer that does not draft; nobody knows of
/// those where `layers` is empty.
void check_adapter_config(const AdapterChoice& choice, const LayerNumbers& layers) {
  for (const int64_t layer : load_lora_config(choice.path).layers) {
    if (!layers.empty() && !holds_layer(layers, layer)) {
      refuse_adapted(choice.path.string(), fmt::format("layer {}", layer), layers);
    }
  }
}

/// Throws ConfigError where an adapter changes a matrix of a layer that does not draft. Returns
/// what a user should know of an adapter that ends early.
std::string check_adapter(const LoraAdapter& adapter, const LayerNumbers& layers) {
  int64_t last = -1;
  for (const LoraModule& module : lora_modules(*adapter.base)) {
    const bool adapted =
        std::any_of(adapter.pairs.begin(), adapter.pairs.end(), [&module](const LoraPair& pair) {
          return pair.matrix == module.matrix && pair.first == module.first;
        });
    if (adapted && module.layer >= 0 && !holds_layer(layers, module.layer)) {
      refuse_adapted(adapter.name, module.name, layers);
    }
    last = adapted ? std::max(last, module.layer) : last;
  }
  return last >= 0 && last < layers.back()
             ? fmt::format(
                   "{}: adapts no layer behind layer {}, but layer {} drafts too: was it "
                   "trained for another exit?",
                   adapter.name, last, layers.back())
             : "";
}

OptionTable<SelfDrafterOptions> self_options() {
  return OptionTable<SelfDrafterOptions>()
      .add("layers", &SelfDrafterOptions::layers,
           "how many of the target's first layers draft (early exit); 0 = all, without 'skip'",
           {0, 1024})
      .add("skip", &SelfDrafterOptions::skip,
           "layers that are left out when drafting, numbered from 0", {0, 1023})
      .describe({{"adapter", "none", "a folder, or {path: ..., scale: 1}",
                  "LoRA of these layers that drafts pass and the target does not"}})
      .describe({{"cache", "the target's", "{type: paged, format: q4}",
                  "a cache of its own with less to read, so not an exact one: a format, or window "
                  "or compressed; the output stays the target's"}})
      .add("upper_half", &SelfDrafterOptions::upper_half,
           "drafts read the upper 4 bits alone of the target's cache, of format hierarchical")
      .add("sample", &SelfDrafterOptions::sample, kSampleMeaning, {}, kSampleDefault);
}

/// Notes a mistake where drafts read the upper halves of a target's cache that has none.
void check_upper_half(const ConfigNode& node, const RunPlan& plan) {
  if (plan.target_options != nullptr &&
      plan.target_options->cache.format != KvFormat::kHierarchical) {
    node.fail("upper_half",
              "reads the upper halves of the target's cache, which has none: give the model "
              "cache: {type: paged, format: hierarchical, lossy: true}");
  }
}

/// Notes a mistake where all layers of the target draft, with an adapter that it does not have.
void check_all_layers(const ConfigNode& node, const RunPlan& plan, const SelfDrafterOptions& given,
                      const LayerNumbers& layers) {
  const bool all = plan.target == nullptr ? given.layers == 0 && given.skip.empty()
                                          : std::ssize(layers) == plan.target->config.num_layers;
  if (given.upper_half && all) {
    node.fail("adapter",
              "is for some of the target's layers, but all of them draft: give 'layers' or 'skip' "
              "beside upper_half, or leave the adapter out");
  }
}

/// Notes a mistake where this cache takes no branches behind a beam's output: behind the prompt,
/// which the target's first row holds, drafts evaluate it anew.
void check_beams(const ConfigNode& node, const RunPlan& plan, const CacheChoice& cache) {
  if (plan.beams && plan.draft->branch_levels > 0 && cache.format &&
      kv_key_group(*cache.format) > 1 && plan.max_new_tokens > cache.exact_recent) {
    node.fail(node.has("cache") ? "cache" : "type",
              fmt::format("drafts of beams evaluate all that a beam has written, and branches "
                          "behind more than exact_recent ({}) tokens cannot be read in {}: raise "
                          "exact_recent to max_new_tokens ({}), or choose another format or "
                          "drafter",
                          cache.exact_recent, kv_format_name(*cache.format), plan.max_new_tokens));
  }
}

/// All of the target's layers, over a cache of their own that rounds.
DrafterRegistry::Make prepare_cached_self(const ConfigNode& node, const RunPlan& plan,
                                          const SelfDrafterOptions& given,
                                          const std::optional<CacheChoice>& cache) {
  const ConfigNode own = node.child("cache");
  const bool is_mistaken =  // which is noted
      !cache->make || ((own.has("format") || own.has("exact_recent")) && !cache->format);
  if (given.layers > 0 || !given.skip.empty() || given.upper_half || node.has("adapter")) {
    node.fail("cache",
              "is for all layers of the target, which draft with a cache of their own: leave out "
              "layers, skip, upper_half and adapter, or leave out the cache");
  } else if (!is_mistaken && cache->loss.empty()) {
    node.fail("cache",
              "is exact, so drafts would cost what they save: give a format, as in {type: paged, "
              "format: q4}, or a type that reads less, as {type: window}");
  }
  if (plan.target != nullptr &&
      std::any_of(plan.target->plan.begin(), plan.target->plan.end(), is_recurrent)) {
    node.fail("cache",
              "follows the target's keys and values, and a model with recurrent layers has states "
              "beside them: give layers or skip in place of cache");
  } else if (plan.target != nullptr) {
    check_draft_layers(node, plan, plan.target->plan, plan.target->config, cache);
  }
  check_draft_levels(node, plan, *cache, 1);
  check_beams(node, plan, *cache);
  const auto folder = plan.target == nullptr ? std::filesystem::path() : plan.target->folder;
  return [folder, cache, given](BuildContext& context) {
    if (!context.models.options().adapters.empty()) {
      context.models.note_warning(
          "self: with a cache of its own it drafts without the target's adapters. The output stays "
          "correct, but fewer drafts may be accepted.");
    }
    std::unique_ptr<LanguageModel> copy = context.models.load(folder, {}, cache);
    context.draft_model = copy.get();
    context.draft_model_name = fmt::format("{} (cache {})", folder.string(), cache->loss);
    return std::make_unique<SelfDrafter>(context.target, given, std::move(copy));
  };
}

DrafterRegistry::Make prepare_self(const ConfigNode& node, const RunPlan& plan) {
  SelfDrafterOptions given = self_options().read(node);
  given.own_cache = node.path() + ".cache";
  const std::optional<AdapterChoice> adapter = read_adapter(node);
  check_sample(node, plan, given.sample);
  if (const auto cache = read_draft_cache(node, plan)) {
    return prepare_cached_self(node, plan, given, cache);
  }
  if (given.upper_half) {
    check_upper_half(node, plan);
  }
  if (plan.target_options != nullptr) {
    check_beams(node, plan, plan.target_options->cache);
  }
  std::filesystem::path folder;
  LayerNumbers layers;
  const bool is_read = !node.is_list("layers");  // else a mistake, which is noted
  if (plan.target != nullptr && is_read) {
    folder = plan.target->folder;
    note_error(node, given.skip.empty() ? "layers" : "skip", [&] {
      layers = drafting_layers(given, plan.target->config.num_layers);
      check_sources(layers, plan.target->plan);
    });
  }
  if (adapter && !adapter->path.empty()) {
    check_all_layers(node, plan, given, layers);
    note_error(node, "adapter", [&] { check_adapter_config(*adapter, layers); });
  }
  // Kept as long as the strategy can be built: the context only borrows it.
  const auto measured = std::make_shared<std::shared_ptr<LanguageModel>>();
  return [=](BuildContext& context) {
    const auto target = context.models.weights(folder);
    SelfDrafterOptions options = given;
    context.draft_model_name = fmt::format("{} ({} layers{})", folder.string(), layers.size(),
                                           given.upper_half ? ", upper halves" : "");
    if (adapter) {
      options.adapters = context.models.draft_adapter(folder, *adapter);
      context.models.note_warning(
          check_adapter(*options.adapters->adapters().front().adapter, layers));
      context.draft_model_name += " with " + adapter_text(*adapter);
    }
    *measured = model_of_layers(context, *target, layers, options);
    context.draft_model = measured->get();
    return std::make_unique<SelfDrafter>(context.target, options);
  };
}

/// Writes an adapter for `specdec certify`: a random one of the random target's first layer.
void write_adapter(const std::filesystem::path& folder, uint64_t seed) {
  const auto target = load_model(folder / "target");
  save_lora(random_lora(*target, {.rank = 2, .alpha = 2.0, .layers = 1}, seed), folder / "lora",
            at::kFloat);
}

}  // namespace

void add_self_drafter(DrafterRegistry& drafters) {
  drafters.add(
      "self",
      {.help = "the target's own first layers, or all but some, with its norm and head; or all of "
               "them with a lossy cache",
       .source = "LayerSkip, arXiv:2404.16710; Draft & Verify, arXiv:2309.08168; QuantSpec, "
                 "arXiv:2502.10424",
       .page = "docs/self.md",
       .options = self_options().help(),
       .promise = Promise::kLossless,
       .prepare = prepare_self,
       .examples =
           {{"{type: self, layers: 1, sample: true}"},
            {"{type: self, layers: 1, sample: false}"},
            {"{type: self, skip: [1], sample: true}"},
            {"{type: self, cache: {type: window, sink: 1, recent: 1}, sample: true}"},
            {"{type: self, cache: {type: compressed, chunk: 2, recent: 1, sink: 1}, sample: "
             "true}"},
            {"{type: self, layers: 1, adapter: <folder>/lora, sample: true}"}},
       .write_example_files = write_adapter});
}

}  // namespace specdec
