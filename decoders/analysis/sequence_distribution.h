#pragma once
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <vector>

#include "decoders/decoding_strategy.h"

namespace specdec {

/// The logits after a history (prompt and output), one a vocabulary entry.
using NextLogits = std::function<std::vector<double>(TokenSpan history)>;

/// Probability of each output.
using SequenceDistribution = std::map<std::vector<Token>, double>;
/// Count of each output.
using OutputCounts = std::map<std::vector<Token>, int64_t>;

/// What is asked of a strategy; the parts are kept, so a Request can be made of it at any time.
struct Task {
  std::vector<Token> prompt;
  SamplingParams sampling = {};
  StopRule stop = {};
  const Tokenizer* tokenizer = nullptr;
  Constraint constraint = {};
  /// Asks for the outputs that CorrectedDecoding keeps by rejection.
  bool corrected = false;

  Request request(Randomness& random) const;
};

/// Everything that a strategy may answer.
struct Enumeration {
  SequenceDistribution distribution = {};
  int64_t outcomes = 0;  ///< generations: one for each way that the random choices may fall
  int64_t drafted = 0;   ///< tokens, over all of them
  int64_t accepted = 0;
};

/// Runs a strategy once for every outcome of its random choices. Throws Error when there are more
/// than `most_outcomes`, InternalError when it is not repeatable.
Enumeration enumerate_outputs(DecodingStrategy& strategy, const Task& task,
                              int64_t most_outcomes = std::numeric_limits<int64_t>::max());
/// The distribution of a strategy's outputs, exactly: every random choice is enumerated.
SequenceDistribution exact_distribution(DecodingStrategy& strategy, const Task& task);

/// The distribution that a lossless strategy must have, computed token by token from the target's
/// logits, without sessions, strategies or randomness. Greedy: all the mass on one output. Of a
/// corrected task: the target's distribution without the grammar's masks, given that the grammar
/// ends the text.
SequenceDistribution reference_distribution(const NextLogits& target, const Task& task);
/// reference_distribution for large vocabularies: only what has at least `least_mass` is looked at.
/// A key is an output, or the beginning of outputs: then its mass is that of all outputs that begin
/// so and have no longer key. Sums to one.
SequenceDistribution likely_prefixes(const NextLogits& target, const Task& task, double least_mass);
/// Counts by the longest key of `prefixes` that each output begins with.
OutputCounts count_by_prefix(const OutputCounts& counts, const SequenceDistribution& prefixes);

/// The distribution given that some output was kept: without the empty one, which stands for none.
SequenceDistribution kept_distribution(SequenceDistribution distribution);

/// Largest difference of probability over all outputs of either distribution.
double max_difference(const SequenceDistribution& a, const SequenceDistribution& b);

/// Counts of the outputs of `samples` generations with seeds from `seed` on.
OutputCounts sample_counts(DecodingStrategy& strategy, const Task& task, int64_t samples,
                           uint64_t seed);

struct ChiSquare {
  double statistic = 0.0;
  int64_t degrees = 0;
  double p_value = 1.0;
};

/// Pearson's test of counts against a distribution. Outputs expected fewer than five times form one
/// cell; when it is still expected fewer than five times, it joins the rarest other cell. An output
/// that the distribution gives no mass makes the p-value 0; a single cell leaves nothing to test: 0
/// degrees, p-value 1.
ChiSquare chi_square(const OutputCounts& counts, const SequenceDistribution& distribution);

}  // namespace specdec
