#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "core/randomness.h"
#include "decoders/analysis/sequence_distribution.h"

namespace specdec {

/// Another source, but the first token after the prompt, which the prefill yields, is given: what
/// comes out is distributed as outputs that begin so.
class FirstTokenGiven final : public Randomness {
 public:
  FirstTokenGiven(Randomness& source, int64_t position, Token first)
      : source_(source), position_(position), first_(first) {}
  bool bernoulli(double probability) override { return source_.bernoulli(probability); }
  int64_t draw(std::span<const double> weights) override { return given(source_.draw(weights)); }
  int64_t draw(const WeightBlocks& weights) override { return given(source_.draw(weights)); }
  Token draw(TokenSpan ids, std::span<const double> weights) override {
    return static_cast<Token>(given(source_.draw(ids, weights)));
  }
  void seek(int64_t position, Purpose purpose) override {
    at_first_ = position == position_ && purpose == Purpose::kSample;
    source_.seek(position, purpose);
  }

 private:
  int64_t given(int64_t drawn) { return std::exchange(at_first_, false) ? first_ : drawn; }

  Randomness& source_;
  int64_t position_;
  Token first_;
  bool at_first_ = false;
};

/// The logits, but after `prompt_size` tokens only `first` is possible.
NextLogits given_first(NextLogits logits, size_t prompt_size, Token first);

/// The most likely first token that does not end the output; none when there is no likely one.
std::optional<Token> likely_first(const NextLogits& logits, Task task);

}  // namespace specdec
