#include "decoders/analysis/sequence_distribution.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "core/error.h"
#include "decoders/analysis/test_power.h"
#include "decoders/draft_grammar.h"

namespace specdec {
namespace {

bool ends(const Task& task, const std::vector<Token>& output) {
  if (task.stop.reason(output.back())) {
    return true;
  }
  std::string text;
  for (const Token token : output) {
    text += task.tokenizer == nullptr ? "" : task.tokenizer->token_bytes(token);
  }
  return static_cast<int64_t>(output.size()) >= task.stop.max_new_tokens ||
         std::any_of(task.stop.stop_strings.begin(), task.stop.stop_strings.end(),
                     [&](const std::string& stop) { return text.find(stop) != std::string::npos; });
}

/// What a sum of probabilities may be off by rounding.
constexpr double kRounding = 1e-12;

/// Walks all outputs of at least some mass.
class DistributionWalk {
 public:
  DistributionWalk(const NextLogits& target, const Task& task, double least_mass)
      : target_(target), task_(task), least_mass_(least_mass), history_(task.prompt) {
    if (task.constraint.grammar != nullptr) {
      place_.emplace(task.constraint.grammar);
    }
  }

  SequenceDistribution run() && {
    extend(1.0);
    return task_.corrected ? kept_distribution(std::move(distribution_)) : std::move(distribution_);
  }

 private:
  void extend(double mass) {
    const bool whole = place_ && !output_.empty() && place_->can_only_end();
    if (whole || (!output_.empty() && ends(task_, output_))) {
      if (whole || !task_.corrected) {
        distribution_[output_] += mass;
      }
      return;
    }
    const std::vector<double> logits = target_(history_);
    std::vector<double> next(logits.size());
    const TokenMask mask = place_ ? place_->mask() : TokenMask();
    target_distribution(std::span<const double>(logits), history_, task_.sampling, next,
                        task_.corrected ? nullptr : allowed_by(mask));
    double rest = mass;
    for (size_t token = 0; token < next.size(); ++token) {
      const bool allowed = !place_ || mask.allows(static_cast<Token>(token));
      if (allowed && next[token] > 0.0 && mass * next[token] >= least_mass_) {
        go_on(static_cast<Token>(token), mass * next[token]);
        rest -= mass * next[token];
      }
    }
    if (least_mass_ > 0.0 && rest > kRounding) {
      distribution_[output_] += rest;
    }
  }

  void go_on(Token token, double mass) {
    SPECDEC_CHECK(!place_ || place_->accept(token), "a mask allows what its grammar forbids");
    output_.push_back(token);
    history_.push_back(token);
    extend(mass);
    output_.pop_back();
    history_.pop_back();
    if (place_) {
      place_->rollback(1);
    }
  }

  const NextLogits& target_;
  const Task& task_;
  double least_mass_;
  std::optional<GrammarMatcher> place_;
  std::vector<Token> history_;
  std::vector<Token> output_;
  SequenceDistribution distribution_;
};

struct Cell {
  double expected = 0.0;
  double count = 0.0;

