#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "core/kv_store.h"
#include "kv/page_capacity.h"

namespace specdec {

constexpr int64_t kDefaultPageSize = 16;

/// The cache of a model with these layers: a KvCache, or a StatefulStore where some are recurrent.
std::unique_ptr<KvStore> make_cache(const std::vector<LayerKv>& layers,
                                    const KvCacheOptions& options);

/// Makes a model's cache (make_cache), with `page_size` tokens a page; multiples of 16 are read
/// fastest. `max_pages`, `window_slack`, `rotation`: see KvCacheOptions; a format with groups of
/// keys has exact_recent kGroupedRecent.
KvStoreFactory paged_kv(int64_t page_size = kDefaultPageSize, KvFormat format = KvFormat::kNative,
                        int64_t max_pages = 0, int64_t window_slack = 0,
                        KvRotation rotation = KvRotation::kNone);

}  // namespace specdec
