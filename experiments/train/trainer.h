#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <string>

#include "experiments/train/train_config.h"

namespace specdec {

struct TrainOptions {
  at::Device device = at::kCPU;
  std::function<void(const std::string&)> log;  ///< a line of progress; may be empty
};

/// Trains the model that the config describes: AdamW (Loshchilov & Hutter, 2019) with warm-up and a
/// cosine schedule, through the plain differentiable forward. Writes to `config.out`: the
/// tokenizer, config.json and bfloat16 model.safetensors at the end, training.jsonl (loss curve),
/// training.json (the evaluation of the stored weights on all held-out text), and, until then,
/// training.state, from which an interrupted training resumes with the same batches. Throws Error
/// when the folder holds a state of another config.
void train_model(const TrainConfig& config, const TrainOptions& options);

}  // namespace specdec
