#include "experiments/components/cache_choice.h"

#include <fmt/format.h>

#include <utility>

#include "core/error.h"
#include "experiments/components/cache_checks.h"
#include "experiments/components/cache_codebook.h"
#include "experiments/components/cache_format.h"
#include "experiments/components/components.h"
#include "experiments/components/model_options.h"
#include "experiments/config/config_node.h"
#include "experiments/config/yaml_writer.h"
#include "kv/paged_kv.h"

namespace specdec {
namespace {

using MakeCache = std::function<std::unique_ptr<KvStore>(const CacheContext&)>;

/// `make` with errors, which name options alone, that begin with `name` where a context wants that.
template <class F>
MakeCache with_named_errors(const MakeCache& make, const std::string& name, const F& is_named) {
  if (!make) {
    return make;
  }
  return [=](const CacheContext& context) {
    try {
      return make(context);
    } catch (const Error& error) {
      throw Error(is_named(context) ? fmt::format("{}: {}", name, error.what()) : error.what());
    }
  };
}

std::string type_of(const ConfigNode& cache) {
  return cache.has("type") ? cache.get<std::string>("type", "") : "";
}

/// The type that Metal does not have: the cache's, or that of the one that it wraps; "" = neither.
std::string type_without_mps(const ConfigNode& cache, const Components& components) {
  if (!cache_facts(cache, components).on_mps) {
    return type_of(cache);
  }
  return cache.has("of") ? type_without_mps(cache.component("of"), components) : "";
}

std::shared_ptr<const CacheCodebook> read_codebook(const ConfigNode& cache,
                                                   const CacheChoice& choice) {
  cache.ignore("codebook");  // known, also where it is not given
  if (!cache.has("codebook")) {
    return nullptr;
  }
  const std::filesystem::path file = cache.require_path("codebook");
  if (choice.format != KvFormat::kQ3) {
    cache.fail("codebook", "holds the levels of q3: give format: q3, or leave it out");
    return nullptr;
  }
  std::shared_ptr<const CacheCodebook> codebook;
  if (!file.empty()) {  // else a mistake is noted
    note_error(cache, "codebook", [&] {
      codebook = std::make_shared<const CacheCodebook>(read_cache_codebook(file));
    });
  }
  if (codebook != nullptr && codebook->rotation != choice.rotation) {
    const auto name = [](KvRotation rotation) {
      return rotation == KvRotation::kHadamard ? "hadamard" : "none";
    };
    cache.fail("codebook",
               fmt::format("{} was calibrated with rotation: {}, and this cache has rotation: {}; "
                           "make it again with 'specdec score MODEL TEXT --calibrate FILE "
                           "--rotation {}', or change the rotation",
                           file.string(), name(codebook->rotation), name(choice.rotation),
                           name(choice.rotation)));
    return nullptr;
  }
  return codebook;
}

/// A target's cache: one that is lossy needs `lossy: true`, and no other has it.
void check_lossy(const ConfigNode& cache, const CacheChoice& choice, bool lossy) {
  if (!choice.make || (cache.has("format") && !choice.format)) {
    return;  // a mistake, which is noted
  }
  if (!choice.loss.empty() && !lossy) {
    cache.fail(choice.format ? "format" : "type",
               fmt::format("{} changes what the target sees of its keys and values, which makes "
                           "another model of it: say so with lossy: true, or choose an exact cache",
                           choice.format ? kv_format_name(*choice.format) : type_of(cache)));
  } else if (lossy && choice.loss.empty()) {
    cache.fail("lossy", "is true, but type and format of the cache are exact: leave it out");
  }
}

/// Type and options of a lossy cache: those that were given, and what a format keeps as it is.
std::shared_ptr<YamlTree> loss_tree(const ConfigNode& cache) {
  const std::shared_ptr<const YamlTree> all = cache.resolved();
  auto tree = YamlTree::map("");
  const auto add = [&](const std::string& key) {
    if (const auto* entry = all->find(key); entry != nullptr) {
      tree->set(key, "", entry->value->clone());
    }
  };
  add("type");
  for (const auto& entry : all->entries) {
    const bool keeps = entry.key == "exact_recent" && entry.value->text != "0";
    if (entry.key == "of") {
      tree->set(entry.key, "", loss_tree(cache.component("of")));
    } else if (entry.key != "lossy" && (keeps || cache.has(entry.key))) {
      add(entry.key);
    }
  }
  add("lossy");
  return tree;
}

CacheChoice read_choice(const ConfigNode& cache, const RunPlan& plan,
                        const std::optional<KvFormat>& format) {
  RunPlan own = plan;
  own.strategy = std::make_shared<StrategyNotes>();  // of the type, and of the one that it wraps
  const TierBudget tiers = tier_budget(cache, plan.components);
  CacheChoice choice{.tiers = tiers,
                     .format = format,
                     .rotation = read_rotation(cache, format),
                     .exact_recent = read_exact_recent(cache, format, tiers.is_given())};
  choice.codebook = read_codebook(cache, choice);
  choice.make = plan.components.caches.prepare(cache, own);
  for (const std::string& component : own.strategy->uncertified) {
    note_uncertified(plan, component);
  }
  choice.yaml = write_yaml(*cache.resolved());
  choice.no_mps = type_without_mps(cache, plan.components);
  if (choice.exact_recent > 0 && choice.tiers.is_given()) {
    const bool by_format = kv_key_group(*format) > 1;
    cache.fail(by_format ? "format" : "exact_recent",
               by_format ? fmt::format("{} is not for a cache of type tiered: choose another one, "
                                       "or type: paged",
                                       kv_format_name(*format))
                         : "is not for a cache of type tiered: leave it out, or choose type: "
                           "paged");
    choice.exact_recent = 0;
  }
  if (format || own.strategy->promise == Promise::kLossy) {
    choice.loss = write_yaml_flow(*loss_tree(cache));
  }
  return choice;
}

}  // namespace

KvStoreFactory CacheChoice::factory(KvFormat kv_dtype) const {
  const KvFormat chosen = format.value_or(kv_dtype);
  if (!make) {
    return paged_kv(kDefaultPageSize, chosen);
  }
  return [choice = *this, chosen](std::vector<LayerKv> layers, const KvStoreOptions& store) {
    if (choice.codebook != nullptr) {
      choice.codebook->give_to(layers);
    }
    return choice.make({std::move(layers), store, chosen, choice.rotation, choice.exact_recent});
  };
}

void CacheChoice::name_errors(const std::string& name) {
  make = with_named_errors(make, name, [](const CacheContext& context) {
    return !context.store.device.is_meta();  // else the config's mistake is noted
  });
}

void CacheChoice::check_model(const std::string& fingerprint) const {
  if (codebook != nullptr) {
    codebook->check_model(fingerprint);
  }
}

CacheChoice CacheChoice::beside_target() const {
  CacheChoice other = *this;
  other.codebook = nullptr;
  if (make) {
    other.make = [make = make](const CacheContext& context) {
      CacheContext plain = context;
      plain.traced = false;
      return make(plain);
    };
  }
  return other;
}

std::string cache_yaml(const std::string& text) {
  if (text == "null" || text == "~") {  // which YAML takes for nothing
    return "{type: '" + text + "'}";
  }
  const bool is_name = text.find_first_of("{}[]:,") == std::string::npos;
  return is_name ? "{type: " + text + "}" : text;
}

EntryFacts<KvStore> cache_facts(const ConfigNode& cache, const Components& components) {
  const auto found = components.caches.entries().find(type_of(cache));
  return found == components.caches.entries().end() ? EntryFacts<KvStore>() : found->second.facts;
}

TierBudget tier_budget(const ConfigNode& cache, const Components& components) {
  const EntryFacts<KvStore> facts = cache_facts(cache, components);
  return facts.tiers ? facts.tiers(cache, components) : TierBudget();
}

CacheChoice read_cache(const ConfigNode& model, const RunPlan& plan) {
  model.refuse_old_name("max_pages", "cache: {type: paged, max_pages: ...}");
  model.ignore("cache");  // known, also where it is not given
  if (!model.has("cache")) {
    return {};
  }
  const ConfigNode node = model.component("cache");
  const auto format = read_cache_format(node);
  node.ignore("lossy");  // known, also where it is not given
  const bool lossy = node.has("lossy") && node.get<bool>("lossy", false);
  CacheChoice choice = read_choice(node, plan, format);
  check_lossy(node, choice, lossy);
  return choice;
}

std::optional<CacheChoice> read_draft_cache(const ConfigNode& drafter, const RunPlan& plan) {
  drafter.ignore("cache");
  if (!drafter.has("cache")) {
    return std::nullopt;
  }
  const ConfigNode node = drafter.component("cache");
  if (node.has("lossy")) {
    node.ignore("lossy");
    node.fail("lossy",
              "is for a target's cache: a drafter's may lose what it likes, since the "
              "target verifies; leave it out");
  }
  CacheChoice choice = read_choice(node, plan, read_cache_format(node));
  if (plan.target_options != nullptr) {
    check_cache(drafter, choice, *plan.target_options);
  }
  choice.name_errors(fmt::format("{}: {}.cache", node.place(), drafter.path()));
  return choice;
}

OptionHelp draft_cache_help(const std::string& fallback) {
  return {"cache", fallback, "{type: paged, format: q4}",
          "a cache of its own, of any type and format: the output stays the target's"};
}

CacheChoice parse_cache(const std::string& text, const Components& components,
                        const std::string& flag) {
  if (text.empty()) {
    return {};
  }
  const auto errors = std::make_shared<ConfigErrors>();
  const auto model = YamlTree::map("--cache");
  model->set("cache", flag, parse_yaml(cache_yaml(text), flag + " " + text, false));
  ModelCatalog models;
  const RunPlan plan{.components = components, .models = models, .sampling = SamplingParams()};
  CacheChoice choice = read_cache(ConfigNode(model, errors), plan);
  errors->throw_if_any();
  choice.make = with_named_errors(choice.make, flag + " " + text,
                                  [](const CacheContext& /*context*/) { return true; });
  return choice;
}

}  // namespace specdec
