#pragma once
#include <ATen/core/Tensor.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "experiments/train/train_config.h"

namespace specdec {

/// Figures on held-out text: for training.jsonl and for a line of progress.
struct HeldOutReport {
  nlohmann::json figures;
  std::string text;
};

/// What a TrainingLoop trains. The functions are called on one thread, with gradients enabled.
struct TrainingTask {
  std::string name;
  std::filesystem::path out;  ///< a folder that exists
  TrainSchedule schedule;
  /// What must not change between a training and its continuation.
  std::string identity;
  std::vector<at::Tensor> matrices;  ///< leaves that decay
  std::vector<at::Tensor> others;    ///< leaves that do not: embeddings, norms, biases
  int64_t train_tokens = 0;
  int64_t tokens_per_step = 0;
  /// The loss of a step, a scalar; a function of the step and the parameters alone.
  std::function<at::Tensor(int64_t step)> loss;
  std::function<HeldOutReport()> evaluate;  ///< a quick look
  /// Stores the result in `out`; what is stored is then evaluated on all held-out text. Called
  /// again where the first call was cut.
  std::function<HeldOutReport()> finish;
  std::function<void(const std::string&)> log;  ///< a line of progress; may be empty
};

/// Trains to the schedule's last step: AdamW (Loshchilov & Hutter, 2019) with warm-up, a cosine
/// schedule and gradients clipped by their common norm. Writes to `task.out`: training.jsonl (loss
/// and held-out figures), training.json (the summary) and, until then, training.state, from which
/// an interrupted training resumes to the same bits. Throws Error when the folder holds a state of
/// another identity, when the loss is not finite, and when a file cannot be written; Interrupted
/// after Ctrl-C, with training.state written at the step that was reached.
void run_training(const TrainingTask& task);

}  // namespace specdec
