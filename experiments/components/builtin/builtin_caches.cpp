#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "experiments/components/builtin/builtin.h"
#include "experiments/components/cache_format.h"
#include "kv/compressed_store.h"
#include "kv/paged_kv.h"
#include "kv/tier_policy.h"

namespace specdec {
namespace {

constexpr int64_t kMostPages = int64_t{1} << 30;
constexpr int64_t kMostSlack = int64_t{1} << 20;
constexpr int64_t kMostMegabytes = int64_t{1} << 30;

/// `page_size`: where the config says it.
KvCacheOptions cache_options(const CacheContext& context,
                             std::optional<int64_t> page_size = std::nullopt) {
  return {.dtype = context.store.dtype,
          .format = context.format,
          .rotation = context.rotation,
          .device = context.store.device,
          .page_size = page_size.value_or(std::max(kDefaultPageSize, kv_key_group(context.format))),
          .max_length = context.store.max_length,
          .exact_recent = context.exact_recent};
}

/// What page_size is by default; see cache_options.
constexpr const char* kUsualPageSize = "16; 32 of kivi2 and kivi4";

/// Options for the states of recurrent layers.
struct StateChoice {
  int64_t state_every = StateOptions().every;
  int64_t state_checkpoints = StateOptions().most_checkpoints;
  int64_t state_megabytes = 0;

