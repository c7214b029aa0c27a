#pragma once
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "decoders/analysis/sequence_distribution.h"
#include "experiments/certify/certify_divergence.h"
#include "experiments/run/experiment_config.h"

namespace specdec {

struct ConfigCertifyOptions {
  int64_t samples = 1000;  ///< generations of each strategy on each prompt, when sampling
  int64_t tokens = 3;      ///< compare the distribution of so many new ones, when sampling
  int64_t prompts = 4;     ///< when sampling; greedy takes all
  bool quiet = false;
};

/// Probability that certify blames any strategy of a config that is lossless (family-wise, Holm).
inline constexpr double kFalseAlarm = 0.01;

/// The cell of a chi-square test that is most off.
struct WorstCell {
  std::vector<Token> beginning;  ///< of the outputs in it
  double expected = 0.0;
  int64_t count = 0;
};
/// Of the outputs that are expected five times or more; none when there is no such one.
std::optional<WorstCell> worst_cell(const OutputCounts& counts,
                                    const SequenceDistribution& distribution);

/// Where a greedy strategy left plain decoding.
struct PromptDifference {
  std::string prompt;  ///< id
  TokenDivergence divergence;
};

/// One strategy on one prompt, or greedy on all of them.
struct ConfigTest {
  std::string strategy;
  std::string point;  ///< of the sweep; "" when there is none
  Promise promise = Promise::kLossless;
  bool greedy = false;
  std::string prompt = {};  ///< id; "" for all
  // sampled
  ChiSquare chi_square = {};
  std::optional<WorstCell> worst = {};
  double adjusted_p = 1.0;  ///< Holm; only of lossless strategies
  // greedy
  int64_t prompts = 0;
  int64_t tokens = 0;
  std::vector<PromptDifference> differences = {};
  bool failed = false;

  /// Whether it could have failed: not when only one output is likely.
  bool tells() const { return greedy || chi_square.degrees > 0; }
};

struct ConfigCertificate {
  ConfigCertifyOptions options;
  std::vector<ConfigTest> tests = {};
  int64_t left_out = 0;  ///< prompts that are too long, over the points of the sweep

  /// Nothing failed, and every lossless strategy has a test that tells.
  bool passed() const;
};

/// Holm's step-down adjustment (1979): the probability of one false alarm or more among all tests
/// stays below a level when those with an adjusted value below it are rejected, whatever their
/// dependence.
std::vector<double> holm_adjusted(const std::vector<double>& p_values);

/// Tests the strategies of a config on its own checkpoints.
///
/// Sampled: each draws `samples` outputs on the first prompts; their first `tokens` new tokens are
/// compared with the target's distribution by Pearson's chi-square. The distribution is computed
/// exactly, token by token from plain forwards. Cells are the outputs that are expected five times
/// or more, and for each likely beginning all its other continuations.
///
/// Greedy: the tokens of all prompts against those of plain forwards; the first difference of each
/// prompt is explained by re-running both forwards.
///
/// Lossy strategies are measured, not tested; searches are listed, not tested. Of a prompt with
/// several turns the first is taken. Throws ConfigError when all strategies are searches, Error
/// when no prompt fits.
ConfigCertificate certify_config(const ExperimentPlan& plan, const ConfigCertifyOptions& options,
                                 std::ostream& log);

void write_config_certificate(std::ostream& out, const ConfigCertificate& certificate);
void write_config_certificate_json(std::ostream& out, const ConfigCertificate& certificate);

}  // namespace specdec
