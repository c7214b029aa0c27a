#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "experiments/config/config_node.h"
#include "experiments/metrics/quality.h"
#include "experiments/run/prompts.h"

namespace specdec {

/// `quality:` of a config: how the texts of a run are compared with the first strategy's.
struct QualityConfig {
  double margin = kQualityMargin;  ///< see QualityConclusion
  bool measure_loss = true;        ///< see measures_loss
  /// Scores the answers of the prompts that name the scorer `program`; empty: there are none. Only
  /// the config names it: who downloads a prompts file must not thereby run its author's programs.
  std::filesystem::path scorer_program = {};
  std::string scorer_fingerprint = {};  ///< of its file, 16 hex digits; "" without one
  double scorer_seconds = 10.0;         ///< that it may take for an answer
};

/// Reads root's `quality`. Notes as mistakes: a program that is missing or cannot be run, and
/// prompts that need one where none is named.
QualityConfig read_quality(const ConfigNode& root, const std::vector<Prompt>& prompts);

}  // namespace specdec
