#include "experiments/metrics/request_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "experiments/metrics/cache_records.h"

namespace specdec {
namespace {

nlohmann::json number_or_null(const std::optional<double>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json();
}

void add_cache(const KvStatistics& cache, nlohmann::json& json) {
  json["cache_bytes"] = cache.used_bytes();
  json["cache_pages"] = cache.used_pages;
  json["cache_free_pages"] = cache.free_pages + cache.spare_pages;
  json["cache_fragmentation"] = cache.fragmentation();
  if (cache.tiers) {
    json["cache_tiers"] = cache_tiers_json(*cache.tiers);
  }
}

double megabytes(int64_t bytes) { return static_cast<double>(bytes) / 1e6; }

std::string tiers_text(const KvTiers& tiers) {
  return fmt::format(
      "; cache: {:.1f} MB in memory{}, {:.1f} MB on disk alone, {} blocks came back and {} left "
      "({:.1f} MB read, {:.1f} MB written), waited {:.2f} s",
      megabytes(tiers.memory_bytes),
      tiers.host_bytes == 0
          ? ""
          : fmt::format(", {:.1f} MB in the host's alone", megabytes(tiers.host_bytes)),
      megabytes(tiers.disk_bytes), tiers.promotions, tiers.demotions, megabytes(tiers.read_bytes),
      megabytes(tiers.written_bytes), tiers.wait_seconds);
}

}  // namespace

RequestMetrics request_metrics(const Generation& generation, int64_t prompt_tokens,
                               int64_t reused_tokens) {
  RequestMetrics metrics{.prompt_tokens = prompt_tokens,
                         .reused_tokens = reused_tokens,
                         .stop_reason = generation.stop_reason,
                         .constrained = is_constrained(generation),
                         .beams = !generation.hypotheses.empty()};
  metrics.counts.add(generation);
  if (metrics.counts.prefill_seconds > 0.0) {
    metrics.prefill_tokens_per_second =
        static_cast<double>(prompt_tokens - reused_tokens) / metrics.counts.prefill_seconds;
  }
  return metrics;
}

nlohmann::json metrics_json(const RequestMetrics& metrics) {
  const Counts& counts = metrics.counts;
  nlohmann::json json = {
      {"prompt_tokens", metrics.prompt_tokens},
      {"reused_tokens", metrics.reused_tokens},
      {"new_tokens", counts.tokens},
      {"steps", counts.steps},
      {"drafted", counts.drafted},
      {"accepted", counts.accepted},
      {"acceptance_rate", number_or_null(acceptance_rate(counts))},
      {"tokens_per_step", number_or_null(tokens_per_step(counts))},
      {"prefill_seconds", counts.prefill_seconds},
      {"prefill_tokens_per_second", number_or_null(metrics.prefill_tokens_per_second)},
      {"decode_seconds", counts.decode_seconds},
      {"draft_seconds", counts.draft_seconds},
      {"prompt_draft_seconds", counts.prompt_draft_seconds},
      {"verify_seconds", counts.verify_seconds},
      {"tokens_per_second", number_or_null(decode_tokens_per_second(counts))}};
  if (metrics.constrained) {
    json["log_allowed"] = counts.log_allowed;
    json["mask_seconds"] = counts.mask_seconds;
    json["mask_fallbacks"] = counts.mask_fallbacks;
    json["samples"] = counts.samples;
  }
  if (metrics.disk) {
    json["disk_bytes"] = metrics.disk->bytes;
    json["disk_layers"] = metrics.disk->layers;
    json["disk_layers_ready"] = metrics.disk->ready;
    json["disk_wait_seconds"] = metrics.disk->wait_seconds;
  }
  if (metrics.cache) {
    add_cache(*metrics.cache, json);
  }
  if (metrics.beams) {
    json["beam_steps"] = counts.committed + 1;
    json["target_calls_saved"] = counts.committed - counts.steps;
  }
  return json;
}

std::string metrics_line(const RequestMetrics& metrics) {
  const Counts& counts = metrics.counts;
  std::string line =
      fmt::format("[{} tokens, {}", counts.tokens, stop_reason_name(metrics.stop_reason));
  if (const auto speed = decode_tokens_per_second(counts)) {
    line += fmt::format("; {:.1f} tokens/s", *speed);
  }
  if (const auto tokens = tokens_per_step(counts)) {
    line += fmt::format(", {:.2f} tokens/step", *tokens);
  }
  if (const auto acceptance = acceptance_rate(counts)) {
    line += fmt::format(", {} of {} drafted tokens accepted ({:.1f} %)", counts.accepted,
                        counts.drafted, 100.0 * *acceptance);
  }
  if (metrics.reused_tokens > 0) {
    line += fmt::format("; {} of {} prompt tokens from the cache", metrics.reused_tokens,
                        metrics.prompt_tokens);
  }
  if (metrics.disk) {
    line +=
        fmt::format("; {:.1f} MB of layers from disk a token, waited {:.2f} s for {} of {} layers",
                    static_cast<double>(metrics.disk->bytes) / 1e6 /
                        static_cast<double>(std::max<int64_t>(counts.tokens, 1)),
                    metrics.disk->wait_seconds, metrics.disk->layers - metrics.disk->ready,
                    metrics.disk->layers);
  }
  if (metrics.cache && metrics.cache->tiers) {
    line += tiers_text(*metrics.cache->tiers);
  }
  return line + "]\n";
}

}  // namespace specdec