  void join(const Cell& other) {
    expected += other.expected;
    count += other.count;
  }
};

constexpr double kMinExpected = 5.0;
/// The cells of a chi-square test: likely outputs, and one for the others.
std::vector<Cell> make_cells(const OutputCounts& counts, const SequenceDistribution& distribution,
                             double samples) {
  std::vector<Cell> cells;
  Cell rest;
  for (const auto& [output, mass] : distribution) {
    const auto found = counts.find(output);
    const Cell cell = {mass * samples,
                       found == counts.end() ? 0.0 : static_cast<double>(found->second)};
    if (cell.expected < kMinExpected) {
      rest.join(cell);
    } else {
      cells.push_back(cell);
    }
  }
  const auto rarest =
      std::min_element(cells.begin(), cells.end(),
                       [](const Cell& a, const Cell& b) { return a.expected < b.expected; });
  if (rest.expected >= kMinExpected || cells.empty()) {
    cells.push_back(rest);
  } else {
    rarest->join(rest);
  }
  return cells;
}

}  // namespace

Request Task::request(Randomness& random) const {
  return {.prompt = prompt,
          .sampling = sampling,
          .stop = stop,
          .random = random,
          .tokenizer = tokenizer,
          .constraint = constraint};
}

Enumeration enumerate_outputs(DecodingStrategy& strategy, const Task& task, int64_t most_outcomes) {
  Enumeration all;
  EnumeratingRandomness random;
  do {
    if (++all.outcomes > most_outcomes) {
      throw Error(fmt::format("more than {} outcomes to enumerate", most_outcomes));
    }
    const Generation generation = strategy.generate(task.request(random));
    all.distribution[generation.tokens] += random.probability();
    for (const StepStatistics& step : generation.steps) {
      all.drafted += step.drafted;
      all.accepted += step.accepted;
    }
  } while (random.next_outcome());
  return all;
}

SequenceDistribution exact_distribution(DecodingStrategy& strategy, const Task& task) {
  return enumerate_outputs(strategy, task).distribution;
}

SequenceDistribution reference_distribution(const NextLogits& target, const Task& task) {
  return DistributionWalk(target, task, 0.0).run();
}

SequenceDistribution likely_prefixes(const NextLogits& target, const Task& task,
                                     double least_mass) {
  return DistributionWalk(target, task, least_mass).run();
}

OutputCounts count_by_prefix(const OutputCounts& counts, const SequenceDistribution& prefixes) {
  OutputCounts by_prefix;
  for (const auto& [output, count] : counts) {
    std::vector<Token> prefix = output;
    while (!prefix.empty() && !prefixes.contains(prefix)) {
      prefix.pop_back();
    }
    by_prefix[prefix] += count;
  }
  return by_prefix;
}

SequenceDistribution kept_distribution(SequenceDistribution distribution) {
  distribution.erase(std::vector<Token>());
  double total = 0.0;
  for (const auto& [output, mass] : distribution) {
    total += mass;
  }
  for (auto& [output, mass] : distribution) {
    mass /= total;
  }
  return distribution;
}

double max_difference(const SequenceDistribution& a, const SequenceDistribution& b) {
  double largest = 0.0;
  const auto compare = [&](const SequenceDistribution& one, const SequenceDistribution& other) {
    for (const auto& [output, mass] : one) {
      const auto found = other.find(output);
      const double other_mass = found == other.end() ? 0.0 : found->second;
      largest = std::max(largest, std::abs(mass - other_mass));
    }
  };
  compare(a, b);
  compare(b, a);
  return largest;
}

OutputCounts sample_counts(DecodingStrategy& strategy, const Task& task, int64_t samples,
                           uint64_t seed) {
  OutputCounts counts;
  for (int64_t i = 0; i < samples; ++i) {
    CounterRandomness random(seed, 0, static_cast<uint32_t>(i));
    ++counts[strategy.generate(task.request(random)).tokens];
  }
  return counts;
}

ChiSquare chi_square(const OutputCounts& counts, const SequenceDistribution& distribution) {
  double samples = 0.0;
  for (const auto& [output, count] : counts) {
    if (!distribution.contains(output)) {
      return {std::numeric_limits<double>::infinity(), 1, 0.0};
    }
    samples += static_cast<double>(count);
  }
  const std::vector<Cell> cells = make_cells(counts, distribution, samples);
  ChiSquare result{.statistic = 0.0, .degrees = static_cast<int64_t>(cells.size()) - 1};
  for (const Cell& cell : cells) {
    const double difference = cell.count - cell.expected;
    result.statistic += difference * difference / cell.expected;
  }
  result.p_value = result.degrees < 1 ? 1.0 : chi_square_tail(result.statistic, result.degrees);
  return result;
}

}  // namespace specdec
