#pragma once
#include <iosfwd>
#include <nlohmann/json_fwd.hpp>
#include <span>

#include "experiments/components/layer_profile.h"

namespace specdec {

/// A table: what a layer of each kind takes, how many there are, and what stands beside them.
void print_layers(std::ostream& out, const LayerProfile& profile);
/// The entry `layers` of a profile file, for readers: `target` holds their sum.
nlohmann::ordered_json layers_json(const LayerProfile& profile);
/// A table of predicted speed-ups, at the first context of the curve.
void print_predictions(std::ostream& out, const CostCurve& curve,
                       std::span<const double> acceptance, double draft_cost);

}  // namespace specdec
