#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "decoders/decoding_strategy.h"
#include "tests/support/fake_model.h"

namespace specdec {

/// Probability of each output.
using SequenceLaw = std::map<std::vector<Token>, double>;

/// What is asked of a strategy; the parts are kept, so a Request can be made of it at any time.
struct Task {
  std::vector<Token> prompt;
  SamplingParams sampling = {};
  StopRule stop = {};
  const Tokenizer* tokenizer = nullptr;

  Request request(Randomness& random) const;
};

/// The law of a strategy's outputs, exactly: every random choice is enumerated.
SequenceLaw exact_law(DecodingStrategy& strategy, const Task& task);

/// The law that a lossless strategy must have, computed token by token from the target's table,
/// without sessions, strategies or randomness.
SequenceLaw reference_law(const LogitTable& target, const Task& task);

/// Largest difference of probability over all outputs of either law.
double max_difference(const SequenceLaw& a, const SequenceLaw& b);

/// How often each output came up in `samples` generations with seeds from `seed` on.
std::map<std::vector<Token>, int64_t> sample_counts(DecodingStrategy& strategy, const Task& task,
                                                    int64_t samples, uint64_t seed);

struct ChiSquare {
  double statistic = 0.0;
  int64_t degrees = 0;
  double p_value = 1.0;
};

/// Pearson's test of counts against a law. Outputs expected fewer than five times form one cell. An
/// output that the law gives no mass makes the p-value 0.
ChiSquare chi_square(const std::map<std::vector<Token>, int64_t>& counts, const SequenceLaw& law);

}  // namespace specdec
