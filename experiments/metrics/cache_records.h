#pragma once
#include <nlohmann/json_fwd.hpp>

#include "core/kv_tiers.h"
#include "core/kv_trace.h"
#include "experiments/metrics/record_keys.h"

namespace specdec {

/// {"forwards", "layers": [{"written", "nodes", "keys", "mass"}], "pages": [[[page, written,
/// read]]]}, as KvTrace has them; pages that were neither written nor read are left out.
nlohmann::ordered_json cache_trace_json(const KvTrace& trace);
/// The trace that cache_trace_json wrote. Throws Error naming the key.
KvTrace parse_cache_trace(const RecordKeys& keys);

/// What was counted between two states of one cache; bytes are those of the later one.
KvTiers tiers_between(const KvTiers& before, KvTiers after);
/// Counts added up, bytes the most of both.
void add_tiers(const KvTiers& more, KvTiers& sum);
/// An object with the names of KvTiers.
nlohmann::ordered_json cache_tiers_json(const KvTiers& tiers);
/// The tiers that cache_tiers_json wrote. Throws Error naming the key.
KvTiers parse_cache_tiers(const RecordKeys& keys);

}  // namespace specdec
