#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <utility>

#include "core/error.h"
#include "core/formats/writable_file.h"
#include "experiments/components/builtin/builtin.h"
#include "experiments/components/cache_format.h"
#include "kv/tracing_store.h"

namespace specdec {
namespace {

CacheRegistry::Make prepare_tracing(const ConfigNode& node, const RunPlan& plan) {
  const ConfigNode traced = node.component("of", "paged");
  for (const char* key : {"format", "rotation", "codebook", "exact_recent", "lossy"}) {
    if (traced.has(key)) {
      traced.ignore(key);
      traced.fail(key, "belongs beside 'of', not under it: {type: tracing, of: ..., format: ...}");
    }
  }
  if (traced.get<std::string>("type", "") == "tracing") {
    traced.fail("type",
                "is a trace itself, which cannot be traced again: name the cache, as in of: {type: "
                "paged}, or leave 'of' out");
  } else if (!cache_facts(traced, plan.components).traceable) {
    traced.fail("type",
                "cannot be traced: attention reads other keys than those of tokens there. Trace "
                "another type");
  }
  const CacheRegistry::Make make = plan.components.caches.prepare(traced, plan);
  const bool is_tiered = tier_budget(traced, plan.components).is_given();
  const std::filesystem::path events = node.output_path("events");
  if (!events.empty()) {
    note_error(node, "events", [&] { check_can_write(events); });
  }
  if (!make) {
    return {};  // its mistake is noted
  }
  return [make, events, is_tiered](const CacheContext& context) -> std::unique_ptr<KvStore> {
    if (context.traced && context.store.device.is_mps()) {
      throw Error("a cache of type tracing is for the CPU and CUDA: choose another type");
    }
    if (context.traced && is_tiered && context.store.device.is_cuda()) {
      throw Error(
          "a trace of a cache of type tiered is for the CPU: on a GPU pages have other numbers in "
          "each forward. Choose another type");
    }
    auto store = make(context);
    if (!context.traced) {
      return store;
    }
    const bool holds_numbers = !context.store.device.is_meta();
    return std::make_unique<TracingStore>(
        std::move(store), std::ssize(context.layers),
        events.empty() || !holds_numbers ? nullptr : std::make_unique<TraceFile>(events));
  };
}

TierBudget traced_budget(const ConfigNode& node, const Components& components) {
  return node.has("of") ? tier_budget(node.component("of"), components) : TierBudget();
}

}  // namespace

void add_tracing_cache(CacheRegistry& caches) {
  caches.add(
      "tracing",
      {.help = "another cache, the same bits, that counts what forwards write and read by "
               "layer, page and age: slow, for a figure of how far back attention looks",
       .page = "docs/caches.md",
       .options = with_format(
           {{"of", "{type: paged}", "a name or a map",
             "the type and options of the cache that is traced, or its type alone: of: contiguous"},
            {"events", "none", "a new file",
             "where each write, read and change of a row goes as a line of JSON; where it exists, "
             "its name gets a number"}}),
       .promise = Promise::kLossless,
       .prepare = prepare_tracing,
       .examples = {{"{type: tracing}"},
                    {"{type: tracing, of: {type: paged, page_size: 4, window_slack: 16}}"}},
       .facts = {.on_mps = false, .tiers = traced_budget}});
}

}  // namespace specdec
