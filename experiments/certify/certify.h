#pragma once
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "experiments/certify/certify_matrix.h"

namespace specdec {

/// A distribution that differs from the target's by less is the target's: what float64 sums of
/// enumerated outcomes round to.
inline constexpr double kExactDistribution = 1e-12;

struct CertifyOptions {
  std::vector<std::string> names = {};  ///< only combinations that hold one of these; none = all
  int64_t seeds = 2;                    ///< pairs of random models
  int64_t most_outcomes = 200'000;      ///< of one task
  bool enumerate = true;  ///< false: only build and run each once, for the compatibility matrix
  bool quiet = false;
  /// Combinations run in processes of their own (run_in_processes): one that crashes or does not
  /// end breaks its promise, and the others are tried. False: it takes the program with it.
  bool isolate = false;
  /// Seconds that an isolated combination may take with one pair of models.
  double limit_seconds = 120.0;
};

/// What was found out about a combination.
enum class Finding {
  kLossless,    ///< the target's distribution (sampled), the target's tokens (greedy)
  kUnverified,  ///< it promises nothing; the difference says what it could promise
  kLossy,       ///< declared so: it keeps its promise
  kSearch,      ///< looks for something else; equals what its example says it equals
  kRefused,     ///< with a ConfigError
  kBroken,      ///< breaks its promise
};
/// "lossless", "unverified", "lossy", "search", "refused", "BROKEN"
std::string finding_name(Finding finding);

struct CertifyRow {
  CertifyCell cell;
  bool greedy = false;
  Finding finding = Finding::kBroken;
  double difference = 0.0;  ///< the largest between the output's distribution and the one promised
  int64_t outcomes = 0;     ///< enumerated, over tasks and seeds
  int64_t drafted = 0;      ///< tokens, over all outcomes
  int64_t accepted = 0;
  std::string reason = {};  ///< of a refusal or a broken promise
};

struct CertifyResult {
  std::vector<CertifyRow> rows;
  /// Components that no row tested: all refused, or never a token drafted. A proof about nothing is
  /// none, so these fail too.
  std::vector<std::string> untested;

  int64_t count(Finding finding) const;
  /// Whether every row keeps its promise, and every component was tested.
  bool passed() const;
};

/// Tries every combination of the registered components (strategies, drafters, draft lengths,
/// trees, verifiers), greedy and sampled, on tiny random float64 Gemmas. Greedy: the tokens are
/// those of plain forwards. Sampled: the distribution of the output over every random outcome is
/// compared with the one computed token by token from plain forwards, without strategies or
/// randomness. Only a ConfigError counts as a refusal; any other exception is a broken promise, and
/// so is a crash where combinations are isolated.
/// Progress goes to `log`.
CertifyResult certify(const Components& components, const CertifyOptions& options,
                      std::ostream& log);

}  // namespace specdec
