#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/metrics/metrics.h"

namespace specdec {

/// Counts that another program printed, as ours. What it does not report is 0 or empty, and the
/// metrics that need it are then none.
struct ImportedRow {
  std::string source;  ///< model, drafter or strategy, as the file names it
  Counts counts;
};

/// vLLM's counters in the text format of Prometheus (its /metrics page): a row for each model_name,
/// engines added up. Names with and without "_total" are read. By position they are exact where
/// every draft was equally long. Throws Error with file and line: a counter that is no whole
/// number, counters that are missing or contradict each other.
std::vector<ImportedRow> parse_vllm_metrics(std::string_view text, const std::string& name);

/// The log of llama.cpp's server or speculative example: the last "statistics" line of each
/// drafter, else the sum of the "draft acceptance" lines of the requests, else n_drafted and
/// n_accept. Rates by position are printed with three digits; accepted tokens by position are
/// rounded from them, and left out when they do not add up. Times are those of the requests,
/// or of the example's own clock: it also prints timings of its two contexts, which are neither
/// the time of the generation. Throws Error like parse_vllm_metrics.
std::vector<ImportedRow> parse_llama_log(std::string_view text, const std::string& name);

/// Any of: a run folder of ours (a row for each strategy and point of the sweep), vLLM's metrics,
/// llama.cpp's log, an answer file of Spec-Bench or ours. Throws Error for anything else.
std::vector<ImportedRow> import_counts(const std::filesystem::path& path);

}  // namespace specdec
