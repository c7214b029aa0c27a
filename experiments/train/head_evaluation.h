#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "experiments/train/answer_set.h"
#include "experiments/train/head_training.h"
#include "experiments/train/self_distillation.h"
#include "experiments/train/text_data.h"

namespace specdec {

/// How well a head foresees its target, teacher-forced: what it is fed, after the features of the
/// target, is the text. Depth 1 is the first drafted token.
struct DepthAccuracy {
  int64_t tokens = 0;      ///< anchors
  double agreement = 0.0;  ///< share where head and target have the same best token
  double overlap = 0.0;    ///< mean 1 - TV: the probability that a drawn token is accepted
  double coverage = 0.0;   ///< mean of the target's mass on tokens that the head can draft
  /// Share of the head's best tokens that lie in the groups it would choose (see TokenGroups); 0
  /// without groups.
  double recall = 0.0;
};

/// Accuracy of a head by kind of text, over at most `max_windows` of each (0 = all), [depths]. What
/// the target wrote itself goes by "kind, by the target". Of all, throws Interrupted after Ctrl-C.
std::map<std::string, std::vector<DepthAccuracy>> evaluate_head(
    const HeadTraining& head, const TransformerTensors& target, const TextData& data,
    const SelfGenerated& generated, const HeadTrainConfig& config, int64_t max_windows);

/// Accuracy of a head on held-out answers, by answer_kind, over at most `max_answers` of each (0 =
/// all: throws Interrupted after Ctrl-C).
std::map<std::string, std::vector<DepthAccuracy>> evaluate_head(const HeadTraining& head,
                                                                const TransformerTensors& target,
                                                                const AnswerSet& answers,
                                                                const HeadTrainConfig& config,
                                                                int64_t max_answers);

/// The frozen target's side of a batch of tokens [rows, T + 1] int64.
TargetBatch target_batch(const TransformerTensors& target, const at::Tensor& tokens,
                         std::optional<at::ScalarType> matmul_dtype);

}  // namespace specdec
