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

std::optional<double> bytes_per_step(const Group& group, const Item& item,
                                     const Generation& generation) {
  if (generation.steps.empty()) {
    return std::nullopt;
  }
  const TransformerWeights& weights = group.target->weights();
  int64_t per_token = 0;
  for (const LayerPlan& layer : weights.plan) {
    per_token += 2 * layer.kv_heads * layer.head_dim;
  }
  per_token *= group.config->model.kv_dtype == "bfloat16"
                   ? 2
                   : static_cast<int64_t>(c10::elementSize(weights.compute_dtype()));
  double context = 0.0;  // summed over steps
  auto length = static_cast<double>(item.tokens.size());
  for (const StepStatistics& step : generation.steps) {
    context += length;
    length += static_cast<double>(step.committed);
  }
  return static_cast<double>(forward_bytes(weights)) +
         static_cast<double>(per_token) * context / static_cast<double>(generation.steps.size());
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
