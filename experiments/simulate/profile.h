#pragma once
#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/sampling.h"
#include "core/transformer/transformer_model.h"
#include "decoders/analysis/cost_curve.h"
#include "decoders/decoding_strategy.h"
#include "experiments/components/layer_profile.h"
#include "experiments/metrics/environment.h"
#include "experiments/simulate/expert_profile.h"

namespace specdec {

/// Quartiles and median of repeated measurements, in seconds.
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

/// Bytes that a forward of one token reads, each once.
struct ForwardReads {
  int64_t weights = 0;               ///< forward_bytes
  std::map<int64_t, int64_t> cache;  ///< by context: keys and values that its layers see
};

/// What a machine takes for forwards and drafts: measured once, read by `simulate`.
struct Profile {
  std::string model;
  std::string machine;       ///< processor, threads, dtype; for readers
  CostCurve target;          ///< v(n)
  int64_t repeats = 0;       ///< measurements behind each of its times; 0 = not known
  ForwardReads reads = {};   ///< of the target; nothing where no whole model was measured
  double temperature = 0.0;  ///< of the steps below: distributions and draws take time too
  DraftCost plain;
  std::vector<DrafterProfile> drafters;
  std::optional<ExpertProfile> experts = {};  ///< of the target
  /// The parts that `target` was put together from, where no whole model was measured.
  std::optional<LayerProfile> layers = {};
};

/// Reads of a model's forwards at the contexts of a curve that was measured.
ForwardReads forward_reads(const TransformerModel& model, const CostCurve& curve);

/// Median and quartiles (see quantile). `seconds` must not be empty.
Spread spread_of(std::vector<double> seconds);

/// Times the steps of a strategy that drafts `length` tokens at a time (0: plain decoding), one
/// generation after the other. The strategy has to outlive it.
class StepTimer {
 public:
  StepTimer(DecodingStrategy& strategy, std::vector<Token> prompt, int64_t length,
            SamplingParams sampling);
  /// One more generation; the first of all is not timed: it warms caches and allocators up.
  void generate();
  /// False when `steps` steps were timed or no more can be hoped for: drafters that retrieve may
  /// have nothing to say.
  bool wants_more(int64_t steps) const;
  /// Costs of the draft; none when no step was that deep.
  std::optional<DraftCost> cost() const;

 private:
  DecodingStrategy& strategy_;
  std::vector<Token> prompt_;
  int64_t length_;
  SamplingParams sampling_;
  uint32_t generations_ = 0;
  std::vector<double> first_, draft_, verify_, other_;
};

/// Lets the timers take turns until each has timed `steps` steps, so that a machine which slows
/// down for a while does so for all of them and their ratios stay.
void time_in_turns(std::span<StepTimer> timers, int64_t steps);

/// A table: v(n), then the drafters' steps. Quartiles stand beside medians of at least
/// kMinQuartileValues measurements.
void print_profile(std::ostream& out, const Profile& profile);
/// The file that read_profile reads; docs/simulate.md has its keys.
std::string write_profile(const Profile& profile);
/// Throws Error with the file's name: no profile, keys missing or of a wrong type, times that are
/// not positive.
Profile read_profile(const std::filesystem::path& file);

}  // namespace specdec
