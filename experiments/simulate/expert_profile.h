#pragma once
#include <iosfwd>
#include <nlohmann/json_fwd.hpp>

#include "experiments/components/expert_measurement.h"
#include "experiments/metrics/record_keys.h"

namespace specdec {

/// The fit, then a table of the samples beside it and beside independent routes.
void print_experts(std::ostream& out, const ExpertProfile& profile);
/// The entry `experts` of a profile file.
nlohmann::ordered_json experts_json(const ExpertProfile& profile);
/// What experts_json wrote. Throws Error for what it cannot have written.
ExpertProfile parse_experts(const RecordKeys& keys);

}  // namespace specdec
