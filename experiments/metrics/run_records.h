#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/metrics/metrics.h"

namespace specdec {

/// A generation as JSON Lines, each line with its line feed.
struct RecordLines {
  std::string steps;       ///< one line per step
  std::string generation;  ///< one line, with the number of steps
};

/// Numbers are written with enough digits to read the same double. Throws Error for a name
/// that is not UTF-8; broken characters of the text are replaced.
RecordLines write_record_lines(const GenerationRecord& record);

/// A file's text, and its name for messages.
struct NamedText {
  std::string_view text;
  std::string name;
};

/// The contents of the two record files of a run.
struct RunRecords {
  std::vector<GenerationRecord> records;  ///< the whole ones, in order
  /// The lines that make up `records`; to write back when `damaged`.
  std::string generation_lines, step_lines;
  bool damaged = false;  ///< the files contain more: torn lines, or half a generation
  int64_t dropped = 0;   ///< generations of which only a part was there
};

/// Reads the records. What a killed process or a power cut can leave behind (a torn end, steps
/// without their generation, a generation without all its steps) is left out; anything else that is
/// wrong throws Error with the line.
RunRecords parse_run_records(const NamedText& generations, const NamedText& steps);

}  // namespace specdec
