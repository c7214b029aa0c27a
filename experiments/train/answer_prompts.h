#pragma once
#include <filesystem>
#include <string>
#include <unordered_set>
#include <vector>

#include "core/randomness.h"
#include "core/tokenizers/tokenizer.h"
#include "experiments/train/answer_plan.h"

namespace specdec {

/// What a chat template writes around the first user turn.
struct ChatFrame {
  std::vector<Token> opening;  ///< up to the user's text
  std::vector<Token> closing;  ///< from the end of the user's turn to the beginning of the answer
};
ChatFrame chat_frame(const Tokenizer& tokenizer);
/// What stands around a plan's prompts: without a chat, <bos> before them where texts begin so.
ChatFrame frame_of(const AnswerPlan& plan, const Tokenizer& tokenizer);

/// Runs of tokens that prompts must not hold: those of an evaluation's questions.
class ExcludedRuns {
 public:
  explicit ExcludedRuns(int64_t length) : length_(static_cast<size_t>(length)) {}
  void add(TokenSpan text);
  /// True when the text has a run of `length` tokens in common with one that was added.
  bool found_in(TokenSpan text) const;

 private:
  size_t length_;
  std::unordered_set<uint64_t> hashes_;
};
/// Runs of tokens of the questions of plan.exclude.
ExcludedRuns excluded_runs(const AnswerPlan& plan, const Tokenizer& tokenizer);

/// One prompt on the way to its answer.
struct AnswerPrompt {
  int64_t number = 0;
  bool own = false;          ///< the model writes the user's turn itself
  double temperature = 0.0;  ///< of the answer; 0 = greedy
  std::vector<Token> user;   ///< the user's turn; of an own one what it begins with
};

/// The prompts of a plan by number: each depends on the seed and its number alone.
class AnswerPrompts {
 public:
  AnswerPrompts(const AnswerPlan& plan, const Tokenizer& tokenizer);
  AnswerPrompt make(int64_t number) const;

 private:
  std::vector<Token> opening(Randomness& random) const;
  std::vector<Token> instruction(Randomness& random) const;
  std::string piece(Randomness& random) const;

  const AnswerPlan& plan_;
  const Tokenizer& tokenizer_;
  std::vector<std::string> texts_;
};

}  // namespace specdec
