#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/transformer/adapters/lora_writer.h"
#include "experiments/train/answer_files.h"
#include "experiments/train/self_distillation.h"
#include "experiments/train/train_config.h"

namespace specdec {

enum class HeadType { kMedusa, kEagle, kEagle3, kMtp, kAssistant, kSelf };
/// "medusa", "eagle", "eagle3", "mtp", "gemma4_assistant", "self"
std::string head_type_name(HeadType type);

/// The structure of a head. The types that read a field are named behind it.
struct HeadShape {
  HeadType type = HeadType::kMedusa;
  int64_t num_heads = 4;  ///< medusa
  /// medusa: residual blocks of a head; mtp: modules; gemma4_assistant: layers
  int64_t num_layers = 1;
  bool share_lm_head = false;     ///< medusa
  int64_t intermediate_size = 0;  ///< eagle, eagle3, gemma4_assistant: of the MLP; 0 = the target's
  // gemma4_assistant:
  int64_t hidden_size = 0;
  int64_t heads = 1;            ///< queries for each head of keys and values
  int64_t clusters = 0;         ///< of an ordered head; 0 = a dense one
  int64_t chosen_clusters = 0;  ///< whose tokens are scored
  std::vector<int64_t> layers;  ///< eagle3: of the target, whose outputs are fused
  /// eagle3, eagle, and medusa with share_lm_head: the heaviest tokens of the text; 0 = all.
  int64_t draft_vocab_size = 0;
  bool llama_layer = false;      ///< eagle, eagle3: as published, instead of one like the target's
  bool after_final_norm = true;  ///< eagle: which feature of the target is continued
  at::ScalarType stored = at::kBFloat16;  ///< kChar: int8 (see TensorWriter)
  LoraShape lora = {};                    ///< self: the adapter of the layers that draft
};

/// What is minimised: a sum over the depths d = 1, 2, ... of decay^(d - 1) times the weighted
/// terms, over the sum of those powers. Each head's defaults are the published ones (see
/// docs/train_heads.md).
struct HeadLoss {
  double distribution =
      0.0;  ///< cross-entropy with the target's distribution, which is KL up to a constant
  double tokens = 0.0;    ///< cross-entropy with the text's tokens
  double features = 0.0;  ///< smooth L1 distance to the target's features (EAGLE)
  double decay = 1.0;
  int64_t depth = 1;  ///< steps that the head is unrolled for; Medusa: its number of heads
};

/// How a head for a frozen target is trained; defaults live here.
struct HeadTrainConfig {
  std::string name;
  std::filesystem::path out;     ///< the head's folder
  std::filesystem::path target;  ///< the checkpoint folder of the target, which is not changed
  HeadShape shape;
  HeadLoss loss;
  TextPlan text;
  TrainSchedule schedule;
  SelfDistillation self_distillation;
  AnswerSelection answers;         ///< with a folder: instead of text
  int64_t evaluate_depth = 4;      ///< depths that held-out figures are given for
  bool bfloat16_products = false;  ///< multiply the layers' matrices in bfloat16: faster
};

/// True when the config at `file` describes a head (it has the key `head`), not a model.
bool describes_head(const std::filesystem::path& file, const std::vector<std::string>& overrides);

/// What of it must not change between a training and its continuation.
std::string head_identity(const HeadShape& shape, const HeadLoss& loss);

/// Reads and checks the config of a head's training. Throws ConfigError with all mistakes.
HeadTrainConfig load_head_train_config(const std::filesystem::path& file,
                                       const std::vector<std::string>& overrides);

}  // namespace specdec
