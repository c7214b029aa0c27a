#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/transformer/weights.h"
#include "experiments/train/text_data.h"

namespace specdec {

/// Training on the target's own text: a drafter sees that text, not the corpus's
/// (as Medusa's self-distillation and EAGLE-3 have it). Defaults live here.
struct SelfDistillation {
  double share = 0.0;          ///< of each batch's sequences; 0 = none
  int64_t sequences = 1024;    ///< that are generated, once
  int64_t prompt_tokens = 32;  ///< <bos> and what is cut from the training text before them
  /// Temperatures of the sequences, in turn; 0 = greedy.
  std::vector<double> temperatures = {1.0, 0.0};
  int64_t held_out_sequences = 16;  ///< of each kind, continued from held-out text
  std::filesystem::path file;       ///< "" or where they are kept for other trainings
};

/// What a target wrote.
struct SelfGenerated {
  at::Tensor train;                            ///< [sequences, sequence_length + 1] int64
  std::map<std::string, at::Tensor> held_out;  ///< by kind, such rows
};

/// Continuations of `prompts` [rows, length] int64 to `total` tokens; row i is drawn from the
/// target's distribution at temperatures[i] with Philox keyed by (seed, first_row + i).
/// End-of-sequence tokens do not end a row.
at::Tensor continue_by_distribution(std::shared_ptr<const TransformerWeights> target,
                                    const at::Tensor& prompts, int64_t total,
                                    const std::vector<double>& temperatures, uint64_t seed,
                                    int64_t first_row);

/// Generates (CPU), or reads `options.file` if it holds what the same options, seed and target
/// give. `log` may be empty. Throws Error when held-out text is shorter than a prompt.
SelfGenerated self_generate(const std::shared_ptr<const TransformerWeights>& target,
                            const TextData& data, const TextPlan& plan,
                            const SelfDistillation& options,
                            const std::function<void(const std::string&)>& log);

}  // namespace specdec
