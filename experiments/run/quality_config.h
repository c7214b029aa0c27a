#pragma once
#include "experiments/config/config_node.h"
#include "experiments/metrics/quality.h"

namespace specdec {

/// `quality:` of a config: how the texts of a run are compared with the first strategy's.
struct QualityConfig {
  double margin = kQualityMargin;  ///< see QualityVerdict
  bool measure_loss = true;        ///< see measures_loss
};

/// Reads root's `quality`.
QualityConfig read_quality(const ConfigNode& root);

}  // namespace specdec
