#pragma once
#include <cstddef>
#include <nlohmann/json_fwd.hpp>

#include "experiments/metrics/generation_record.h"
#include "experiments/metrics/record_keys.h"

namespace specdec {

// Records as JSON objects, and back: what is no such object throws Error, which names the key.

/// The record without its steps, but their number.
nlohmann::ordered_json record_json(const GenerationRecord& record);
/// A record without its steps.
GenerationRecord parse_record(const RecordKeys& line);
/// The key of a record, or of a step.
GenerationKey parse_key(const RecordKeys& line);
/// Step number `index` of the generation of this key.
nlohmann::ordered_json step_json(const GenerationKey& key, size_t index,
                                 const StepStatistics& step);
StepStatistics parse_step(const RecordKeys& line);

}  // namespace specdec