  StateOptions states() const {
    return {.every = state_every,
            .most_checkpoints = state_checkpoints,
            .max_bytes = state_megabytes << 20U};
  }
};

struct PagedOptions : StateChoice {
  std::optional<int64_t> page_size = {};
  int64_t max_pages = 0;
  int64_t megabytes = 0;
  int64_t window_slack = 0;
};

OptionTable<PagedOptions> paged_options() {
  using Options = PagedOptions;
  return OptionTable<Options>()
      .add("page_size", &Options::page_size, "tokens of a page; multiples of 16 are read fastest",
           {1, 1 << 20}, kUsualPageSize)
      .add("max_pages", &Options::max_pages,
           "most pages; 0: no limit on the CPU, one row of max_length on a GPU", {0, kMostPages})
      .add("megabytes", &Options::megabytes,
           "most memory of the pages of all layers, in MiB, beside max_pages; 0: no limit",
           {0, kMostMegabytes})
      .add("window_slack", &Options::window_slack,
           "sliding layers give back what lies so many tokens behind their window: at least the "
           "largest draft + 1; 0: they keep all",
           {0, kMostSlack})
      .add("state_every", &Options::state_every,
           "tokens between the checkpoints of recurrent layers' states, which a row can be cut to",
           {1, kMostSlack})
      .add("state_checkpoints", &Options::state_checkpoints,
           "most checkpoints of a row, the newest ones", {0, kMostSlack})
      .add("state_megabytes", &Options::state_megabytes,
           "most memory of recurrent layers' states, those of pending nodes included, in MiB; 0: "
           "no limit on the CPU, those of one row on a GPU",
           {0, kMostMegabytes});
}

CacheRegistry::Make prepare_paged(const ConfigNode& node, const RunPlan&) {
  const PagedOptions given = paged_options().read(node);
  return [given](const CacheContext& context) {
    KvCacheOptions options = cache_options(context, given.page_size);
    options.max_pages = given.max_pages;
    options.max_bytes = given.megabytes << 20U;
    options.window_slack = given.window_slack;
    options.states = given.states();
    return make_cache(context.layers, options);
  };
}

using MakeTierPolicy = std::shared_ptr<const TierPolicy> (*)();

struct TieredOptions {
  int64_t memory_megabytes = 256;
  int64_t host_megabytes = 0;
  int64_t megabytes = 1024;
  std::filesystem::path disk = {};
  double keep_free = 0.0;
  std::optional<int64_t> page_size = {};
  MakeTierPolicy policy = least_recently_used;
};

constexpr NamedValue<MakeTierPolicy> kTierPolicies[] = {{"lru", least_recently_used},
                                                        {"lfu", least_frequently_used}};

OptionTable<TieredOptions> tiered_options() {
  using Options = TieredOptions;
  return OptionTable<Options>()
      .add(
          "memory_megabytes", &Options::memory_megabytes,
          "most memory of the pages of all layers, in MiB; on a GPU taken from its memory when the "
          "cache is made",
          {1, kMostMegabytes})
      .add("host_megabytes", &Options::host_megabytes,
           "of a GPU's pages that its memory does not hold, so many MiB lie in the host's pinned "
           "memory, taken when the cache is made, and the others on disk; 0: a few blocks",
           {0, kMostMegabytes})
      .add("megabytes", &Options::megabytes,
           "room on the disk for the pages of all layers, in MiB, taken when the cache is made",
           {1, kMostMegabytes})
      .describe(
          {{"disk", "the system's", "a folder",
            "where the file of pages lies, which has no name there and ends with the program; "
            "by default where the system keeps temporary files"}})
      .add_choice("policy", &Options::policy,
                  "what leaves memory first of rows that wait: what was unused longest, or what "
                  "fewest forwards have used",
                  kTierPolicies)
      .add("keep_free", &Options::keep_free,
           "share of memory_megabytes that rows that wait leave free after each commit: what the "
           "next forwards bring finds room at once",
           {0.0, 1.0})
      .add("page_size", &Options::page_size, "tokens of a page; multiples of 16 are read fastest",
           {1, 1 << 20}, "16");
}

CacheRegistry::Make prepare_tiered(const ConfigNode& node, const RunPlan&) {
  TieredOptions given = tiered_options().read(node);
  node.ignore("disk");  // known, also where it is not given
  if (node.has("disk")) {
    given.disk = node.require_path("disk");
  }
  const std::shared_ptr<const TierPolicy> policy = given.policy();
  if (given.memory_megabytes > given.megabytes) {
    node.fail(
        "memory_megabytes",
        fmt::format("{} is more than megabytes ({}), the room for all pages: nothing would go "
                    "to disk. Raise megabytes, lower memory_megabytes, or choose "
                    "type: paged",
                    given.memory_megabytes, given.megabytes));
  }
  return [given, policy](const CacheContext& context) {
    if (context.store.device.is_mps()) {
      throw Error(
          "a cache of type tiered is for the CPU and CUDA, not for mps: choose another type");
    }
    if (given.host_megabytes > 0 && context.store.device.is_cpu()) {
      throw Error(
          "host_megabytes of a cache of type tiered is for a GPU: on the CPU memory_megabytes are "
          "the host's. Leave it out");
    }
    KvCacheOptions options = cache_options(context, given.page_size);
    options.max_bytes = given.megabytes << 20U;
    options.host_bytes = given.host_megabytes << 20U;
    options.memory_bytes = given.memory_megabytes << 20U;
    options.disk = given.disk;
    options.tier_policy = policy;
    options.keep_free = given.keep_free;
    return make_cache(context.layers, options);
  };
}

TierBudget tiered_budget(const ConfigNode& node, const Components&) {
  const TieredOptions given = tiered_options().read(node);
  return {.memory_bytes = given.memory_megabytes << 20U,
          .host_bytes = given.host_megabytes << 20U,
          .disk_bytes = given.megabytes << 20U,
          .disk = node.has("disk") ? node.require_path("disk") : std::filesystem::path()};
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
    KvCacheOptions options = cache_options(context);
    const int64_t whole = options.page_size;  // attention reads whole vectors, or groups, of a page
    options.page_size = (options.max_length + whole - 1) / whole * whole;
    options.max_pages = max_rows;
    return make_cache(context.layers, options);
  };
}

/// Refuses a cache that shortens what layers of full attention see where no layer is one.
void check_full_attention(const std::vector<LayerKv>& layers, const char* type) {
  const bool any = std::any_of(layers.begin(), layers.end(), [](const LayerKv& layer) {
    return layer.window == 0 && layer.state_size == 0;
  });
  if (!any) {
    throw Error(
        fmt::format("a cache of type {0} shortens layers of full attention, and this model has "
                    "none: leave {0} out",
                    type));
  }
}

struct WindowOptions {
  int64_t sink = 4;
  int64_t recent = 512;
  std::optional<int64_t> page_size = {};
};

OptionTable<WindowOptions> window_options() {
  using Options = WindowOptions;
  return OptionTable<Options>()
      .add("sink", &Options::sink, "first tokens that every token sees", {0, kMostSlack})
      .add("recent", &Options::recent, "last tokens that a token sees, itself among them",
           {1, kMostPages})
      .add("page_size", &Options::page_size, "tokens of a page; multiples of 16 are read fastest",
           {1, 1 << 20}, kUsualPageSize);
}

CacheRegistry::Make prepare_window(const ConfigNode& node, const RunPlan&) {
  const WindowOptions given = window_options().read(node);
  return [given](const CacheContext& context) {
    if (context.store.device.is_mps()) {
      throw Error("a cache of type window is for the CPU and CUDA: Metal reads no sink");
    }
    check_full_attention(context.layers, "window");
    KvCacheOptions options = cache_options(context, given.page_size);
    std::vector<LayerKv> layers = context.layers;
    for (LayerKv& layer : layers) {
      if (layer.window == 0 && layer.state_size == 0) {
        layer.window = given.recent;
        layer.sink = given.sink;
      }
    }
    return make_cache(layers, options);
  };
}

struct CompressedOptions {
  int64_t chunk = 64;
  int64_t recent = 256;
  int64_t sink = 4;
  std::optional<int64_t> page_size = {};
};

OptionTable<CompressedOptions> compressed_options() {
  using Options = CompressedOptions;
  return OptionTable<Options>()
      .add("chunk", &Options::chunk, "tokens whose keys, and values, become one: their mean",
           {2, kMostSlack})
      .add("recent", &Options::recent,
           "last tokens that a token sees themselves, itself among them", {1, kMostPages})
      .add("sink", &Options::sink, "first tokens that every token sees themselves", {0, kMostSlack})
      .add("page_size", &Options::page_size, "tokens of a page; multiples of 16 are read fastest",
           {1, 1 << 20}, "16");
}

CacheRegistry::Make prepare_compressed(const ConfigNode& node, const RunPlan&) {
  const CompressedOptions given = compressed_options().read(node);
  return [given](const CacheContext& context) -> std::unique_ptr<KvStore> {
    if (context.store.device.is_mps()) {
      throw Error("a cache of type compressed is for the CPU and CUDA: Metal makes no means");
    }
    if (kv_key_group(context.format) > 1) {
      throw Error(
          fmt::format("a cache of type compressed makes means of keys that are rounded one "
                      "by one, and {} rounds those of {} tokens together: choose another "
                      "format, or type",
                      kv_format_name(context.format), kv_key_group(context.format)));
    }
    check_full_attention(context.layers, "compressed");
    KvCacheOptions options = cache_options(context, given.page_size);
    auto tokens = make_cache(context.layers, options);
    if (context.store.device.is_meta()) {  // it is measured: nothing reads means
      return tokens;
    }
    return std::make_unique<CompressedStore>(
        std::move(tokens), context.layers,
        Pooling{.chunk = given.chunk, .recent = given.recent, .sink = given.sink});
  };
}

}  // namespace

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
                        .examples = {{"{type: window, sink: 1, recent: 2, lossy: true}"}},
                        .facts = {.on_mps = false}});
  caches.add(
      "compressed",
      {.help = "layers of full attention see chunks of old tokens as their means, beside the "
               "first and the last tokens; for drafters, or with lossy: true",
       .source = "Rae et al., 2019, arXiv:1911.05507; weights as in ToMe, Bolya et al., "
                 "2022, arXiv:2210.09461",
       .page = "docs/caches.md",
       .options = with_format(compressed_options().help(), {.key_groups = false}),
       .promise = Promise::kLossy,
       .prepare = prepare_compressed,
       .examples = {{"{type: compressed, chunk: 2, recent: 4, sink: 1, lossy: true}"}},
       .facts = {.on_mps = false, .traceable = false}});
  caches.add("tiered",
             {.help = "paged, with the pages that a memory budget does not hold on disk: the same "
                      "bits; layers are read ahead in turn",
              .page = "docs/caches.md",
              .options = with_format(tiered_options().help(),
                                     {.key_groups = false, .exact_recent = false}),
              .promise = Promise::kLossless,
              .prepare = prepare_tiered,
              .examples = {{"{type: tiered, memory_megabytes: 1, megabytes: 16}"}},
              .facts = {.on_mps = false, .tiers = tiered_budget}});
  for (const auto& [name, text] : names_beside_types()) {
    caches.explain(name, text);
  }
}

}  // namespace specdec
