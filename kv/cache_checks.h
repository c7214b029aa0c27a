#pragma once
#include <vector>

#include "core/kv_store.h"
#include "kv/page_capacity.h"

namespace specdec {

/// Checks of what a cache is to be made of. Throws InternalError for layers or options that cannot
/// be, Error for a combination that the user has chosen.
void check_cache(const std::vector<LayerKv>& layers, const KvCacheOptions& options);

}  // namespace specdec
