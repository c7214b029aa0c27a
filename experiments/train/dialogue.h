#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "core/randomness.h"
#include "core/scores.h"
#include "experiments/train/answer_prompts.h"

namespace specdec {

/// How an answer, or the prompt before it, ended.
enum class AnswerEnd {
  kOpen,      ///< it goes on
  kEnd,       ///< an end-of-sequence token
  kLoop,      ///< it began to repeat itself (see loop_start) and was cut there
  kLength,    ///< max_answer_tokens or max_length
  kNoPrompt,  ///< the model wrote no own prompt, or it did not end: there is no answer
  kExcluded,  ///< the prompt copies from an excluded one: there is no answer
};
std::string answer_end_name(AnswerEnd end);

/// What all dialogues of a plan share.
struct DialogueRules {
  const AnswerPlan& plan;
  const ChatFrame& frame;
  const ExcludedRuns& excluded;
  const std::vector<Token>& end_ids;
};

/// A prompt and its answer while a row of the model writes them.
class Dialogue {
 public:
  Dialogue(const DialogueRules& rules, AnswerPrompt prompt);

  /// The tokens that the row is fed next, at most some at a time; empty when it has ended.
  TokenSpan next() const;
  /// Takes the features [n, width] of tokens that were fed. True when the token after them is to be
  /// chosen.
  bool take(const at::Tensor& features);
  /// Chooses the next token from the target's logits after the last one fed.
  void choose(const LogitRow& logits);

  const AnswerPrompt& prompt() const { return prompt_; }
  AnswerEnd end() const { return end_; }
  /// Prompt and answer, end-of-sequence token included; nothing without an answer.
  TokenSpan tokens() const { return tokens_; }
  int64_t answer_begin() const { return answer_begin_; }
  /// [tokens - 1, width]
  at::Tensor features() const;
  /// Logarithm of the sum of the exponentials of each answer token's logits.
  const std::vector<float>& log_sums() const { return log_sums_; }

 private:
  void choose_user_token(const LogitRow& logits);
  void choose_answer_token(const LogitRow& logits);
  void end_user_turn();
  void append(TokenSpan tokens) { tokens_.insert(tokens_.end(), tokens.begin(), tokens.end()); }
  bool is_end(Token token) const;
  void finish(AnswerEnd end);

  DialogueRules rules_;
  AnswerPrompt prompt_;
  CounterRandomness random_;
  std::vector<Token> tokens_;
  size_t fed_ = 0;
  std::vector<at::Tensor> features_;
  std::vector<float> log_sums_;
  int64_t answer_begin_ = 0;  ///< 0 = in the user's turn
  AnswerEnd end_ = AnswerEnd::kOpen;
};

}  // namespace specdec
