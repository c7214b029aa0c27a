#include "experiments/run/quality_config.h"

namespace specdec {

QualityConfig read_quality(const ConfigNode& root) {
  const auto node = root.child("quality", false);
  QualityConfig config;
  config.margin = node.get<double>("margin", config.margin, {0.0, 1.0});
  config.measure_loss = node.get<bool>("measure_loss", config.measure_loss);
  return config;
}

}  // namespace specdec
