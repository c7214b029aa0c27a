#pragma once
#include <nlohmann/json_fwd.hpp>

#include "experiments/metrics/machine_load.h"
#include "experiments/metrics/record_keys.h"

namespace specdec {

/// A record's entry of the machine's load: what the system does not tell is left out.
nlohmann::ordered_json load_json(const MachineLoad& load);
/// The load that load_json wrote. Throws Error naming the key.
MachineLoad parse_load(const RecordKeys& keys);

}  // namespace specdec
