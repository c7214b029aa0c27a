#include "experiments/components/memory_needs.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "core/cache_room_error.h"
#include "core/draft.h"
#include "core/error.h"
#include "core/families/model_size.h"
#include "core/prefill_size.h"
#include "core/transformer/model_store.h"
#include "core/transformer/rope_table.h"
#include "core/transformer/workspace.h"
#include "experiments/components/cache_checks.h"
#include "kv/device_blocks.h"

namespace specdec {
namespace {

/// Calls grow(tokens so far) after each piece of a prompt.
template <class F>
void for_pieces(int64_t tokens, const F& grow) {
  for (int64_t length = 0; length < tokens;) {
    length = std::min(tokens, length + kPrefillTokens);
    grow(length);
  }
}

/// Most bytes of each layer's pages, and of states, that take memory while a row of the context is
/// read; devices allocate all when the model is loaded.
std::vector<int64_t> most_bytes(KvStore& cache, int64_t context, bool on_cpu, int64_t& states) {
  std::vector<int64_t> most(cache.statistics().layers.size());
  for (int64_t length = 0; length < context;) {
    const int64_t count = std::min(context - length, kPrefillTokens);
    try {
      cache.extend({.count = count});
    } catch (const CacheRoomError& error) {
      throw error.of_text(length + count, context);
    }
    const KvStatistics statistics = cache.statistics();
    const int64_t held = on_cpu ? statistics.states : statistics.allocated_states;
    states = std::max(states, held * statistics.state_bytes);
    const auto bytes = [&](const std::vector<KvStatistics::Layer>& form, size_t layer) {
      const KvStatistics::Layer pages = form.empty() ? KvStatistics::Layer() : form[layer];
      return pages.page_bytes * (on_cpu ? pages.used_pages : pages.allocated_pages);
    };
    for (size_t layer = 0; layer < most.size(); ++layer) {
      most[layer] = std::max(
          most[layer], bytes(statistics.layers, layer) + bytes(statistics.exact_layers, layer));
    }
    cache.commit(0, chain_path(count));
    length += count;
  }
  return most;
}

/// The host's memory that tiers of a GPU take for blocks that come and go. LibTorch gives pinned
/// memory in powers of two.
int64_t pinned_bytes(const KvStatistics& statistics, const CacheChoice& cache) {
  TieredPages pages{.memory_bytes = cache.tiers.memory_bytes};
  for (const KvStatistics::Layer& layer : statistics.layers) {
    pages.page_bytes.push_back(layer.page_bytes / 2);
    pages.capacity = std::max(pages.capacity, layer.allocated_pages);
  }
  if (pages.page_bytes == std::vector<int64_t>(pages.page_bytes.size())) {
    return 0;  // no layer has keys
  }
  pages.pages_per_block = equal_bytes(pages.page_bytes);
  const int64_t bytes = DeviceBlocks::pinned_bytes(pages, cache.tiers.host_bytes);
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(bytes)));
}

/// What a cache takes that holds a row of the context. It is made on a device without memory, which
/// refuses no type and no format.
void add_cache(const TransformerInfo& info, const ModelOptions& model, MemoryNeeds& needs) {
  require_cache(model.cache, model, "--cache");
  const std::vector<LayerKv> layers = cache_layers(info.plan);
  const int64_t longest = std::max(max_length_of(model, info.config), needs.context);
  const auto cache = model.cache.factory(kv_format_of(model))(
      layers, {.dtype = info.compute_dtype(), .device = at::kMeta, .max_length = longest});
  const std::vector<int64_t> bytes =
      most_bytes(*cache, needs.context, model.device == "cpu", needs.states);
  const KvStatistics statistics = cache->statistics();
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    (layers[layer].window > 0 ? needs.sliding_cache : needs.full_cache) += bytes[layer];
    needs.cache_per_token += statistics.layers[layer].page_bytes / statistics.page_size;
  }
  if (const int64_t most = model.cache.tiers.memory_bytes; most > 0) {
    needs.cache_on_disk = std::max<int64_t>(0, needs.sliding_cache + needs.full_cache - most);
    needs.pinned_cache = model.device == "cpu" ? 0 : pinned_bytes(statistics, model.cache);
  }
}

void add_rotations(const TransformerInfo& info, int64_t number_bytes, MemoryNeeds& needs) {
  int64_t positions = 0;
  for_pieces(needs.context, [&](int64_t length) { positions = rope_positions(positions, length); });
  std::vector<std::pair<RopeConfig, int64_t>> tables;
  for (const LayerPlan& layer : info.plan) {
    const std::pair table(layer.rope, layer.head_dim);
    if (std::find(tables.begin(), tables.end(), table) == tables.end()) {
      tables.push_back(table);
      needs.rotations += positions * layer.head_dim * number_bytes;
    }
  }
}

/// Where vectors may lie, and the form of a device's matrices. The device need not be there: a
/// device without memory stands for Metal's.
Placement place_to_measure(const std::string& device) {
  if (device == "cpu") {
    return {};
  }
  return {.device = device == "mps" ? at::kMeta : at::kCPU, .layout = WeightLayout::kRows};
}

}  // namespace

LoadOptions measured_options(const ModelOptions& options) {
  return {.dtype = parse_dtype(options.dtype),
          .place = place_to_measure(options.device),
          .activations = parse_activations(options.activations)};
}

int64_t cache_needs(const TransformerInfo& layers, const ModelOptions& options, int64_t context) {
  MemoryNeeds needs{.context = context};
  add_cache(layers, options, needs);
  return needs.cache() - needs.cache_on_disk;
}

int64_t rotation_needs(const TransformerInfo& layers, int64_t context) {
  MemoryNeeds needs{.context = context};
  add_rotations(layers, static_cast<int64_t>(c10::elementSize(layers.compute_dtype())), needs);
  return needs.rotations;
}

MemoryNeeds memory_needs(const ModelFiles& files, const ModelOptions& options, int64_t context) {
  const int64_t longest = files.config.max_position_embeddings;
  if (context < 1 || context > longest) {
    throw ConfigError(fmt::format("{}: a context of {} tokens; the model takes 1 to {}",
                                  files.folder.string(), context, longest));
  }
  check_activations_of(files.folder, options, *files.open);
  const ModelSize size = measure_model(*files.open, measured_options(options));
  const TransformerInfo& info = size.info;
  const auto number_bytes = static_cast<int64_t>(c10::elementSize(info.compute_dtype()));
  MemoryNeeds needs{.context = context, .vectors = size.vectors, .mapped = size.mapped};
  for (const auto& [format, bytes] : size.matrices) {
    needs.matrices += bytes;
  }
  add_cache(info, options, needs);
  add_rotations(info, number_bytes, needs);
  const bool by_library = options.library_products && context >= kFewestLibraryTokens;
  needs.activations =
      activation_bytes(info, std::min(context, kPrefillTokens)) + (by_library ? size.library : 0);
  const int64_t copies = context > kPrefillTokens ? 2 : 1;  // of pieces, which are joined
  needs.results =
      number_bytes * (copies * context * info.config.hidden_size + info.config.vocab_size);
  return needs;
}

}  // namespace specdec
