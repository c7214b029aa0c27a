#include "experiments/run/text_measures.h"

#include <algorithm>
#include <cmath>

#include "decoders/analysis/draft_bias.h"
#include "decoders/analysis/sequence_score.h"

namespace specdec {
namespace {

constexpr uint64_t kLossTraceSeed = 0x6c6f7373;

bool is_lossy(const Arm& arm) { return arm.config->promise == Promise::kLossy; }

/// None for a strategy whose drafter cannot be traced: it has none, or needs a tree.
std::optional<BiasSums> trace_bias(DecodingStrategy& tracer, const Request& request,
                                   TokenSpan output) {
  DraftBias bias;
  return bias.add_text(tracer, request, output) ? std::optional(bias.sums()) : std::nullopt;
}

}  // namespace

bool measures_loss(const Group& group, const Arm& arm) {
  const Arm& first = group.arms.front();
  if (!group.config->quality.measure_loss || is_lossy(first)) {
    return false;
  }
  return is_lossy(arm) || (arm.config->name == first.config->name &&
                           std::any_of(group.arms.begin(), group.arms.end(), is_lossy));
}

bool traces_loss(const Group& group, const Arm& arm) {
  return measures_loss(group, arm) && is_lossy(arm) && !group.config->sampling.greedy();
}

CounterRandomness loss_randomness() { return CounterRandomness(kLossTraceSeed); }

void measure_loss(const Group& group, const Arm& arm, const Request& request,
                  GenerationRecord& record) {
  const auto& output = record.generation.tokens;
  if (!measures_loss(group, arm) || output.empty()) {
    return;
  }
  const double log_prob = output_log_prob(*group.target, request.prompt, output);
  if (std::isfinite(log_prob)) {
    record.log_prob = log_prob;
  }
  if (arm.tracer != nullptr) {
    record.bias = trace_bias(*arm.tracer, request, output);
  }
}

}  // namespace specdec
