#include "experiments/run/text_measures.h"

#include <algorithm>
#include <cmath>

#include "core/randomness.h"
#include "decoders/analysis/draft_bias.h"
#include "decoders/analysis/sequence_score.h"
#include "experiments/run/scorer_program.h"

namespace specdec {
namespace {

/// Of drafters that draw: other random numbers than those that drew the texts.
constexpr uint64_t kLossTraceSeed = 0x6c6f7373;

bool is_lossy(const Arm& arm) { return arm.config->promise == Promise::kLossy; }

/// None for a strategy whose drafter cannot be traced: it has none, or needs a tree.
std::optional<BiasSums> trace_bias(DecodingStrategy& tracer, const Request& request,
                                   TokenSpan output) {
  CounterRandomness random(kLossTraceSeed);
  const Request own{.prompt = request.prompt,
                    .sampling = request.sampling,
                    .stop = request.stop,
                    .random = random,
                    .tokenizer = request.tokenizer,
                    .on_tokens = request.on_tokens,
                    .constraint = request.constraint};
  DraftBias bias;
  return bias.add_text(tracer, own, output) ? std::optional(bias.sums()) : std::nullopt;
}

}  // namespace

std::optional<bool> score_answer(const QualityConfig& config, const Item& item,
                                 const std::string& text) {
  const auto& keys = item.prompt->answer_keys;
  if (item.turn >= keys.size() || !keys[item.turn]) {
    return std::nullopt;
  }
  const AnswerKey& key = *keys[item.turn];
  if (key.scorer != Scorer::kProgram) {
    return is_right(key, text);
  }
  return run_scorer(config.scorer_program, config.scorer_seconds,
                    {.prompt_id = item.prompt->id,
                     .prompt = item.prompt->turns.at(item.turn),
                     .text = text,
                     .reference = key.reference});
}

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
