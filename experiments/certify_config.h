#pragma once
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "decoders/sequence_law.h"
#include "experiments/certify_divergence.h"
#include "experiments/experiment_config.h"

namespace specdec {

struct ConfigCertifyOptions {
  int64_t samples = 1000;  ///< generations of each strategy on each prompt, when sampling
  int64_t tokens = 3;      ///< compare the law of so many new ones, when sampling
  int64_t prompts = 4;     ///< when sampling; greedy takes all
  bool quiet = false;
};

/// Chance that certify blames any strategy of a config that is lossless (family-wise, Holm).
inline constexpr double kFalseAlarm = 0.01;

/// One strategy on one prompt, or greedy on all of them.
struct ConfigTest {
  std::string strategy;
  std::string group;  ///< point of the sweep; "" when there is none
  Promise promise = Promise::kLossless;
  bool greedy = false;
  std::string prompt = {};  ///< id; "" for all
  // sampled
  ChiSquare chi_square = {};
  double adjusted_p = 1.0;  ///< Holm; only of lossless strategies
  // greedy
  int64_t prompts = 0;
  int64_t tokens = 0;
  std::vector<std::string> differences = {};  ///< explained, one a prompt
  bool failed = false;
};

struct ConfigCertificate {
  ConfigCertifyOptions options;
  std::vector<ConfigTest> tests = {};
  int64_t judged = 0;  ///< tests of lossless strategies that could fail

  bool passed() const;
};

/// Holm's step-down adjustment (1979): the chance of one false alarm or more among all tests stays
/// below a level when those with an adjusted value below it are rejected, whatever their
/// dependence.
std::vector<double> holm_adjusted(const std::vector<double>& p_values);

/// Tests the strategies of a config on its own checkpoints.
///
/// Sampled: each draws `samples` outputs on the first prompts; their first `tokens` new tokens are
/// compared with the target's law by Pearson's chi-square. The law is computed exactly, token by
/// token from plain forwards. Cells are the outputs that are expected five times or more, and for
/// each likely beginning all its other continuations.
///
/// Greedy: the tokens of all prompts against those of plain forwards; the first difference of each
/// prompt is explained by re-running both forwards.
///
/// Lossy strategies are measured, not judged; searches are left out.
ConfigCertificate certify_config(const ExperimentPlan& plan, const ConfigCertifyOptions& options,
                                 std::ostream& log);

void write_config_certificate(std::ostream& out, const ConfigCertificate& certificate);
void write_config_certificate_json(std::ostream& out, const ConfigCertificate& certificate);

}  // namespace specdec
