#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "core/transformer/weights.h"
#include "experiments/train/text_data.h"

namespace specdec {

/// How well a model predicts held-out text, teacher-forced (the true text is always fed), windows
/// of one training sequence that each start with <bos>.
struct Evaluation {
  int64_t tokens = 0;
  double bits_per_byte = 0.0;  ///< -sum of log2 p(token) / bytes of text
  // Against a teacher, over the same positions; unset without one:
  std::optional<double> agreement;  ///< share of positions where both have the same best token
  std::optional<double>
      overlap;  ///< mean 1 - TV = mean of sum_x min(p(x), q(x)): the probability that
                ///< a drafted token is accepted (Leviathan et al., 2023, cor. 3.6)
};

/// Evaluates at most `max_windows` windows of each kind (0 = all: throws Interrupted after
/// Ctrl-C); results by kind. `teacher` may
/// be nullptr.
std::map<std::string, Evaluation> evaluate(const TransformerTensors& model,
                                           const TransformerTensors* teacher, const TextData& data,
                                           int64_t max_windows);

}  // namespace specdec
