#include "experiments/certify/certify_config.h"

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <ostream>

#include "core/error.h"
#include "experiments/certify/certify_group.h"
#include "experiments/run/arms.h"
#include "experiments/terminal/interrupt.h"
#include "experiments/terminal/progress.h"

namespace specdec {
namespace {

constexpr double kMinExpected = 5.0;

bool is_search(const StrategyConfig& strategy) {
  return strategy.notes.promise == Promise::kSearch;
}

/// The level of one test, so that Holm's first step holds it for all of them.
double level_of_one(const std::vector<Group>& groups, const ConfigCertifyOptions& options) {
  int64_t tests = 0;
  for (const Group& group : groups) {
    if (!group.config->sampling.greedy()) {
      const auto prompts = static_cast<int64_t>(group.config->prompts.prompts.size());
      tests += (1 + std::min(options.prompts, prompts)) *
               std::count_if(group.arms.begin(), group.arms.end(), [](const Arm& arm) {
                 return arm.config->notes.promise == Promise::kLossless;
               });
    }
  }
  return kFalseAlarm / static_cast<double>(std::max<int64_t>(1, tests));
}

/// Decides all sampled tests of lossless strategies together.
void decide(std::vector<ConfigTest>& tests) {
  std::vector<ConfigTest*> checked;
  std::vector<double> p_values;
  for (auto& test : tests) {
    const bool decides = test.positions ? test.positions->bias.tokens() > 0 : test.tells();
    if (test.promise == Promise::kLossless && !test.greedy && decides && test.error.empty()) {
      checked.push_back(&test);
      p_values.push_back(test.p_value());
    }
  }
  const auto adjusted = holm_adjusted(p_values);
  for (size_t i = 0; i < checked.size(); ++i) {
    checked[i]->adjusted_p = adjusted[i];
    checked[i]->failed = adjusted[i] < kFalseAlarm;
  }
}

void refuse_searches_only(const std::vector<Group>& groups) {
  for (const auto& group : groups) {
    for (const auto& arm : group.arms) {
      if (!is_search(*arm.config)) {
        return;
      }
    }
  }
  throw ConfigError(
      "there is nothing to certify: all strategies of the config are searches, which promise other "
      "outputs than the target's; 'specdec certify beam_search' compares them with what they "
      "equal");
}

}  // namespace

std::vector<double> holm_adjusted(const std::vector<double>& p_values) {
  std::vector<size_t> order(p_values.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return p_values[a] < p_values[b]; });
  std::vector<double> adjusted(p_values.size());
  double largest = 0.0;
  for (size_t rank = 0; rank < order.size(); ++rank) {
    const auto left = static_cast<double>(order.size() - rank);
    largest = std::max(largest, std::min(1.0, left * p_values[order[rank]]));
    adjusted[order[rank]] = largest;
  }
  return adjusted;
}

std::optional<WorstCell> worst_cell(const OutputCounts& counts,
                                    const SequenceDistribution& distribution) {
  double samples = 0.0;
  for (const auto& [output, count] : counts) {
    samples += static_cast<double>(count);
  }
  std::optional<WorstCell> worst;
  double most = -1.0;
  for (const auto& [beginning, mass] : distribution) {
    const double expected = mass * samples;
    const auto found = counts.find(beginning);
    const int64_t count = found == counts.end() ? 0 : found->second;
    const double difference = static_cast<double>(count) - expected;
    if (expected >= kMinExpected && difference * difference / expected > most) {
      most = difference * difference / expected;
      worst = {beginning, expected, count};
    }
  }
  return worst;
}

bool ConfigTest::tells() const {
  if (greedy) {
    return !drafts || drafted > 0;
  }
  return positions ? positions->tells() : chi_square.degrees > 0;
}

bool ConfigTest::untested() const {
  const bool decides = greedy || positions.has_value();
  return promise == Promise::kLossless && decides && !tells();
}

void count_drafts(const StrategyConfig& strategy, const Generation& generation, ConfigTest& test) {
  test.drafts = !strategy.verifier.empty();
  for (const StepStatistics& step : generation.steps) {
    const DraftCounts& forced = step.by_freedom[static_cast<size_t>(Freedom::kForced)];
    test.drafted += step.drafted - forced.drafted;  // those are the grammar's
    test.accepted += step.accepted - forced.accepted;
  }
}

bool ConfigCertificate::passed() const {
  return std::none_of(tests.begin(), tests.end(),
                      [](const ConfigTest& test) { return test.failed || test.untested(); });
}

void refuse_library_products(const ExperimentPlan& plan, const std::string& file) {
  for (const SweepPoint& point : plan.points) {
    if (point.config.model.library_products) {
      throw ConfigError(fmt::format(
          "{}: model.prefill_products: library: certify promises the bits of decoding: add --set "
          "model.prefill_products=exact",
          file));
    }
  }
}

void certify_config(const ExperimentPlan& plan, const ConfigCertifyOptions& options,
                    std::ostream& log, ConfigCertificate& certificate) {
  const c10::InferenceMode guard;
  const auto groups = group_arms(plan);
  refuse_searches_only(groups);
  if (groups.front().config->threads > 0) {
    at::set_num_threads(static_cast<int>(groups.front().config->threads));
  }
  certificate = {.options = options, .level = level_of_one(groups, options)};
  try {
    for (const auto& group : groups) {
      GroupCertifier certifier(group, plan, {options, certificate.level});
      Progress progress(log, Progress::choose_style(options.quiet), certifier.work());
      certifier.run(certificate.tests, progress);
      certificate.left_out += certifier.left_out();
    }
  } catch (const Interrupted&) {
    decide(certificate.tests);
    throw;
  }
  decide(certificate.tests);
}

}  // namespace specdec
