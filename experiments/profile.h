#pragma once
#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "core/sampling.h"
#include "decoders/cost_curve.h"
#include "decoders/decoding_strategy.h"
#include "experiments/environment.h"

namespace specdec {

/// Of repeated measurements, in seconds.
struct Spread {
  double median = 0.0;
  double low = 0.0;   ///< lower quartile
  double high = 0.0;  ///< upper quartile
};

/// The parts of a step whose draft is so deep; 0 = a step of plain decoding.
struct DraftCost {
  int64_t drafted = 0;
  int64_t steps = 0;  ///< that were measured
  Spread draft;
  Spread verify;
  Spread other;
  double first = 0.0;  ///< median draft of a generation's first step, which reads the prompt
};

struct DrafterProfile {
  std::string name;         ///< its type, or the name it was given
  std::string description;  ///< its config on one line
  std::vector<DraftCost> lengths;
  /// Seconds that a generation's first draft takes longer, a token of the prompt.
  double prompt_token = 0.0;
};

/// What a machine takes for forwards and drafts: measured once, read by `simulate`.
struct Profile {
  std::string model;
  std::string machine;       ///< processor, threads, dtype; for readers
  CostCurve target;          ///< v(n)
  double temperature = 0.0;  ///< of the steps below: laws and draws take time too
  DraftCost plain;
  std::vector<DrafterProfile> drafters;
};

/// Median and quartiles. `seconds` must not be empty.
Spread spread_of(std::vector<double> seconds);

/// Runs a strategy that drafts `length` tokens at a time (0: plain decoding) until `steps` steps
/// were that deep, or the prompt gives no more, and returns what their parts took; none without
/// such a step: drafters that retrieve may have nothing to say.
std::optional<DraftCost> measure_steps(DecodingStrategy& strategy, TokenSpan prompt, int64_t length,
                                       int64_t steps, const SamplingParams& sampling);

/// A table: v(n), then the drafters' steps.
void print_profile(std::ostream& out, const Profile& profile);
/// The file that read_profile reads; docs/simulate.md has its keys.
std::string write_profile(const Profile& profile);
/// Throws Error with the file's name: no profile, keys missing or of a wrong type, times that are
/// not positive.
Profile read_profile(const std::filesystem::path& file);

}  // namespace specdec
