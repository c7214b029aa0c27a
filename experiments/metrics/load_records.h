#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "experiments/metrics/machine_load.h"

namespace specdec {

/// A record's entry of the machine's load: what the system does not tell is left out.
nlohmann::ordered_json load_json(const MachineLoad& load);
/// The entry "load" of a generation's record; none in runs that were recorded before it was
/// measured.
std::optional<MachineLoad> parse_load(const nlohmann::ordered_json& line);

}  // namespace specdec
