#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>

#include "experiments/metrics/generation_record.h"
#include "experiments/metrics/intervals.h"

namespace specdec {

/// Part of an output in which a step's first token stands.
enum class Phase {
  kThinking,  ///< in GenerationRecord::thinking: up to the end-of-thinking token
  kAnswer     ///< outside of it
};

/// Sums over some of a strategy's steps.
struct StepGroup {
  int64_t steps = 0;
  int64_t drafted = 0;
  int64_t accepted = 0;
  int64_t committed = 0;
  int64_t questions = 0;                             ///< with drafts in these steps
  std::optional<Interval> acceptance_interval = {};  ///< 95 %, by share_interval
};
/// accepted / drafted; none without drafts.
std::optional<double> acceptance_rate(const StepGroup& group);
/// committed / steps; none without steps.
std::optional<double> tokens_per_step(const StepGroup& group);

/// Contexts shorter than this are one bucket; each further one ends at twice the length of the one
/// before.
inline constexpr int64_t kShortContext = 256;
/// Smallest length of the bucket of a context of `length` tokens: 0, kShortContext, twice that...
int64_t context_bucket(int64_t length);

/// A strategy's steps by what they continue.
struct StepGroups {
  std::array<StepGroup, 2> by_phase = {};  ///< by Phase
  /// Groups by context_bucket of the tokens, of prompt and output, that precede a step's first one.
  std::map<int64_t, StepGroup> by_context = {};

  const StepGroup& of(Phase phase) const { return by_phase[static_cast<size_t>(phase)]; }
};

/// Groups the steps of generations; leaves out those whose steps do not add up to their tokens
/// (beam searches), since what such steps continue is not known.
StepGroups group_steps(std::span<const GenerationRecord* const> records);

}  // namespace specdec
