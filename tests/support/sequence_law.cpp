#include "tests/support/sequence_law.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "core/error.h"

namespace specdec {
namespace {

bool holds(const std::vector<Token>& ids, Token token) {
  return std::count(ids.begin(), ids.end(), token) > 0;
}

bool ends(const Task& task, const std::vector<Token>& output) {
  const Token newest = output.back();
  if (holds(task.stop.end_ids, newest) || holds(task.stop.stop_ids, newest)) {
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

void extend(const LogitTable& target, const Task& task, std::vector<Token>& output, double mass,
            SequenceLaw& law) {
  if (!output.empty() && ends(task, output)) {
    law[output] += mass;
    return;
  }
  std::vector<Token> history = task.prompt;
  history.insert(history.end(), output.begin(), output.end());
  const std::vector<double> logits = target(history);
  std::vector<double> next(logits.size());
  target_law(std::span<const double>(logits), history, task.sampling, next);
  for (size_t token = 0; token < next.size(); ++token) {
    if (next[token] > 0.0) {
      output.push_back(static_cast<Token>(token));
      extend(target, task, output, mass * next[token], law);
      output.pop_back();
    }
  }
}

/// Upper tail of the chi-square law: the regularised upper incomplete gamma function Q(k/2, x/2),
/// by its series below the mean and by Lentz's continued fraction above.
double upper_tail(double statistic, int64_t degrees) {
  const double a = static_cast<double>(degrees) / 2.0;
  const double x = statistic / 2.0;
  if (x <= 0.0) {
    return 1.0;
  }
  const double scale = std::exp(a * std::log(x) - x - std::lgamma(a));
  constexpr int kTerms = 1000;
  if (x < a + 1.0) {
    double term = 1.0 / a;
    double sum = term;
    for (int n = 1; n < kTerms; ++n) {
      term *= x / (a + n);
      sum += term;
    }
    return 1.0 - scale * sum;
  }
  constexpr double kTiny = std::numeric_limits<double>::min();
  double b = x + 1.0 - a;
  double c = 1.0 / kTiny;
  double d = 1.0 / b;
  double fraction = d;
  for (int n = 1; n < kTerms; ++n) {
    const double step = -n * (n - a);
    b += 2.0;
    d = 1.0 / (step * d + b);
    c = b + step / c;
    fraction *= d * c;
  }
  return scale * fraction;
}

}  // namespace

Request Task::request(Randomness& random) const {
  return {.prompt = prompt,
          .sampling = sampling,
          .stop = stop,
          .random = random,
          .tokenizer = tokenizer};
}

SequenceLaw exact_law(DecodingStrategy& strategy, const Task& task) {
  SequenceLaw law;
  EnumeratingRandomness random;
  do {
    const Generation generation = strategy.generate(task.request(random));
    law[generation.tokens] += random.probability();
  } while (random.next_outcome());
  return law;
}

SequenceLaw reference_law(const LogitTable& target, const Task& task) {
  SequenceLaw law;
  std::vector<Token> output;
  extend(target, task, output, 1.0, law);
  return law;
}

double max_difference(const SequenceLaw& a, const SequenceLaw& b) {
  double largest = 0.0;
  const auto compare = [&](const SequenceLaw& one, const SequenceLaw& other) {
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

std::map<std::vector<Token>, int64_t> sample_counts(DecodingStrategy& strategy, const Task& task,
                                                    int64_t samples, uint64_t seed) {
  std::map<std::vector<Token>, int64_t> counts;
  for (int64_t i = 0; i < samples; ++i) {
    CounterRandomness random(seed, 0, static_cast<uint32_t>(i));
    ++counts[strategy.generate(task.request(random)).tokens];
  }
  return counts;
}

ChiSquare chi_square(const std::map<std::vector<Token>, int64_t>& counts, const SequenceLaw& law) {
  double samples = 0.0;
  for (const auto& [output, count] : counts) {
    if (law.find(output) == law.end()) {
      return {std::numeric_limits<double>::infinity(), 1, 0.0};
    }
    samples += static_cast<double>(count);
  }
  constexpr double kFewest = 5.0;
  ChiSquare result{.statistic = 0.0, .degrees = -1};
  double rare_expected = 0.0;
  double rare_count = 0.0;
  const auto add_cell = [&](double expected, double count) {
    result.statistic += (count - expected) * (count - expected) / expected;
    ++result.degrees;
  };
  for (const auto& [output, mass] : law) {
    const auto found = counts.find(output);
    const double count = found == counts.end() ? 0.0 : static_cast<double>(found->second);
    if (mass * samples < kFewest) {
      rare_expected += mass * samples;
      rare_count += count;
    } else {
      add_cell(mass * samples, count);
    }
  }
  if (rare_expected > 0.0) {
    add_cell(rare_expected, rare_count);
  }
  SPECDEC_CHECK(result.degrees >= 1, "a chi-square test needs two cells");
  result.p_value = upper_tail(result.statistic, result.degrees);
  return result;
}

}  // namespace specdec
