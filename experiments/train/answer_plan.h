#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "experiments/components/model_options.h"

namespace specdec {

/// How a chat model writes the text that heads for it are trained on; defaults live here.
struct AnswerPlan {
  std::filesystem::path out;     ///< the folder of the answers
  std::filesystem::path target;  ///< the model
  ModelOptions target_options;   ///< dtype, activations and device, as it will decode
  std::vector<int64_t> layers;   ///< whose outputs are recorded, beside the last hidden state
  uint64_t seed = 1;
  int64_t prompts = 1000;
  int64_t rows = 16;  ///< answers written at a time
  bool chat = true;   ///< false: a base model, which continues pieces of the texts as they are
  double own_prompts = 0.6;           ///< share of user turns that the model writes itself
  std::vector<std::string> openings;  ///< what these begin with, one drawn for each; "" = free
  std::vector<std::filesystem::path> texts;  ///< the other prompts are instructions over pieces
  std::vector<int64_t> text_tokens = {300, 1500};  ///< fewest and most tokens of a piece
  std::vector<std::filesystem::path> exclude;      ///< prompts (JSONL) that none may copy from
  int64_t exclude_run = 13;                        ///< tokens in a row that count as copied
  int64_t max_user_tokens = 256;
  int64_t max_answer_tokens = 512;
  int64_t max_length = 2048;  ///< tokens of prompt and answer
};

/// Reads and checks a config of `specdec answers`. Throws ConfigError with all mistakes.
AnswerPlan load_answer_plan(const std::filesystem::path& file,
                            const std::vector<std::string>& overrides);

/// True when the config at `file` is one of `specdec answers`, not of a training or experiment.
bool describes_answers(const std::filesystem::path& file,
                       const std::vector<std::string>& overrides);

/// What answers depend on, as JSON text; not how many there are.
std::string answer_identity(const AnswerPlan& plan, const TransformerInfo& target);

}  // namespace specdec
