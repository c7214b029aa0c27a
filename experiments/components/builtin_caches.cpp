#include <fmt/format.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/error.h"
#include "experiments/components/builtin.h"
#include "experiments/config/yaml_writer.h"
#include "kv/kv_cache.h"
#include "kv/tracing_store.h"

namespace specdec {
namespace {

constexpr int64_t kMostPages = int64_t{1} << 30;
constexpr int64_t kMostSlack = int64_t{1} << 20;
constexpr int64_t kMostMegabytes = int64_t{1} << 30;

KvCacheOptions cache_options(const CacheContext& context) {
  return {.dtype = context.store.dtype,
          .format = context.format,
          .rotation = context.rotation,
          .device = context.store.device,
          .max_length = context.store.max_length};
}

struct PagedOptions {
  int64_t page_size = kDefaultPageSize;
  int64_t max_pages = 0;
  int64_t megabytes = 0;
  int64_t window_slack = 0;
};

OptionTable<PagedOptions> paged_options() {
  using Options = PagedOptions;
  return OptionTable<Options>()
      .add("page_size", &Options::page_size, "tokens of a page; multiples of 16 are read fastest",
           {1, 1 << 20})
      .add("max_pages", &Options::max_pages,
           "most pages; 0: no limit on the CPU, one row of max_length on a GPU", {0, kMostPages})
      .add("megabytes", &Options::megabytes,
           "most memory of the pages of all layers, in MiB, beside max_pages; 0: no limit",
           {0, kMostMegabytes})
      .add("window_slack", &Options::window_slack,
           "sliding layers give back what lies so many tokens behind their window: at least the "
           "largest draft + 1; 0: they keep all",
           {0, kMostSlack});
}

CacheRegistry::Make prepare_paged(const ConfigNode& node, const RunPlan&) {
  const PagedOptions given = paged_options().read(node);
  return [given](const CacheContext& context) {
    KvCacheOptions options = cache_options(context);
    options.page_size = given.page_size;
    options.max_pages = given.max_pages;
    options.max_bytes = given.megabytes << 20U;
    options.window_slack = given.window_slack;
    return std::make_unique<KvCache>(context.layers, options);
  };
}

struct TieredOptions {
  int64_t memory_megabytes = 256;
  int64_t megabytes = 1024;
  std::filesystem::path disk = {};
  int64_t page_size = kDefaultPageSize;
};

OptionTable<TieredOptions> tiered_options() {
  using Options = TieredOptions;
  return OptionTable<Options>()
      .add("memory_megabytes", &Options::memory_megabytes,
           "most memory of the pages of all layers, in MiB", {1, kMostMegabytes})
      .add("megabytes", &Options::megabytes,
           "room on the disk for the pages of all layers, in MiB, taken when the cache is made",
           {1, kMostMegabytes})
      .describe(
          {{"disk", "the system's", "a folder",
            "where the file of pages lies, which has no name there and ends with the program; "
            "by default where the system keeps temporary files"}})
      .add("page_size", &Options::page_size, "tokens of a page; multiples of 16 are read fastest",
           {1, 1 << 20});
}

CacheRegistry::Make prepare_tiered(const ConfigNode& node, const RunPlan&) {
  TieredOptions given = tiered_options().read(node);
  node.ignore("disk");  // known, also where it is not given
  if (node.has("disk")) {
    given.disk = node.require_path("disk");
  }
  if (given.memory_megabytes > given.megabytes) {
    node.fail(
        "memory_megabytes",
        fmt::format("{} is more than megabytes ({}), the room for all pages: nothing would go "
                    "to disk. Raise megabytes, lower memory_megabytes, or choose "
                    "type: paged",
                    given.memory_megabytes, given.megabytes));
  }
  return [given](const CacheContext& context) {
    KvCacheOptions options = cache_options(context);
    options.page_size = given.page_size;
    options.max_bytes = given.megabytes << 20U;
    options.memory_bytes = given.memory_megabytes << 20U;
    options.disk = given.disk;
    return std::make_unique<KvCache>(context.layers, options);
  };
}

struct ContiguousOptions {
  int64_t max_rows = 0;
};

OptionTable<ContiguousOptions> contiguous_options() {
  return OptionTable<ContiguousOptions>().add(
      "max_rows", &ContiguousOptions::max_rows,
      "most rows (one, and one a beam) and snapshots; 0: no limit on the CPU, one on a GPU",
      {0, kMostPages});
}

CacheRegistry::Make prepare_contiguous(const ConfigNode& node, const RunPlan&) {
  const int64_t max_rows = contiguous_options().read(node).max_rows;
  return [max_rows](const CacheContext& context) {
    constexpr int64_t kVector = 16;  // attention reads whole vectors of a page that is a multiple
    KvCacheOptions options = cache_options(context);
    options.page_size = (options.max_length + kVector - 1) / kVector * kVector;
    options.max_pages = max_rows;
    return std::make_unique<KvCache>(context.layers, options);
  };
}

struct WindowOptions {
  int64_t sink = 4;
  int64_t recent = 512;
  int64_t page_size = kDefaultPageSize;
};

OptionTable<WindowOptions> window_options() {
  using Options = WindowOptions;
  return OptionTable<Options>()
      .add("sink", &Options::sink, "first tokens that every token sees", {0, kMostSlack})
      .add("recent", &Options::recent, "last tokens that a token sees, itself among them",
           {1, kMostPages})
      .add("page_size", &Options::page_size, "tokens of a page; multiples of 16 are read fastest",
           {1, 1 << 20});
}

CacheRegistry::Make prepare_window(const ConfigNode& node, const RunPlan&) {
  const WindowOptions given = window_options().read(node);
  return [given](const CacheContext& context) {
    if (context.store.device.is_mps()) {
      throw Error("a cache of type window is for the CPU and CUDA: Metal reads no sink");
    }
    KvCacheOptions options = cache_options(context);
    options.page_size = given.page_size;
    std::vector<LayerKv> layers = context.layers;
    for (LayerKv& layer : layers) {
      if (layer.window == 0) {
        layer.window = given.recent;
        layer.sink = given.sink;
      }
    }
    return std::make_unique<KvCache>(layers, options);
  };
}

CacheRegistry::Make prepare_tracing(const ConfigNode& node, const RunPlan& plan) {
  const ConfigNode traced = node.typed_child("of", "paged");
  for (const char* key : {"format", "rotation", "lossy"}) {
    if (traced.has(key)) {
      traced.ignore(key);
      traced.fail(key, "belongs beside 'of', not under it: {type: tracing, of: ..., format: ...}");
    }
  }
  const CacheRegistry::Make make = plan.components.caches.prepare(traced, plan);
  return [make](const CacheContext& context) -> std::unique_ptr<KvStore> {
    auto store = make(context);
    if (!context.traced) {
      return store;
    }
    return std::make_unique<TracingStore>(std::move(store), std::ssize(context.layers));
  };
}

/// Formats that a cache's `format` names; the others are said by kv_dtype.
constexpr KvFormat kLossyFormats[] = {KvFormat::kFloat16, KvFormat::kFp8E4m3,
                                      KvFormat::kQ8,      KvFormat::kQ4,
                                      KvFormat::kQ3,      KvFormat::kHierarchical};

/// The names of kLossyFormats.
constexpr const char* kLossyNames = "float16, fp8_e4m3, q8, q4, q3 or hierarchical";

std::optional<KvFormat> read_format(const ConfigNode& cache) {
  cache.ignore("format");  // known, also where it is not given
  if (!cache.has("format")) {
    return std::nullopt;
  }
  const auto name = cache.get<std::string>("format", "");
  for (const KvFormat format : kLossyFormats) {
    if (name == kv_format_name(format)) {
      return format;
    }
  }
  cache.fail("format",
             fmt::format("unknown format '{}'; known: {}. float32 and bfloat16 are values "
                         "of the model's kv_dtype",
                         name, kLossyNames));
  return std::nullopt;
}

KvRotation read_rotation(const ConfigNode& cache, const std::optional<KvFormat>& format) {
  cache.ignore("rotation");  // known, also where it is not given
  const auto name =
      cache.has("rotation") ? cache.get<std::string>("rotation", "") : std::string("none");
  if (name == "none") {
    return KvRotation::kNone;
  }
  if (name != "hadamard") {
    cache.fail("rotation", fmt::format("unknown rotation '{}'; known: none, hadamard", name));
  } else if (!format || !has_scales(*format)) {
    cache.fail("rotation",
               "is for formats with scales, whose error it lowers: give format: q8, q4, q3 or "
               "hierarchical, or leave it out");
    return KvRotation::kNone;
  }
  return KvRotation::kHadamard;
}

std::string type_of(const ConfigNode& cache) {
  return cache.has("type") ? cache.get<std::string>("type", "") : "";
}

/// The type of a cache that no other device than the CPU has.
std::string find_cpu_only(const ConfigNode& cache) {
  const std::string type = type_of(cache);
  return type == "tiered" || type == "tracing" ? type : "";
}

/// See CacheChoice::memory_bytes; of a cache that traces, that of the other one.
int64_t find_memory_bytes(const ConfigNode& cache) {
  if (type_of(cache) == "tracing" && cache.is_map("of")) {
    return find_memory_bytes(cache.child("of"));
  }
  return type_of(cache) == "tiered" ? tiered_options().read(cache).memory_megabytes << 20U : 0;
}

/// A target's cache: one that is lossy needs `lossy: true`, and no other has it.
void check_lossy(const ConfigNode& cache, const CacheChoice& choice, bool lossy) {
  if (cache.has("format") && !choice.format) {
    return;  // a mistake, which is noted
  }
  if (!choice.loss.empty() && !lossy) {
    cache.fail(choice.format ? "format" : "type",
               fmt::format("{} changes what the target sees of its keys and values, which makes "
                           "another model of it: say so with lossy: true, or choose an exact cache",
                           choice.loss));
  } else if (lossy && choice.loss.empty()) {
    cache.fail("lossy", "is true, but type and format of the cache are exact: leave it out");
  }
}

CacheChoice read_choice(const ConfigNode& cache, const RunPlan& plan,
                        const std::optional<KvFormat>& format) {
  Promise promise = Promise::kLossless;  // of the type, and of the one that it wraps
  RunPlan own = plan;
  own.promise = &promise;
  CacheChoice choice{.format = format, .rotation = read_rotation(cache, format)};
  choice.make = plan.components.caches.prepare(cache, own);
  choice.yaml = write_yaml(*cache.resolved());
  choice.cpu_only = find_cpu_only(cache);
  choice.memory_bytes = find_memory_bytes(cache);
  if (format || promise == Promise::kLossy) {
    choice.loss = write_yaml_flow(*cache.resolved());
  }
  return choice;
}

/// The keys that all caches have.
std::vector<OptionHelp> with_format(std::vector<OptionHelp> options) {
  options.push_back(
      {"format", "as kv_dtype says", kLossyNames,
       "of keys and values, rounded when they are written: lossy; q3 and hierarchical on the CPU "
       "only, the others on CUDA too"});
  options.push_back({"rotation", "none", "none or hadamard",
                     "what keys and values are multiplied with before a format with scales rounds "
                     "them"});
  options.push_back({"lossy", "false", "true or false",
                     "true where a target's cache is lossy, which makes another model of it"});
  return options;
}

}  // namespace

CacheChoice read_cache(const ConfigNode& model, const RunPlan& plan) {
  model.refuse_old_name("max_pages", "cache: {type: paged, max_pages: ...}");
  model.ignore("cache");  // known, also where it is not given
  if (!model.has("cache")) {
    return {};
  }
  const ConfigNode node = model.child("cache");
  const auto format = read_format(node);
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
  const ConfigNode node = drafter.child("cache");
  if (node.has("lossy")) {
    node.ignore("lossy");
    node.fail("lossy",
              "is for a target's cache: a drafter's may lose what it likes, since the "
              "target verifies; leave it out");
  }
  CacheChoice choice = read_choice(node, plan, read_format(node));
  if (plan.target_options != nullptr) {
    check_cache(drafter, choice, *plan.target_options);
  }
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
  CacheChoice choice =
      read_cache(ConfigNode(model, errors),
                 RunPlan{.components = components, .models = models, .sampling = {}});
  errors->throw_if_any();
  return choice;
}

void add_caches(CacheRegistry& caches) {
  caches.add("paged", {.help = "pages of a few tokens, shared by the rows that begin alike and "
                               "copied when one of them is written: exact",
                       .source = "Kwon et al., 2023, arXiv:2309.06180",
                       .page = "docs/caches.md",
                       .options = with_format(paged_options().help()),
                       .promise = Promise::kLossless,
                       .prepare = prepare_paged,
                       .examples = {{"{type: paged}"},
                                    {"{type: paged, page_size: 4}"},
                                    {"{type: paged, page_size: 5, megabytes: 64}"},
                                    {"{type: paged, page_size: 4, window_slack: 16}"}}});
  caches.add("contiguous", {.help = "a row's keys and values in one piece of max_length tokens: "
                                    "exact, the same bits as paged, to measure what paging costs",
                            .page = "docs/caches.md",
                            .options = with_format(contiguous_options().help()),
                            .promise = Promise::kLossless,
                            .prepare = prepare_contiguous,
                            .examples = {{"{type: contiguous}"}}});
  caches.add("window", {.help = "layers of full attention see the first and the last tokens alone; "
                                "for drafters, or with lossy: true",
                        .source = "StreamingLLM, Xiao et al., 2023, arXiv:2309.17453",
                        .page = "docs/caches.md",
                        .options = with_format(window_options().help()),
                        .promise = Promise::kLossy,
                        .prepare = prepare_window,
                        .examples = {{"{type: window, sink: 1, recent: 2, lossy: true}"}}});
  caches.add("tiered",
             {.help = "paged, with the pages that a memory budget does not hold on disk: the same "
                      "bits; layers are read ahead in turn",
              .page = "docs/caches.md",
              .options = with_format(tiered_options().help()),
              .promise = Promise::kLossless,
              .prepare = prepare_tiered,
              .examples = {{"{type: tiered, memory_megabytes: 1, megabytes: 16}"}}});
  caches.add(
      "tracing",
      {.help = "another cache, the same bits, that counts what forwards write and read by "
               "layer, page and age: slow, for a figure of how far back attention looks",
       .page = "docs/caches.md",
       .options = with_format({{"of", "{type: paged}", "a cache",
                                "the type and options of the cache that is traced"}}),
       .promise = Promise::kLossless,
       .prepare = prepare_tracing,
       .examples = {{"{type: tracing}"},
                    {"{type: tracing, of: {type: paged, page_size: 4, window_slack: 16}}"}}});
}

}  // namespace specdec
