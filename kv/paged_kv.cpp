#include "kv/paged_kv.h"

#include <algorithm>

#include "kv/kv_cache.h"
#include "kv/stateful_store.h"

namespace specdec {

std::unique_ptr<KvStore> make_cache(const std::vector<LayerKv>& layers,
                                    const KvCacheOptions& options) {
  const bool is_recurrent = std::any_of(layers.begin(), layers.end(),
                                        [](const LayerKv& layer) { return layer.state_size > 0; });
  if (is_recurrent) {
    return std::make_unique<StatefulStore>(layers, options);
  }
  return std::make_unique<KvCache>(layers, options);
}

KvStoreFactory paged_kv(int64_t page_size, KvFormat format, int64_t max_pages, int64_t window_slack,
                        KvRotation rotation) {
  return [=](const std::vector<LayerKv>& layers, const KvStoreOptions& options) {
    const KvCacheOptions paged{.dtype = options.dtype,
                               .format = format,
                               .rotation = rotation,
                               .device = options.device,
                               .page_size = page_size,
                               .max_length = options.max_length,
                               .window_slack = window_slack,
                               .exact_recent = kv_key_group(format) > 1 ? kGroupedRecent : 0,
                               .max_pages = max_pages};
    return make_cache(layers, paged);
  };
}

}  // namespace specdec
