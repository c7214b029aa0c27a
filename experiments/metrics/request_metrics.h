#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "core/kv_store.h"
#include "core/layer_reads.h"
#include "decoders/decoding_strategy.h"
#include "experiments/metrics/metrics.h"

namespace specdec {

/// Metrics of one request: its counts, and what is derived from them.
struct RequestMetrics {
  int64_t prompt_tokens = 0;
  int64_t reused_tokens = 0;  ///< of the prompt, in the cache already: they were not prefilled
  StopReason stop_reason = StopReason::kMaxNewTokens;
  Counts counts = {};                                    ///< of this generation alone
  std::optional<double> prefill_tokens_per_second = {};  ///< of the tokens that were prefilled
  bool constrained = false;                              ///< is_constrained
  std::optional<LayerReads> disk = {};                   ///< of a target with layers on disk
  std::optional<KvStatistics> cache = {};  ///< of the target's; counts of tiers by this alone
  bool beams = false;  ///< `counts.committed` counts beam steps; the prefill yields one more
};

/// Derives the metrics of a generation. `reused_tokens`: as RequestMetrics says.
RequestMetrics request_metrics(const Generation& generation, int64_t prompt_tokens,
                               int64_t reused_tokens = 0);

/// All metrics under their names in reports; null where one has no value (no drafts, no time).
/// Under a grammar also log_allowed, mask_seconds, mask_fallbacks, samples; of a beam search also
/// beam_steps, target_calls_saved; of a target with layers on disk also disk_bytes, disk_layers,
/// disk_layers_ready, disk_wait_seconds; of a cache cache_bytes, cache_pages, cache_free_pages,
/// cache_fragmentation, and cache_tiers of one with tiers, as in a run's records.
nlohmann::json metrics_json(const RequestMetrics& metrics);

/// Line for readers: "[5 tokens, max_new_tokens; 180 tokens/s, 1.00 tokens/step]\n".
std::string metrics_line(const RequestMetrics& metrics);

}  // namespace specdec
