#pragma once
#include <compare>
#include <cstdint>
#include <optional>
#include <string>

#include "core/kv_tiers.h"
#include "core/kv_trace.h"
#include "decoders/analysis/draft_bias.h"
#include "decoders/decoding_strategy.h"
#include "experiments/metrics/machine_load.h"
#include "experiments/metrics/thinking.h"

namespace specdec {

/// Which generation of an experiment: no two of a run are equal in all four.
struct GenerationKey {
  std::string
      sweep_point;        ///< label of the point of the sweep, such as "draft_length=4"; "" if none
  std::string strategy;   ///< name of the strategy in the config
  std::string prompt_id;  ///< with the turn when a prompt has several, such as "81/2"
  int64_t repeat = 0;
  auto operator<=>(const GenerationKey&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// One measured generation. Everything that a report says is derived from these.
struct GenerationRecord {
  GenerationKey key;
  std::string category;  ///< kind of prompt; "" when the prompts file has none
  int64_t prompt_tokens = 0;
  std::string text;  ///< of the new tokens; may be empty. Broken UTF-8 is replaced when written
  Generation generation;
  std::string question_id = {};  ///< of the prompts file; its turns share it
  int64_t turn = 0;
  /// Tokens that `text` is encoded to, which may be fewer or more than were generated; -1 without a
  /// tokenizer. Only Spec-Bench's speed of the baseline asks for it.
  int64_t text_tokens = -1;
  double compile_seconds = 0.0;       ///< of the prompt's grammar, once for all strategies
  std::optional<bool> is_right = {};  ///< by the prompt's scorer; none without one
  /// Whether the answer satisfies the prompt's JSON Schema, whether or not a grammar made it; none
  /// without a schema, and where that cannot be checked.
  std::optional<bool> is_valid = {};
  std::string scorer = {};  ///< fingerprint of the program that was asked; "" when none was
  std::optional<MachineLoad> load = {};  ///< none in runs that were recorded before it was measured
  /// Log-probability of the new tokens under the target, summed: nats, softmax of its logits alone
  /// (no temperature, penalty, truncation or grammar). Measured of lossy strategies and of the
  /// first one beside them.
  std::optional<double> log_prob = {};
  std::optional<BiasSums> bias = {};  ///< of a lossy strategy's sampled text, along itself
  /// Bytes of the weights and of the context's keys and values that a step's forward has to read,
  /// of layers with a sliding window those in it; mean over steps.
  std::optional<double> bytes_per_step = {};
  /// State of the target's cache when the generation had ended, see KvStatistics.
  std::optional<double> cache_bytes = {};  ///< of the pages in use
  std::optional<double> cache_pages = {};
  std::optional<double> cache_shared_pages = {};
  std::optional<double> cache_free_pages = {};  ///< spare ones of rows included
  std::optional<double> cache_fragmentation = {};
  std::optional<KvTiers> cache_tiers = {};  ///< counts are those of the generation alone
  std::optional<KvTrace> cache_trace = {};  ///< of the generation; of a target's cache that traces
  // Reads of a target with layers on disk, see LayerReads.
  std::optional<double> disk_bytes = {};
  std::optional<double> disk_layers = {};
  std::optional<double> disk_layers_ready = {};
  std::optional<double> disk_wait_seconds = {};
  std::optional<double> copied_share = {};    ///< of the whole text, see copied_share()
  std::optional<ThinkingSpan> thinking = {};  ///< of the new tokens, see thinking_span()
  bool shortened = false;                     ///< by before_loops; never stored
};

/// Whether the scorer that was asked took too long.
inline bool is_unscored(const GenerationRecord& record) {
  return !record.scorer.empty() && !record.is_right;
}

/// The question that a generation answers, a turn or repeat of it: the unit of all intervals.
inline const std::string& question_of(const GenerationRecord& record) {
  return record.question_id.empty() ? record.key.prompt_id : record.question_id;
}

}  // namespace specdec
