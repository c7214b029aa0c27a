#pragma once
#include "experiments/train/head_config.h"
#include "experiments/train/trainer.h"

namespace specdec {

/// Trains a head on a frozen target: from text, and from what the target itself writes. Writes to
/// `config.out` what run_training does and, at the end, the head as its loader reads it. Throws
/// Error when the folder holds a head already, or a state of another config.
void train_head(const HeadTrainConfig& config, const TrainOptions& options);

}  // namespace specdec
