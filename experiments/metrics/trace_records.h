#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "decoders/draft_trace.h"
#include "experiments/metrics/metrics.h"

namespace specdec {

/// The trace of a strategy's drafter along the text that the first strategy gave for a prompt.
struct TraceRecord {
  GenerationKey key;  ///< of the strategy whose drafter it is
  std::string category;
  std::string verifier;  ///< its verifier's type
  int64_t prompt_tokens = 0;
  DraftTrace trace;
};

/// One line of traces.jsonl, with its line feed. Probabilities are written with nine digits.
std::string write_trace_line(const TraceRecord& record);

/// Reads traces.jsonl. Throws Error with file and line for what is no trace; the torn last line
/// that a killed process leaves is not read.
std::vector<TraceRecord> read_traces(const std::filesystem::path& file);

}  // namespace specdec
