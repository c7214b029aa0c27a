#include <memory>
#include <utility>

#include "core/error.h"
#include "experiments/components/builtin.h"
#include "experiments/config/yaml_writer.h"
#include "kv/kv_cache.h"

namespace specdec {
namespace {

constexpr int64_t kMostPages = int64_t{1} << 30;
constexpr int64_t kMostMegabytes = int64_t{1} << 30;

KvCacheOptions cache_options(const CacheContext& context) {
  return {.dtype = context.store.dtype,
          .format = context.format,
          .device = context.store.device,
          .max_length = context.store.max_length};
}

struct PagedOptions {
  int64_t page_size = kDefaultPageSize;
  int64_t max_pages = 0;
  int64_t megabytes = 0;
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
           {0, kMostMegabytes});
}

CacheRegistry::Make prepare_paged(const ConfigNode& node, const RunPlan&) {
  const PagedOptions given = paged_options().read(node);
  return [given](const CacheContext& context) {
    KvCacheOptions options = cache_options(context);
    options.page_size = given.page_size;
    options.max_pages = given.max_pages;
    options.max_bytes = given.megabytes << 20U;
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

}  // namespace

KvStoreFactory CacheChoice::factory(KvFormat format) const {
  if (!make) {
    return paged_kv(kDefaultPageSize, format);
  }
  return [make = make, format](std::vector<LayerKv> layers, const KvStoreOptions& store) {
    return make({std::move(layers), store, format});
  };
}

CacheChoice read_cache(const ConfigNode& model, const RunPlan& plan) {
  model.refuse_old_name("max_pages", "cache: {type: paged, max_pages: ...}");
  model.ignore("cache");  // known, also where it is not given
  if (!model.has("cache")) {
    return {};
  }
  const ConfigNode node = model.child("cache");
  CacheChoice choice;
  choice.make = plan.components.caches.prepare(node, plan);
  choice.yaml = write_yaml(*node.resolved());
  return choice;
}

std::string cache_yaml(const std::string& text) {
  const bool is_name = text.find_first_of("{}[]:,") == std::string::npos;
  return is_name ? "{type: " + text + "}" : text;
}

CacheChoice parse_cache(const std::string& text, const Components& components) {
  if (text.empty()) {
    return {};
  }
  const auto errors = std::make_shared<ConfigErrors>();
  const auto model = YamlTree::map("--cache");
  model->set("cache", "--cache", parse_yaml(cache_yaml(text), "--cache " + text, false));
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
                       .options = paged_options().help(),
                       .promise = Promise::kLossless,
                       .prepare = prepare_paged,
                       .examples = {{"{type: paged}"},
                                    {"{type: paged, page_size: 4}"},
                                    {"{type: paged, page_size: 5, megabytes: 64}"}}});
  caches.add("contiguous", {.help = "a row's keys and values in one piece of max_length tokens: "
                                    "exact, the same bits as paged, to measure what paging costs",
                            .page = "docs/caches.md",
                            .options = contiguous_options().help(),
                            .promise = Promise::kLossless,
                            .prepare = prepare_contiguous,
                            .examples = {{"{type: contiguous}"}}});
}

}  // namespace specdec
