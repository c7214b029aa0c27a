#pragma once
#include <string>

#include "experiments/metrics/generation_record.h"

namespace specdec {

/// A record with numbers that are hard to write and read back.
GenerationRecord folder_record(const std::string& prompt, size_t steps = 2);
/// Expects every field that a run folder keeps to be the same.
void expect_equal(const GenerationRecord& left, const GenerationRecord& right);

}  // namespace specdec
