#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/tokenizers/tokenizer.h"
#include "experiments/train/train_config.h"

namespace specdec {

/// A text file cut into what is trained on and what is held out (its end, cut at a line).
struct SplitText {
  std::string train;
  std::string held_out;
};
/// Throws Error when the file cannot be read or is too short to be split.
SplitText split_text(const TextSource& source, double held_out);

/// Windows of held-out text of one kind: rows of <bos> and the tokens that follow.
struct HeldOut {
  std::vector<std::vector<Token>> windows;
  int64_t bytes = 0;  ///< of the text in the windows: what bits per byte are counted in
};

/// The training text as tokens.
class TextData {
 public:
  TextData(const TextPlan& plan, const Tokenizer& tokenizer);

  /// The batch of a step, the same at every call: [batch_size, sequence_length + 1] int64, rows
  /// starting with <bos> at random places of the training text.
  at::Tensor batch(int64_t step) const;
  /// [count, length] int64: <bos> and what follows random places of the training text.
  at::Tensor rows(int64_t count, int64_t length, uint64_t seed) const;
  /// How often each token comes in the training text: [vocab_size] int64.
  at::Tensor frequencies(int64_t vocab_size) const;
  /// Held-out text by kind.
  const std::map<std::string, HeldOut>& held_out() const { return held_out_; }
  int64_t train_tokens() const { return static_cast<int64_t>(train_.size()); }

 private:
  void add(const TextSource& source, const Tokenizer& tokenizer, double held_out);

  uint64_t seed_;
  int64_t batch_size_;
  int64_t sequence_length_;
  Token bos_;
  Token eos_;
  std::vector<Token> train_;
  std::map<std::string, HeldOut> held_out_;
};

}  // namespace specdec
