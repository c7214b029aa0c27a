#pragma once
#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "experiments/train/answer_files.h"
#include "experiments/train/head_training.h"

namespace specdec {

/// The chosen answers; excluded ones have lost their tokens. Throws Error when the folder holds
/// none, not yet all of them, or features without the outputs of one of `layers`.
std::vector<AnswerRecord> require_answers(const AnswerSelection& choice,
                                          const std::vector<int64_t>& layers);

/// What `specdec answers` made, ready to train on: records without an answer and repeated prompts
/// are left out, and some answers are held out. Features are mapped, not read.
class AnswerSet {
 public:
  /// Splits records as require_answers gives them; every round(1 / held_out)-th prompt is held out.
  /// Throws Error when they are another target's, or too few.
  AnswerSet(const std::filesystem::path& folder, std::vector<AnswerRecord> records,
            const TransformerTensors& target, double held_out);

  const std::vector<AnswerRecord>& train() const { return train_; }
  const std::vector<AnswerRecord>& held_out() const { return held_out_; }
  int64_t train_tokens() const;
  /// "1200 answers (310,000 tokens); left out: 13 without a prompt, 2 excluded, 40 repeated".
  std::string text() const;

  /// The answers of a step, the same at every call: `count` of about the same length; each epoch
  /// shows all of them once.
  TargetBatch batch(int64_t step, int64_t count, uint64_t seed) const;
  TargetBatch batch(const std::vector<const AnswerRecord*>& records) const;
  /// Sum over the training answers of the target's distributions, [vocab] float64: over all
  /// positions, or evenly spread ones where there are more than `most`.
  at::Tensor masses(int64_t most = 1 << 14) const;

 private:
  void add(AnswerRecord record, int64_t held_out_every);
  std::vector<std::vector<const AnswerRecord*>> epoch(int64_t number, int64_t count,
                                                      uint64_t seed) const;

  const TransformerTensors& target_;
  std::vector<int64_t> layers_;
  at::Tensor features_;  // [rows, (layers + 1) * hidden] bfloat16
  std::vector<AnswerRecord> train_, held_out_;
  std::map<std::string, int64_t> left_out_;
  std::map<uint64_t, int64_t> prompts_;  // hash of the user's turn -> answers
};

/// "own prompt, greedy", "text, temperature 1": the kinds that figures are given for.
std::string answer_kind(const AnswerRecord& record);

}  // namespace specdec
