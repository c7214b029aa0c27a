#include "experiments/run/answer_scoring.h"

#include "experiments/run/scorer_program.h"

namespace specdec {

void score_answer(const QualityConfig& config, const Item& item, GenerationRecord& record) {
  const auto& keys = item.prompt->answer_keys;
  if (item.turn >= keys.size() || !keys[item.turn]) {
    return;
  }
  const AnswerKey& key = *keys[item.turn];
  if (key.scorer != Scorer::kProgram) {
    record.is_right = is_right(key, record.text);
    return;
  }
  record.scorer = config.scorer_fingerprint;
  record.is_right = run_scorer(config.scorer_program, config.scorer_seconds,
                               {.prompt_id = item.prompt->id,
                                .prompt = item.prompt->turns.at(item.turn),
                                .text = record.text,
                                .reference = key.reference});
}

bool has_stale_score(const QualityConfig& config, const GenerationRecord& record) {
  return !record.scorer.empty() && record.scorer != config.scorer_fingerprint;
}

}  // namespace specdec
