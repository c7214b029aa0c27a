#include "experiments/components/cache_checks.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "core/draft.h"
#include "core/error.h"
#include "core/kernels/metal/metal_formats.h"
#include "experiments/components/cache_room.h"
#include "experiments/components/components.h"
#include "experiments/components/model_options.h"
#include "experiments/config/config_node.h"
#include "experiments/config/yaml_tree.h"

namespace specdec {
namespace {

/// Formats and exact tokens that dtype or device rule out, and rotations with them.
void check_format(const ConfigNode& cache, const CacheChoice& choice, const ModelOptions& options) {
  if (!choice.format) {
    return;
  }
  const bool on_mps = options.device == "mps";
  const bool is_missing = on_mps && !mps::metal_has(*choice.format);
  if (options.dtype == "float64" || is_missing) {
    cache.fail(
        "format",
        fmt::format("{} is for float32 activations on the CPU and CUDA, but {}; leave it out, or "
                    "change that",
                    kv_format_name(*choice.format),
                    is_missing ? "device is mps" : "dtype is float64"));
  } else if (on_mps && choice.exact_recent > 0) {
    cache.fail("exact_recent",
               "is for the CPU and CUDA, but device is mps; leave it out, or choose device: cpu");
  }
}

/// Types that the device rules out.
void check_type(const ConfigNode& cache, const CacheChoice& choice, const std::string& device) {
  const bool traces_tiers = cache.has("of") && choice.tiers.is_given();
  const auto fail = [&](const std::string& what, const char* where) {
    cache.fail("type", fmt::format("{} is for {}, but device is {}; choose another cache, or "
                                   "device: cpu",
                                   what, where, device));
  };
  if (traces_tiers && device != "cpu") {
    fail("a trace of one with tiers", "the CPU");
  } else if (!choice.no_mps.empty() && device == "mps") {
    fail(choice.no_mps, "the CPU and CUDA");
  }
}

/// The target's cache, with as many pages as on its device: one without memory stands for a GPU,
/// and for tiers, which say how many they have.
std::unique_ptr<KvStore> target_store(const ModelFiles& target, const ModelOptions& options) {
  const CacheChoice cache = options.cache.beside_target();  // not traced
  const bool has_memory = options.device == "cpu" && !cache.tiers.is_given();
  return planned_cache("", cache, target.plan, target.config, options)
      .make_on(has_memory ? at::kCPU : at::kMeta);
}

}  // namespace

void check_cache(const ConfigNode& model, const CacheChoice& choice, const ModelOptions& options) {
  const ConfigNode cache = model.component("cache");
  check_type(cache, choice, options.device);
  if (choice.tiers.host_bytes > 0 && options.device == "cpu") {
    const ConfigNode tiers = cache.has("of") ? cache.component("of") : cache;
    tiers.fail("host_megabytes",
               "is for a GPU: on the CPU memory_megabytes are the host's. Leave it out");
  }
  check_format(cache, choice, options);
}

void require_cache(const CacheChoice& choice, const ModelOptions& options,
                   const std::string& flag) {
  if (choice.yaml.empty()) {
    return;
  }
  const auto errors = std::make_shared<ConfigErrors>();
  const auto model = YamlTree::map(flag);
  model->set("cache", flag, parse_yaml(choice.yaml, flag, false));
  check_cache(ConfigNode(model, errors), choice, options);
  errors->throw_if_any();
}

void check_cache_layers(const ConfigNode& owner, const CacheChoice& choice,
                        const std::vector<LayerPlan>& plan, const TransformerConfig& config,
                        const ModelOptions& options) {
  const char* key = owner.has("cache") ? "cache" : owner.has("weights") ? "weights" : "type";
  note_error(owner, key, [&] { (void)planned_cache("", choice, plan, config, options).measure(); });
}

void check_draft_layers(const ConfigNode& drafter, const RunPlan& run,
                        const std::vector<LayerPlan>& plan, const TransformerConfig& config,
                        const std::optional<CacheChoice>& own) {
  if (run.target_options == nullptr) {
    return;
  }
  const CacheChoice choice = own.value_or(run.target_options->cache.beside_target());
  check_cache_layers(drafter, choice, plan, config, *run.target_options);
  const std::string key = own ? drafter.path() + ".cache" : "model.cache";
  PlannedCache planned = planned_cache(key, choice, plan, config, *run.target_options);
  planned.is_own = own.has_value();
  planned.drafts = true;
  run.strategy->draft_caches.push_back(std::move(planned));
}

void check_beam_rows(const ConfigNode& strategy, const RunPlan& run, int64_t beams) {
  const bool grow = run.max_new_tokens > 1 && !run.grammar;  // else fewer may be open
  if (run.target == nullptr || run.target_options == nullptr || !grow) {
    return;
  }
  std::unique_ptr<KvStore> store;
  try {
    store = target_store(*run.target, *run.target_options);
  } catch (const Error&) {
    return;  // noted of the cache
  }
  note_error(strategy, "num_beams", [&] {
    store->extend({.count = 1});
    store->commit(0, chain_path(1));
    std::vector<RowId> rows;
    for (int64_t beam = 0; beam < beams; ++beam) {
      rows.push_back(store->fork(0, 1));
    }
    store->extend({.count = beams, .rows = rows});
  });
}

std::string tiers_beside_target(const CacheChoice& target, const std::string& device) {
  return !target.tiers.is_given() || device == "cpu"
             ? ""
             : fmt::format(
                   "a head or draft model beside the target without a cache of its own has "
                   "tiers like the target's: {} MiB more of the GPU's memory each",
                   target.tiers.memory_bytes >> 20U);
}

void check_branch_levels(const ConfigNode& tree, const RunPlan& plan, int64_t levels) {
  if (plan.target_options == nullptr || !plan.target_options->cache.format) {
    return;
  }
  const CacheChoice& cache = plan.target_options->cache;
  if (kv_key_group(*cache.format) > 1 && levels >= cache.exact_recent) {
    tree.fail(fmt::format(
        "{} levels are too deep for the target's cache in {}: with exact_recent {} branches have "
        "{} at most. Make it shallower, or raise exact_recent",
        levels, kv_format_name(*cache.format), cache.exact_recent, cache.exact_recent - 1));
  }
}

void check_draft_levels(const ConfigNode& drafter, const RunPlan& plan, const CacheChoice& cache,
                        int64_t fed) {
  const int64_t levels = plan.draft->branch_levels;
  const int64_t most = cache.exact_recent + 1 - fed;
  if (cache.format && kv_key_group(*cache.format) > 1 && levels > most) {
    drafter.fail("cache",
                 fmt::format("a tree of {} levels is too deep for this cache in {}: with "
                             "exact_recent {} the drafter takes trees of {} levels at most. Make "
                             "the tree shallower, or raise exact_recent",
                             levels, kv_format_name(*cache.format), cache.exact_recent, most));
  }
}

}  // namespace specdec
