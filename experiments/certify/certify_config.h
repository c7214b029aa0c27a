#pragma once
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "decoders/analysis/sequence_distribution.h"
#include "experiments/certify/certify_divergence.h"
#include "experiments/certify/position_test.h"
#include "experiments/run/experiment_config.h"

namespace specdec {

class CertifyState;

struct ConfigCertifyOptions {
  double detect = 0.05;  ///< total variation a token that the position test is to find
  int64_t samples = 0;   ///< of the chi-square test on each prompt; 0 = to find kCellsDetect
  int64_t tokens = 2;    ///< that the chi-square test compares, after the first
  int64_t prompts = 2;   ///< of the chi-square test; the others take all
  bool quiet = false;
  CertifyState* state = nullptr;  ///< holds finished tests and gets more; nullptr = none
};

/// Total variation between the cells of a chi-square test that it is to find.
inline constexpr double kCellsDetect = 0.1;

/// Probability that certify blames any strategy of a config that is lossless (family-wise, Holm).
inline constexpr double kFalseAlarm = 0.01;

/// The cell of a chi-square test that is most off.
struct WorstCell {
  std::vector<Token> beginning;  ///< of the outputs in it
  double expected = 0.0;
  int64_t count = 0;
};
/// The output whose count is furthest from what is expected, among those expected five times or
/// more; none when there is no such one.
std::optional<WorstCell> worst_cell(const OutputCounts& counts,
                                    const SequenceDistribution& distribution);

/// A place where a greedy strategy left plain decoding.
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
  // sampled: either the positions of ordinary texts,
  std::optional<PositionTest> positions = {};
  // or the first tokens of samples of one prompt, given the very first
  ChiSquare chi_square = {};
  int64_t samples = 0;
  double visible = 1.0;  ///< total variation between cells that is found with probability kPower
  std::optional<WorstCell> worst = {};
  double adjusted_p = 1.0;  ///< Holm; only of lossless strategies
  // greedy
  int64_t prompts = 0;
  int64_t tokens = 0;
  bool drafts = false;  ///< the strategy verifies drafts; see count_drafts
  int64_t drafted = 0;
  int64_t accepted = 0;
  std::vector<PromptDifference> differences = {};
  std::string error = {};  ///< a check of specdec's own that failed on the way
  bool failed = false;

  double p_value() const { return positions ? positions->p_value() : chi_square.p_value; }
  /// True for a test that could have failed: not when only one output is likely, when it does not
  /// find the mistakes that it should, or when a greedy strategy had no draft to verify.
  bool tells() const;
  /// True for a test that was to tell and does not. Cells beside positions may find one output
  /// alone, and where costs decide that no draft pays, drafting nothing is what was asked for.
  bool untested() const;
};

/// Adds the drafts of a greedy generation. A strategy with a verifier drafts; one without, as plain
/// decoding, has nothing that a draft would show.
void count_drafts(const StrategyConfig& strategy, const Generation& generation, ConfigTest& test);

struct ConfigCertificate {
  ConfigCertifyOptions options = {};
  std::vector<ConfigTest> tests = {};
  int64_t left_out = 0;        ///< prompts that are too long, over the points of the sweep
  double level = kFalseAlarm;  ///< of one test, so that kFalseAlarm holds for all

  /// Whether nothing failed, and every lossless strategy has a test that tells: its greedy tokens
  /// with at least one draft, or the positions of its texts.
  bool passed() const;
};

/// Holm's step-down adjustment (1979): the probability of one false alarm or more among all tests
/// stays below a level when those with an adjusted value below it are rejected, whatever their
/// dependence.
std::vector<double> holm_adjusted(const std::vector<double>& p_values);

/// Throws ConfigError, naming the config's file, where a point of it has prompts multiplied by a
/// library: their bits are not those of decoding, which a certificate promises.
void refuse_library_products(const ExperimentPlan& plan, const std::string& file);

/// Tests the strategies of a config on its own checkpoints.
///
/// Sampled: ordinary texts of each are traced, and tested at all their positions at once (see
/// PositionTest), so many that a total variation of `detect` per token is found. And outputs of the
/// first prompts: given the first new token, which the prefill yields, the next `tokens` are
/// compared with the target's distribution by Pearson's chi-square. The distribution is computed
/// exactly, token by token from plain forwards. Cells are the outputs that are expected five times
/// or more, and for each likely beginning all its other continuations.
///
/// Greedy: the tokens of all prompts against those of plain forwards; the first difference of each
/// prompt is explained by re-running both forwards.
///
/// Lossy strategies are measured, not tested; searches are listed, not tested. Of a prompt with
/// several turns the first is taken. Throws ConfigError when all strategies are searches, Error
/// when no prompt fits, and Interrupted after Ctrl-C: then `certificate` has the finished tests.
void certify_config(const ExperimentPlan& plan, const ConfigCertifyOptions& options,
                    std::ostream& log, ConfigCertificate& certificate);

void write_config_certificate(std::ostream& out, const ConfigCertificate& certificate);
void write_config_certificate_json(std::ostream& out, const ConfigCertificate& certificate);

}  // namespace specdec
